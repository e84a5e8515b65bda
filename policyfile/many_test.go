package policyfile_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"fairshare/policyfile"
)

// Parse does not compile the regexps of a policy with thousands of rules. To compile
// them takes ten times as long as to read them, and each of the five checks with
// sample requests would compile them.
func TestThousandsOfRegexpsAreNotCompiled(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and in one goroutine")
	}
	const rules = 2001
	var text strings.Builder
	text.WriteString("rules:\n")
	for i := range rules {
		fmt.Fprintf(&text,
			"  - {name: r%d, match: {path: 're:^/page%[1]d/[a-z0-9]+/(edit|new|delete)$', user_agent: 're:(?i)bot%[1]d.*x'}, block: true}\n", i)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	file, err := policyfile.Parse("many.yaml", []byte(text.String()))
	runtime.ReadMemStats(&after)
	if err != nil {
		t.Fatal(err)
	}
	if each := (after.TotalAlloc - before.TotalAlloc) / rules; each > 60_000 {
		t.Errorf("%d bytes are allocated for each rule, want at most 60,000", each)
	}
	said := false
	for _, w := range file.Warnings {
		said = said ||
			strings.Contains(w.Long(), "2001 rules are more than 2000: they are not checked for access to /robots.txt")
	}
	if !said {
		t.Error("no warning lists the checks that are skipped")
	}
}
