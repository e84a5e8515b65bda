package policyfile

import (
	"os"
	"strings"
	"testing"
)

// The policies in docs/answers.md have no errors.
func TestPoliciesOfTheAnswersPage(t *testing.T) {
	page, err := os.ReadFile("../docs/answers.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
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
	}
	if n == 0 {
		t.Error("no policy")
	}
}
