package check

import (
	"io"
	"testing"

	"fairshare/bots"
)

// A program that writes user agents one by one gets each answer before it writes
// the next.
func TestEachUserAgentIsAnsweredAtOnce(t *testing.T) {
	in, input := io.Pipe()
	answers, out := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- recognizeLines(out, in, bots.BuiltIn()) }()
	buf := make([]byte, 100)
	for range 2 {
		if _, err := io.WriteString(input, "curl/8\n"); err != nil {
			t.Fatal(err)
		}
		if n, err := answers.Read(buf); err != nil || string(buf[:n]) != "curl\ttool\tcurl/8\n" {
			t.Fatalf("%q, %v", buf[:n], err)
		}
	}
	input.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
