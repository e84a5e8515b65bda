package policyfile

import (
	"os"
	"strings"
	"testing"

	"fairshare/texts"
)

// The policies in docs/answers.md have no errors.
func TestPoliciesOfTheAnswersPage(t *testing.T) {
	page, err := os.ReadFile("../docs/answers.md")
	if err != nil {
		t.Fatal(err)
	}
	n, german := 0, false
	for _, part := range strings.Split(string(page), "```yaml\n")[1:] {
		text, _, _ := strings.Cut(part, "```")
		f, err := Parse("answers.md", []byte(text))
		if err != nil {
			t.Error(err)
			continue
		}
		for i, w := range f.Warnings {
			t.Errorf("warning %d: %v", i, w)
		}
		n++
		if own, ok := f.Answers.Languages["de"]; ok { // it is there to be copied
			german = true
			builtIn := texts.BuiltIn()
			for i, text := range builtIn.Languages()[builtIn.Choose([]string{"de"})].All() {
				if got := *own.All()[i].Text; got != *text.Text {
					t.Errorf("%s in German: %q, built in: %q", text.Key, got, *text.Text)
				}
			}
		}
	}
	if n == 0 || !german {
		t.Errorf("%d policies, a German one: %v", n, german)
	}
}
