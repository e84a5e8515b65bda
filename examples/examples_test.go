// Package examples has policies, each with a page. The tests play the stories of the pages.
package examples

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairshare/policyfile"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write into the pages what the examples really do")

// all are the examples, in the order of the index.
var all = []string{
	"own-hosts-exempt",
	"concurrent-rate-logging-only",
	"seven-percent",
	"fair-share",
	"rapid-requests",
	"cookie-filter",
	"redirects-counted-once",
	"bad-user-agents",
	"one-crawler",
	"page-and-site",
	"request-volume",
	"quiet",
	"scraper",
	"trap",
	"token-as-key",
	"operator-overrides",
}

// Every page shows its complete policy, and the actual answers and log lines of its
// stories.
func TestPages(t *testing.T) {
	for _, name := range all {
		t.Run(name, func(t *testing.T) {
			file, err := policyfile.Load(filepath.Join(name, "policy.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			for i := range file.Warnings {
				t.Errorf("%s", file.Warnings[i].Long())
			}
			path := filepath.Join(name, "README.md")
			page := readPage(t, path)
			shown := playPage(t, page, name, file)
			if *update {
				if err := os.WriteFile(path, []byte(shown.String()), 0o666); err != nil {
					t.Fatal(err)
				}
				return
			}
			for i := range page {
				if diff := cmp.Diff(page[i].text, shown[i].text); diff != "" {
					t.Errorf("%s, block %q: −page +real (go test ./examples -update writes it):\n%s", path,
						page[i].kind, diff)
				}
			}
		})
	}
}

// playPage returns the page with the actual contents of its blocks.
func playPage(t *testing.T, page page, name string, file *policyfile.File) page {
	t.Helper()
	shown := append(page[:0:0], page...)
	var last *story
	stories, policies := 0, 0
	for i := range shown {
		b := &shown[i]
		switch b.kind {
		case "yaml":
			if policies++; policies > 1 { // a proposed change
				checkFragment(t, b.text, file)
				continue
			}
			data, err := os.ReadFile(filepath.Join(name, "policy.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			b.text = string(data)
		case "story":
			stories++
			last = parseStory(t, b.text)
			b.text = last.play(t, file)
			if len(last.steps) < 4 {
				t.Errorf("a story of %d steps", len(last.steps))
			}
			for _, st := range last.steps {
				for _, q := range st.requests {
					q.check(t)
				}
			}
		case "http", "json":
			q := last.firstReported()
			if q == nil {
				t.Fatal("no rule spoke in the story")
			}
			if b.kind == "http" {
				b.text = q.http()
			} else {
				b.text = q.log()
			}
		case "tsv":
			b.text = replayed(t, name, file)
		case "", "sh":
		default:
			t.Errorf("a block of kind %q", b.kind)
		}
	}
	if stories == 0 || policies == 0 {
		t.Errorf("the page shows %d policies and %d stories", policies, stories)
	}
	return shown
}

// checkFragment parses rules that a page proposes as a change of its policy.
func checkFragment(t *testing.T, rules string, file *policyfile.File) {
	t.Helper()
	text := "rules:\n" + rules
	if strings.HasPrefix(rules, "rules:") || !strings.HasPrefix(rules, "- ") {
		text = rules
	}
	if _, err := policyfile.Parse(file.Name+" (page)", []byte(text)); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}

// A page is a README.md, split into text and fenced blocks.
type page []block

type block struct {
	fence string // the opening line; "" for text between blocks
	kind  string // the word after the fence
	text  string
}

func readPage(t *testing.T, path string) page {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p := page{{}}
	for line := range strings.Lines(string(data)) {
		last := &p[len(p)-1]
		switch {
		case strings.HasPrefix(line, "```") && last.fence == "":
			p = append(p, block{fence: line, kind: strings.TrimSpace(line[3:])})
		case strings.HasPrefix(line, "```"):
			p = append(p, block{})
		default:
			last.text += line
		}
	}
	if p[len(p)-1].fence != "" {
		t.Fatalf("%s: a block does not end", path)
	}
	return p
}

func (p page) String() string {
	var b strings.Builder
	for _, block := range p {
		b.WriteString(block.fence + block.text)
		if block.fence != "" {
			b.WriteString("```\n")
		}
	}
	return b.String()
}

// The index has every example, every folder is an example, and the proposed policy is
// valid.
func TestIndex(t *testing.T) {
	page := readPage(t, "README.md")
	index := page.String()
	policies := 0
	for _, b := range page {
		if b.kind != "yaml" {
			continue
		}
		policies++
		file, err := policyfile.Parse("README.md", []byte(b.text))
		if err != nil {
			t.Fatal(err)
		}
		for i := range file.Warnings {
			t.Errorf("%s", file.Warnings[i].Long())
		}
		if n := len(file.Policy.Rules); n < 5 {
			t.Errorf("README.md: a policy of %d rules, the built-in ones are missing", n)
		}
	}
	if policies == 0 {
		t.Error("README.md: no policy to begin with")
	}
	at := 0
	for _, name := range all {
		i := strings.Index(index[at:], "("+name+"/README.md)")
		if i < 0 {
			t.Errorf("README.md: %s is missing, or not in the order of the tests", name)
			continue
		}
		at += i
	}
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	folders := 0
	for _, e := range entries {
		if e.IsDir() {
			folders++
		}
	}
	if folders != len(all)+3 { // two of TestBuiltInPolicyOnLogs, and servers
		t.Errorf("%d folders, %d examples", folders, len(all))
	}
}
