package serve

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A reload whose access log cannot be opened changes nothing, not even the journal.
func TestReloadWithABadAccessLogKeepsTheJournal(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	policy := func(journal, more string) string {
		return fmt.Sprintf(`
upstream: http://127.0.0.1:1
journal: {file: %s}
%s
rules: [{name: closed, block: true}]
`, filepath.Join(folder, journal), more)
	}
	s := startServer(t, policy("old.log", ""), nil)
	bad := fmt.Sprintf("access_log: {file: %s}", filepath.Join(folder, "missing", "access.log"))
	if err := os.WriteFile(s.options.Policy, []byte(policy("new.log", bad)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.reload(t.Context(), "test", nil); err == nil {
		t.Fatal("the access log was opened")
	}
	resp, err := http.Get("http://" + s.listener.Addr().String() + "/page")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	s.policy.FlushReports()
	var old []byte
	for range 50 {
		if old, err = os.ReadFile(filepath.Join(folder, "old.log")); strings.Contains(string(old), "/page") {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	fresh, _ := os.ReadFile(filepath.Join(folder, "new.log"))
	t.Errorf("the refusal is not in the journal in force: %v; that of the rejected policy has %q", err, fresh)
}
