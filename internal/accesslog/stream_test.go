package accesslog

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const streamLine = `192.0.2.%d - - [01/Mar/2026:10:00:%02d +0000] "GET /%d HTTP/1.1" 200 5 "-" "curl/8"` + "\n"

func TestStreamReadsLinesThatArriveInPieces(t *testing.T) {
	s, err := NewStream(Options{})
	if err != nil {
		t.Fatal(err)
	}
	garbage := "\x00\x01 nothing that a server writes\n{\"level\":\"info\"}\n"
	if b := s.Parse([]byte(garbage), 0); len(b.Entries) != 0 || len(b.Skipped) != 2 || s.Format() != "" {
		t.Fatalf("garbage: %d entries, %d skipped, format %q", len(b.Entries), len(b.Skipped), s.Format())
	}
	line := fmt.Sprintf(streamLine, 7, 1, 1)
	b := s.Parse([]byte("\x07half of a line\n"+line), 100)
	if len(b.Entries) != 1 || len(b.Skipped) != 1 || s.Format() != "combined" {
		t.Fatalf("half garbage: %d entries, %d skipped, format %q", len(b.Entries), len(b.Skipped), s.Format())
	}
	if e := b.Entries[0]; e.Client.String() != "192.0.2.7" || e.Target != "/1" ||
		e.Line != int64(100+len("\x07half of a line\n")+len(line)) {
		t.Errorf("entry %+v", e)
	}
	if s.Has()&HasUserAgent == 0 || s.Resolution() == 0 || !s.Zoned() {
		t.Errorf("facts %b, %v", s.Has(), s.Resolution())
	}

	// The server logs JSON from now on.
	json := `{"time":"2026-03-01T10:00:02+00:00","remote_addr":"192.0.2.8","request":"GET /2 HTTP/1.1","status":"200"}` + "\n"
	b = s.Parse([]byte(json), 0)
	if len(b.Entries) != 1 || b.Entries[0].Client.String() != "192.0.2.8" {
		t.Fatalf("after a change of the format: %+v, skipped %+v", b.Entries, b.Skipped)
	}
}

func TestStreamKnowsFieldsNamedBefore(t *testing.T) {
	s, _ := NewStream(Options{})
	s.Learn([]byte("#Software: IIS\n#Fields: date time c-ip cs-method cs-uri-stem cs-uri-query sc-status\n"))
	b := s.Parse([]byte("2026-03-01 10:00:00 192.0.2.9 GET /a - 200\n"), 0)
	if len(b.Entries) != 1 || b.Entries[0].Target != "/a" {
		t.Fatalf("entries %+v, skipped %+v", b.Entries, b.Skipped)
	}
}

func TestStreamReportsAnUnknownFormat(t *testing.T) {
	if _, err := NewStream(Options{Format: "nonsense"}); err == nil {
		t.Error("no error")
	}
}

// A Stream reads what a File reads, however the text is cut between lines.
func TestStreamReadsAsAFile(t *testing.T) {
	var text strings.Builder
	for i := range 300 {
		fmt.Fprintf(&text, streamLine, i%250, i%60, i)
		if i%7 == 0 {
			text.WriteString("garbage\n")
		}
	}
	path := filepath.Join(t.TempDir(), "access.log")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var want []string
	for b, err := f.Next(); err == nil; b, err = f.Next() {
		for _, e := range b.Entries {
			e.Line = 0
			want = append(want, fmt.Sprint(e))
		}
	}
	for _, size := range []int{1, 3, 50, 1 << 20} {
		s, _ := NewStream(Options{})
		var got []string
		for rest := []byte(text.String()); len(rest) > 0; {
			end := 0
			for range size {
				if i := bytes.IndexByte(rest[end:], '\n'); i >= 0 {
					end += i + 1
				} else {
					end = len(rest)
				}
			}
			for _, e := range s.Parse(rest[:end], 0).Entries {
				e.Line = 0
				got = append(got, fmt.Sprint(e))
			}
			rest = rest[end:]
		}
		if len(want) != 300 || strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("in pieces of %d lines: %d entries, want %d", size, len(got), len(want))
		}
	}
}

func FuzzStream(f *testing.F) {
	f.Add([]byte(fmt.Sprintf(streamLine, 1, 1, 1)), 3)
	f.Add([]byte("#Fields: date time c-ip\n2026-03-01 10:00:00 192.0.2.9\n"), 20)
	f.Fuzz(func(t *testing.T, text []byte, cut int) {
		s, _ := NewStream(Options{})
		cut = max(0, min(cut, len(text)))
		s.Learn(text[:cut])
		for _, part := range [][]byte{text[:cut], text[cut:]} {
			for _, e := range s.Parse(part, 0).Entries {
				if e.Line < 1 || e.Line > int64(len(part)) || !e.Client.IsValid() {
					t.Fatalf("entry %+v", e)
				}
			}
		}
	})
}
