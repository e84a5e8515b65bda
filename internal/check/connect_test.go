package check

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"fairshare/internal/setup"
	"fairshare/redislimit/redistest"
)

// The rights that Connect prints are enough for Connect, and without those of an older version it prints them.
func TestConnectPrintsTheLeastRights(t *testing.T) {
	server := redistest.Start(t)
	path := filepath.Join(t.TempDir(), "site.yaml")
	policy := fmt.Sprintf("store: {url: %q, user: shop, name: g, wait: 1s}\n"+
		"rules: [{name: all, limit: {requests: 100, per: 1m}}]\n", server.URL())
	if err := os.WriteFile(path, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(setup.StorePasswordEnv, "PASSWORD")
	connect := func(rights string) (out string, err error) {
		server.Do(strings.Fields(rights)...)
		p, err := Open(t.Context(), path, t.Output())
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		err = p.Connect(t.Context(), &b)
		return b.String(), err
	}
	out, err := connect("ACL SETUSER shop on >PASSWORD allkeys +@all")
	rights := regexp.MustCompile(`ACL SETUSER shop .*`).FindString(out)
	if err != nil || rights == "" {
		t.Fatalf("with all rights: %v\n%s", err, out)
	}
	least := strings.Replace(rights, "shop on", "shop reset on", 1)
	if out, err := connect(least); err != nil || strings.Contains(out, "warning") {
		t.Errorf("with %s: %v\n%s", rights, err, out)
	}
	for _, right := range []string{"~fs2:g:* ", "+get +set "} {
		less := strings.Replace(least, right, "", 1)
		if _, err := connect(less); less == least || err == nil || !strings.Contains(err.Error(), "refuses the user") {
			t.Errorf("without %s: %v", right, err)
		}
	}
}
