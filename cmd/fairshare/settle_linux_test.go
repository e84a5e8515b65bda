package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"testing"
)

// programMemory returns how much of the mapped files is resident, in KiB.
func programMemory(t *testing.T) (size int) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(status)); lines.Scan(); {
		if _, err := fmt.Sscanf(lines.Text(), "RssFile: %d kB", &size); err == nil {
			return size
		}
	}
	t.Skip("the system does not count pages of files")
	return 0
}

func TestForgottenPagesAreMappedAgain(t *testing.T) {
	before := programMemory(t)
	forgetPages()
	after := programMemory(t)
	if after >= before {
		t.Errorf("%d KiB of the program were resident, and then %d", before, after)
	}
	if got := fmt.Sprintf("%x", bytes.Repeat([]byte{0xab}, 2)); got != "abab" {
		t.Errorf("%q is printed", got)
	}
}
