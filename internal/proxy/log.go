package proxy

import (
	"fmt"
	"io"
	"log"
	"strings"
	"sync"
	"time"
	"unicode"
)

// Bounds of a Log: a client that causes errors must not fill the disk with them.
const (
	logLines = 10  // a second
	logWidth = 512 // bytes of a line
)

// NewLog returns a logger that writes at most ten lines a second, each with a prefix
// and cut at 512 bytes. The next line reports how many were omitted.
func NewLog(w io.Writer, prefix string) *log.Logger {
	return log.New(&boundedLog{w: w, prefix: prefix}, "", 0)
}

type boundedLog struct {
	w      io.Writer
	prefix string

	mu     sync.Mutex
	second int64
	n      int // lines in that second
	lost   int
}

func (l *boundedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now().Unix(); now != l.second {
		l.second, l.n = now, 0
	}
	if l.n++; l.n > logLines {
		l.lost++
		return len(p), nil
	}
	line := strings.TrimRight(string(p), "\n")
	if len(line) > logWidth {
		line = line[:logWidth] + "…"
	}
	line = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' ' // control, format and direction characters
	}, line)
	if l.lost > 0 {
		line += fmt.Sprintf(" (%d lines before this one were omitted)", l.lost)
		l.lost = 0
	}
	fmt.Fprintf(l.w, "%s%s\n", l.prefix, line)
	return len(p), nil
}
