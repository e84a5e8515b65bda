package outbound

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

// facts returns what a head says, as text for comparison.
func facts(h *head, b string) string {
	size := h.parse([]byte(b + "\r\nbody\r\n\r\n"))
	if size == 0 {
		return "not plain"
	}
	if size != len(b) {
		return fmt.Sprint("the size is ", size)
	}
	all, without := http.Header{}, http.Header{}
	h.fill(all)
	h.fillWithoutConnection(without)
	err := h.frame(func(name string) bool { return name == "Server" })
	f := framing{}
	if err == nil {
		h.plainLines()
		f = h.framing
	}
	return fmt.Sprintf("%s %d %d %v %v %v %+v %q", h.status, h.code, len(h.lines), all, without, err, f, f.text)
}

// A head that shares lines with the one before it is read as if it were the first one.
func TestHeadsAreReadAsIfTheyWereTheFirst(t *testing.T) {
	var heads []string
	for _, answer := range answers {
		if i := strings.Index(answer, "\r\n\r\n"); i >= 0 && i < bufferBytes {
			heads = append(heads, answer[:i+4])
		}
	}
	lines := []string{"Date: 1", "Date: 2", "Server: a", "server: a", "Set-Cookie: a=b", "Set-Cookie: a=b",
		"Set-Cookie: c=d", "Content-Length: 5", "Content-Length: 6", "Connection: keep-alive", "Connection: Date, x",
		"Connection: close", "X:", "x: ", "X : ", "Keep-Alive: 5", "A b: c", "", " folded", "X: \x00"}
	random := rand.New(rand.NewPCG(1, 2))
	statuses := []string{"404 Not Found", "2000", "", "99"}
	for range 3000 {
		head := "HTTP/1.1 200 OK\r\n"
		if i := random.IntN(40); i < len(statuses) {
			head = "HTTP/1.1 " + statuses[i] + "\r\n"
		}
		for range random.IntN(8) {
			if line := lines[random.IntN(len(lines)-random.IntN(6))]; line != "" {
				head += line + "\r\n"
			}
		}
		heads = append(heads, head+"\r\n")
	}
	long := "HTTP/1.1 200 OK\r\n" + strings.Repeat("a:\r\n", 900)
	heads = append(heads, long+"\r\n", long+"b:\r\n\r\n")
	var h head
	for range 20_000 {
		b := heads[random.IntN(len(heads))]
		if part := b[:random.IntN(len(b))]; random.IntN(3) == 0 && h.parse([]byte(part)) != 0 {
			t.Fatalf("%q is read as a whole head", part)
		}
		if got, want := facts(&h, b), facts(new(head), b); got != want {
			t.Fatalf("%q:\ngot  %s\nwant %s", b, got, want)
		}
	}
	for i := range 2000 { // all lines are new
		var b bytes.Buffer
		fmt.Fprint(&b, "HTTP/1.1 200 OK\r\n")
		for j := range i % 900 {
			fmt.Fprintf(&b, "%d:%d\r\n", j, i)
		}
		if b.Len() < bufferBytes {
			facts(&h, b.String()+"\r\n")
		}
	}
	if cap(h.lines) > 16*bufferBytes {
		t.Errorf("%d lines are remembered", cap(h.lines))
	}
	h.forget()
	if !reflect.DeepEqual(h, head{}) {
		t.Error("a long head is remembered")
	}
}

// Lines that come again need no memory.
func TestRepeatedLinesNeedNoMemory(t *testing.T) {
	b := []byte("HTTP/1.1 200 OK\r\nServer: a\r\nContent-Type: text/html\r\nDate: 1\r\nContent-Length: 5\r\n\r\n")
	other := bytes.Replace(b, []byte("Server: a\r\n"), nil, 1)
	var h head
	h.parse(b)
	h.parse(other)
	h.parse(b)
	if n := testing.AllocsPerRun(100, func() { h.parse(b) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
