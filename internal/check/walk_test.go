package check

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestRepeatedBansHaveTheirOwnLengths(t *testing.T) {
	for growth, want := range map[string][]string{
		"":                      {"10s", "10s", "10s"},
		", growth: 3":           {"10s", "30s", "1m30s"},
		", growth: 3, max: 70s": {"10s", "30s", "1m10s", "1m10s"},
	} {
		path := filepath.Join(t.TempDir(), "policy.yaml")
		text := "rules:\n  - name: a\n    limit: {requests: 1, per: 10s, by: addr}\n" +
			"    ban: {after: 2, for: 10s" + growth + "}\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var out, stderr bytes.Buffer
		p, err := Open(t.Context(), path, &stderr)
		if err != nil {
			t.Fatal(err, stderr.String())
		}
		request := Request{Target: "GET /", Addr: "203.0.113.1"}
		req, err := request.Parse()
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Walk(t.Context(), &out, req, WalkOptions{Target: "/", Times: 300, Every: time.Second}); err != nil {
			t.Fatal(err)
		}
		var got []string
		for line := range strings.Lines(out.String()) {
			if _, length, found := strings.Cut(line, "starts a ban of "); found {
				got = append(got, strings.TrimSpace(length))
			}
		}
		if len(got) < len(want) || strings.Join(got[:len(want)], " ") != strings.Join(want, " ") {
			t.Errorf("growth %q: bans of %s, want %s\n%s", growth, got, want, &out)
		}
	}
}
