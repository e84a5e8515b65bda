package admin

import (
	"bytes"
	"log"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// Wrong tokens are in the log, and a flood of them writes few lines. The tokens are not in it.
func TestWrongTokensAreLogged(t *testing.T) {
	var out bytes.Buffer
	logger, g := log.New(&out, "", 0), new(guesses)
	r := httptest.NewRequest("GET", "/metrics", nil)
	r.RemoteAddr = "192.0.2.7:1234"
	r.Header.Set("Authorization", "Bearer 0123456789abcdef-wrong")
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	for range 1500 {
		g.note(logger, r, now)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 4 || !strings.Contains(lines[0], "192.0.2.7") || strings.Contains(lines[0], " in a minute") ||
		!strings.Contains(lines[3], "the last of 1000 in a minute") || strings.Contains(out.String(), "0123456789") {
		t.Errorf("%s", out.String())
	}
	out.Reset()
	r.RemoteAddr = "@"
	g.note(logger, r, now.Add(time.Minute))
	if !strings.Contains(out.String(), "a Unix socket") {
		t.Errorf("the next minute: %s", out.String())
	}
}
