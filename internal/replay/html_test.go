package replay

import (
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"fairshare"
)

// Nothing that a client sends becomes markup, a reference or a query string in the page, and the
// page has no script and no reference to another file.
func TestHTMLReportEscapesWhatClientsSend(t *testing.T) {
	const evil = `</td><script>alert(1)</script><img src=https://evil.example/x onerror=alert(1)>`
	var lines []string
	for range 30 {
		lines = append(lines, entryAt("198.51.100.7", "10:00:00", `"GET /`+strings.ReplaceAll(evil, " ", "+")+
			`?secret=hunter2 HTTP/1.1" 200 900 "-" "Mozilla/5.0 `+evil+`"`))
	}
	lines = append(lines, `not a line of a log ?secret=hunter2 `+evil)
	policy := &fairshare.Policy{Rules: []fairshare.Rule{{Name: evil[:60],
		Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 10, Window: time.Hour}}}}
	r := replayAll(t, Options{Policy: policy, Limiter: memory(4 << 20), Client: clientFunc(t),
		Logs: []string{writeLines(t, "access.log", lines...)}})
	r.Advice = &Advice{Rules: []AdvisedRule{{Name: "a", Reasons: []string{evil}, YAML: "- name: " + evil}},
		Suggest: evil, Notes: []string{evil}}
	r.Warnings = append(r.Warnings, Warning{Text: evil, Hint: evil})
	var out strings.Builder
	if err := r.WriteHTML(&out, Style{Policy: evil, Unmeasured: true}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "hunter2") {
		t.Error("the page has a query string")
	}
	ids, tables, heads := map[string]bool{}, 0, 0
	z := html.NewTokenizer(strings.NewReader(out.String()))
	for z.Next() != html.ErrorToken {
		token := z.Token()
		if token.Type != html.StartTagToken {
			continue
		}
		switch token.Data {
		case "script", "img", "iframe", "link", "object", "base", "form":
			t.Errorf("the page has %s", token)
		case "table":
			tables++
		case "caption":
			heads++
		}
		for _, a := range token.Attr {
			switch {
			case a.Key == "id":
				if ids[a.Val] {
					t.Errorf("the id %q is there twice", a.Val)
				}
				ids[a.Val] = true
			case strings.HasPrefix(a.Key, "on"), a.Key == "src", a.Key == "style":
				t.Errorf("the page has %s", token)
			case a.Key == "href" && !regexp.MustCompile(`^#[a-z]+$`).MatchString(a.Val):
				t.Errorf("the page has a link to %q", a.Val)
			}
		}
	}
	if z.Err() != io.EOF {
		t.Error(z.Err())
	}
	for _, id := range []string{"verdicts", "advice", "people", "clients", "paths", "rules", "refused", "skipped",
		"next"} {
		if !ids[id] {
			t.Errorf("the page has no part %q", id)
		}
	}
	if tables < 5 || heads != tables {
		t.Errorf("%d tables, %d captions", tables, heads)
	}
	if !strings.Contains(out.String(), "alert(1)") {
		t.Error("the user agent is not on the page")
	}
}

// A log without a valid line gives a page that says so.
func TestHTMLReportWithoutLines(t *testing.T) {
	var out strings.Builder
	r := &Report{Files: []string{"access.log"}, Lines: 3, Skipped: 3,
		Reasons: []SkipReason{{Reason: "no time", Lines: 3}}}
	if err := r.WriteHTML(&out, Style{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"no line could be judged", "no time"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing", want)
		}
	}
}
