package livepolicy

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"weak"

	"fairshare/policyfile"
)

// A reload releases the policy file before, with the prefixes of its lists.
func TestReloadReleasesTheOldPolicyFile(t *testing.T) {
	list := filepath.Join(t.TempDir(), "drop.txt")
	must(t, os.WriteFile(list, []byte("192.0.2.0/24\n"), 0o600))
	text := fmt.Sprintf("lists: {drop: {file: %q}}\nrules: [{name: drop, match: {addr: drop}, block: true}]\n", list)
	p := openPolicy(t, text)
	must(t, p.OpenState(t.Context()))
	p.Start(t.Context())
	var old []weak.Pointer[policyfile.File]
	for range 4 {
		old = append(old, weak.Make(p.Current().File))
		next, err := p.Prepare(t.Context(), parseFile(t, text))
		must(t, err)
		p.Use(t.Context(), next, func() {})
	}
	runtime.GC()
	runtime.GC()
	kept := 0
	for _, file := range old {
		if file.Value() != nil {
			kept++
		}
	}
	if kept > 1 {
		t.Errorf("%d of 4 former policy files are still in memory", kept)
	}
}
