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

// Bounds of a Log: whoever makes something fail must not fill the disk with
// it.
const (
	logLines = 10  // a second
	logWidth = 512 // bytes of a line
)

// NewLog returns a logger that writes at most ten lines a second, each begun
// with prefix and cut at 512 bytes. What was left out is counted, and said
// with the next line.
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
		line += fmt.Sprintf(" (%d lines before this one were left out)", l.lost)
		l.lost = 0
	}
	fmt.Fprintf(l.w, "%s%s\n", l.prefix, line)
	return len(p), nil
}
