package serve

import (
	"os"
	"strings"
	"testing"
	"time"
)

// Clients cause lines, such as about handshakes that failed. However many there are, the server's own warnings are
// logged.
func TestLinesAboutClientsDoNotDisplaceWarnings(t *testing.T) {
	t.Parallel()
	path := writeFile(t, "stderr", "")
	stderr, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	s := startServerTo(t, "upstream: http://127.0.0.1:1\nrules: []\n", stderr, nil)
	for range 1000 {
		s.http.ErrorLog.Print("http: TLS handshake error from 192.0.2.1:1: EOF")
	}
	s.logLine("the registry cannot be written")
	for range 100 {
		if text, _ := os.ReadFile(path); strings.Contains(string(text), "the registry cannot be written") {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Error("the warning is not in the log")
}
