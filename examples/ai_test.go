package examples

import (
	"os"
	"strings"
	"testing"

	"fairshare/internal/setup"
	"fairshare/policyfile"

	"github.com/google/go-cmp/cmp"
)

// Each policy of the page about AI crawlers is followed by its story.
func TestAICrawlers(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and in one goroutine")
	}
	const path = "../docs/ai-crawlers.md"
	p := readPage(t, path)
	shown := append(page{}, p...)
	var file *policyfile.File
	stories := 0
	for i := range p {
		switch p[i].kind {
		case "yaml":
			var err error
			opts := policyfile.Options{Bots: setup.BotNames}
			if file, err = opts.Parse("ai-crawlers.md", []byte(p[i].text)); err != nil {
				t.Fatalf("%v\n%s", err, p[i].text)
			}
			for i := range file.Warnings {
				t.Error(file.Warnings[i].Long())
			}
		case "story":
			stories++
			s := parseStory(t, p[i].text)
			shown[i].text = s.play(t, file)
			for _, st := range s.steps {
				for _, q := range st.requests {
					q.check(t)
				}
			}
			if *update {
				continue
			}
			if diff := cmp.Diff(p[i].text, shown[i].text); diff != "" {
				t.Errorf("%s: −page +real (go test ./examples -update writes it):\n%s", path, diff)
			}
			for _, line := range strings.Split(shown[i].text, "\n") { // people and search engines always pass
				for _, name := range []string{"reader", "google", "apple"} {
					if strings.Contains(line, "   "+name+" ") && !strings.Contains(line, "   200") {
						t.Errorf("%s", line)
					}
				}
			}
		}
	}
	if stories != 5 {
		t.Errorf("%d stories", stories)
	}
	if *update {
		if err := os.WriteFile(path, []byte(shown.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}
