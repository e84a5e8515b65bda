package proxy

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestLogIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := NewLog(&out, "fairshare: ")
		for i := range 1000 {
			l.Print(i)
		}
		if n := strings.Count(out.String(), "\n"); n != logLines {
			t.Errorf("%d lines in a second, want %d", n, logLines)
		}
		out.Reset()
		time.Sleep(time.Second)
		l.Print("later\x1b[31m\nsec\u202eond line " + strings.Repeat("x", 1000))
		want := "fairshare: later [31m sec ond line " + strings.Repeat("x", logWidth-26) + "…" +
			fmt.Sprintf(" (%d lines before this one were omitted)\n", 1000-logLines)
		if out.String() != want {
			t.Errorf("got  %q\nwant %q", out.String(), want)
		}
	})
}
