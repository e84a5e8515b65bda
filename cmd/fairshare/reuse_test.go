package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Refused requests of one connection use the same memory, one after another. Nothing that is recorded of one shows
// another one.
func TestRefusalsOfOneConnectionAreRecordedAsTheyCame(t *testing.T) {
	dir := t.TempDir()
	s := startServe(t, fmt.Sprintf("journal: {file: %s/refusals}\naccess_log: {file: %s/all, format: json}\n"+
		"rules: [{name: all, block: true}]\n", dir, dir), "--upstream", "http://127.0.0.1:9")
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const requests = 200
	request := func(i int) string {
		more := ""
		if i%3 == 0 {
			more = fmt.Sprintf("Cookie: c%d=1\r\nReferer: http://a/%d\r\n", i, i)
		}
		return fmt.Sprintf("GET /page/%d?q=%d HTTP/1.1\r\nHost: h%d.example\r\nUser-Agent: agent %d\r\n"+
			"X-Forwarded-For: 203.0.113.%d\r\n%s\r\n", i, i, i%5, i%7, i, more)
	}
	answers := bufio.NewReader(c)
	for i := 0; i < requests; i += 2 {
		io.WriteString(c, request(i)+request(i+1)) // the second one is pipelined
		for range 2 {
			resp, err := http.ReadResponse(answers, nil)
			if err != nil || resp.StatusCode != http.StatusForbidden {
				t.Fatal(resp, err)
			}
			io.Copy(io.Discard, resp.Body)
		}
	}
	if code := s.stop(); code != 0 {
		t.Fatalf("serve ended with %d", code)
	}
	for _, file := range []string{"refusals", "all"} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		if len(lines) > requests || len(lines) < 20 || file == "all" && len(lines) < requests {
			t.Fatalf("%s has %d lines", file, len(lines))
		}
		for _, line := range lines { // the journal may leave some out
			var entry struct {
				Client, Host, Path, Target, Referer string
				UserAgent                           string `json:"user_agent"`
				Summed                              int
			}
			if err := json.Unmarshal([]byte(line), &entry); err != nil {
				t.Fatal(err)
			}
			if entry.Summed > 0 {
				continue
			}
			path := cmp.Or(entry.Path, entry.Target)
			i, _ := strconv.Atoi(strings.TrimPrefix(path, "/page/"))
			referer := ""
			if file == "all" && i%3 == 0 {
				referer = fmt.Sprint("http://a/", i)
			}
			if entry.Host != fmt.Sprintf("h%d.example", i%5) || path != fmt.Sprintf("/page/%d", i) ||
				entry.Referer != referer ||
				entry.UserAgent != fmt.Sprint("agent ", i%7) || entry.Client != fmt.Sprintf("203.0.113.%d", i) {
				t.Errorf("%s: %s", file, line)
			}
		}
	}
}
