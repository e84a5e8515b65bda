package policyfile

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The reference is complete, and its examples are policies that give no
// warnings but the few that are expected.
func TestReferenceIsTrue(t *testing.T) {
	data, err := os.ReadFile("../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(data)
	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatchIndex(doc, -1)
	if len(examples) < 5 {
		t.Fatalf("%d examples", len(examples))
	}
	for _, at := range examples {
		first := strings.Count(doc[:at[2]], "\n")
		// As many empty lines before it make the line numbers those of the page.
		f, err := Parse("policy.md", []byte(strings.Repeat("\n", first)+doc[at[2]:at[3]]))
		for _, fault := range Faults(err) {
			t.Error(fault.Text())
		}
		if f == nil {
			continue
		}
		for i := range f.Warnings {
			if w := f.Warnings[i].Text; !strings.Contains(w, "catches /robots.txt") {
				t.Error(f.Warnings[i].Long())
			}
		}
	}
	for what, keys := range map[string][]string{
		"the file": names(topKeys()), "clients": names(clientKeys()), "a rule": names(ruleKeys()), "match": names(matchKeys()),
		"limit":    names(limitKeys()),
		"upstream": names(upstreamKeys()), "journal": names(journalKeys()), "bounds": names(boundsKeys()), "ban": names(banKeys()), "answer": names(answerKeys()),
	} {
		for _, key := range keys {
			if !strings.Contains(doc, "`"+key+"`") && !strings.Contains(doc, "`"+key+": ") && !strings.Contains(doc, "`{"+key+": ") {
				t.Errorf("%s: the key %s is not in the reference", what, key)
			}
		}
	}
	_, later, _ := strings.Cut(doc, "## Not yet in this version")
	for _, keys := range [][]string{
		laterNames(topKeys()), laterNames(clientKeys()), laterNames(upstreamKeys()), laterNames(matchKeys()), laterNames(limitKeys()),
	} {
		for _, key := range keys {
			if !strings.Contains(later, key) {
				t.Errorf("the later key %s is not in the reference", key)
			}
		}
	}
}

func laterNames[T any](keys []key[T]) []string {
	var list []string
	for _, k := range keys {
		if k.read == nil {
			list = append(list, k.name)
		}
	}
	return list
}
