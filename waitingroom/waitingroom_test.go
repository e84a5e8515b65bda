package waitingroom

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"fairshare/texts"
)

// An element is one element of a page.
type element struct {
	name string
	attr map[string]string
	text string // directly inside it
}

// elements parses a page.
func elements(t *testing.T, page string) (all []*element) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	for n := range root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		e := &element{name: n.Data, attr: map[string]string{}}
		for _, a := range n.Attr {
			e.attr[a.Key] = a.Val
		}
		for c := range n.ChildNodes() {
			if c.Type == html.TextNode {
				e.text += c.Data
			}
		}
		all = append(all, e)
	}
	return all
}

func named(all []*element, name string) (found []*element) {
	for _, e := range all {
		if e.name == name {
			found = append(found, e)
		}
	}
	return found
}

func newTexts(t *testing.T, own map[string]texts.Texts) *texts.Set {
	t.Helper()
	s, err := texts.New(own)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func pageOf(r *Room, v Visit) string {
	b, _ := r.AppendPage(nil, &v)
	return string(b)
}

// What a screen reader, a keyboard and a search engine need is there, in each language and with each
// step.
func TestPageIsAccessible(t *testing.T) {
	for _, step := range []Step{NoStep, Button, ProofOfWork} {
		r := newRoom(t, Options{Step: step, Texts: newTexts(t, map[string]texts.Texts{"ar": {Busy: "الموقع مشغول"}})})
		for lang, dir := range map[string]string{"en": "ltr", "de": "ltr", "fr": "ltr", "ar": "rtl"} {
			text := pageOf(r, Visit{Languages: []string{lang}, Wait: 20 * time.Second, Waits: true, Visitor: 7,
				Contact:   `<a href="mailto:shop@example.org">shop@example.org</a>`,
				Reference: "0123456789", Target: "/a", Now: noon})
			all := elements(t, text)
			count := func(name string, want int) []*element {
				t.Helper()
				found := named(all, name)
				if len(found) != want {
					t.Fatalf("%v %s: %d elements %s, want %d", step, lang, len(found), name, want)
				}
				return found
			}
			if root := count("html", 1)[0]; root.attr["lang"] != lang || root.attr["dir"] != dir {
				t.Errorf("%s: %v", lang, root.attr)
			}
			title, heading := count("title", 1)[0], count("h1", 1)[0]
			if title.text == "" || title.text != heading.text {
				t.Errorf("%s: title %q, heading %q", lang, title.text, heading.text)
			}
			count("main", 1)
			status := 0
			for _, p := range named(all, "p") {
				if p.attr["role"] == "status" {
					status++
				}
			}
			if want := map[Step]int{NoStep: 1, Button: 2, ProofOfWork: 2}[step]; status != want {
				t.Errorf("%v: %d live regions", step, status)
			}
			if link := named(all, "a")[0]; link.attr["href"] != "" || link.text == "" {
				t.Errorf("%s: %+v", lang, link)
			}
			count("button", map[Step]int{Button: 1}[step])
			count("script", map[Step]int{ProofOfWork: 1}[step])
			for _, e := range all {
				for name := range e.attr {
					if name == "tabindex" || name == "autofocus" || name == "style" || strings.HasPrefix(name, "on") {
						t.Errorf("%v: <%s %s>", step, e.name, name)
					}
				}
			}
			var robots, viewport bool
			for _, m := range named(all, "meta") {
				robots = robots || m.attr["name"] == "robots" && m.attr["content"] == "noindex"
				viewport = viewport || m.attr["name"] == "viewport" &&
					!strings.Contains(m.attr["content"], "maximum-scale")
			}
			if !robots || !viewport {
				t.Errorf("%s: robots %v, viewport %v", lang, robots, viewport)
			}
			for _, other := range []string{"http:", "https:", "src=", "url(", "@import"} {
				if strings.Contains(text, other) {
					t.Errorf("%v: the page contains %s", step, other)
				}
			}
		}
	}
}

// luminance returns the relative luminance of a color (WCAG 2.2).
func luminance(t *testing.T, color string) float64 {
	t.Helper()
	rgb, err := strconv.ParseUint(strings.TrimPrefix(color, "#"), 16, 32)
	if err != nil || len(color) != 7 {
		t.Fatalf("%q is not a color", color)
	}
	part := func(shift int) float64 {
		c := float64(rgb>>shift&0xFF) / 255
		if c <= 0.04045 {
			return c / 12.92
		}
		return math.Pow((c+0.055)/1.055, 2.4)
	}
	return 0.2126*part(16) + 0.7152*part(8) + 0.0722*part(0)
}

// Texts have the contrast of WCAG 2.2, level AAA (7:1), in light and in dark.
func TestColorsHaveContrast(t *testing.T) {
	sets := regexp.MustCompile(`:root\{[^}]*\}`).FindAllString(style, -1)
	if len(sets) != 2 || !strings.Contains(style, "prefers-color-scheme:dark") {
		t.Fatalf("color sets: %q", sets)
	}
	for _, set := range sets {
		colors := map[string]string{}
		for _, m := range regexp.MustCompile(`--(\w+):(#\w+)`).FindAllStringSubmatch(set, -1) {
			colors[m[1]] = m[2]
		}
		if len(colors) != 4 {
			t.Fatalf("colors: %v", colors)
		}
		back := luminance(t, colors["back"])
		for _, name := range []string{"text", "quiet", "link"} {
			front := luminance(t, colors[name])
			if ratio := (max(front, back) + 0.05) / (min(front, back) + 0.05); ratio < 7 {
				t.Errorf("%s %s on %s: contrast %.2f", name, colors[name], colors["back"], ratio)
			}
		}
	}
	if regexp.MustCompile(`\d(px|pt)\b`).MatchString(style) {
		t.Error("the style has fixed sizes")
	}
}

func TestTextsOfTheOperator(t *testing.T) {
	r := newRoom(t, Options{Texts: newTexts(t, map[string]texts.Texts{
		"EN": {Busy: "Busy <b>shop</b>"},
		"it": {Busy: `Il sito è "pieno"`, Wait: "Attesa: circa {wait}!", Seconds: "{n} <s>"},
		"de": {Retry: "Nochmal"},
	})})
	page := func(lang string, wait time.Duration) string {
		return pageOf(r, Visit{Languages: []string{lang}, Wait: wait, Reference: "x"})
	}
	for _, test := range []struct {
		lang  string
		wait  time.Duration
		holds string
	}{
		{"en", 0, "<h1>Busy &lt;b&gt;shop&lt;/b&gt;</h1>"},
		{"en", 0, "about <strong>2 seconds</strong>."},
		{"en", 2100 * time.Millisecond, "about <strong>5 seconds</strong>."},
		{"en", 11 * time.Second, "about <strong>15 seconds</strong>."},
		{"en", 115 * time.Second, "about <strong>115 seconds</strong>."},
		{"en", 116 * time.Second, "about <strong>2 minutes</strong>."},
		{"en", 10 * time.Minute, "about <strong>10 minutes</strong>."},
		{"it", 11 * time.Second, "<p role=\"status\">Attesa: circa <strong>15 &lt;s&gt;</strong>! This page tries again by itself."},
		{"it", 5 * time.Minute, "<strong>5 minutes</strong>"}, // not translated
		{"it", 0, "Il sito è &#34;pieno&#34;"},
		{"de", 0, ">Nochmal</a>"},
		{"de", 0, "Diese Website ist ausgelastet"}, // built in
	} {
		if got := page(test.lang, test.wait); !strings.Contains(got, test.holds) {
			t.Errorf("%s after %v: no %q in %s", test.lang, test.wait, test.holds, got)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for name, opts := range map[string]Options{
		"an unknown step": {Step: 9},
		"too easy":        {Difficulty: 7},
		"too hard":        {Difficulty: 21},
		"a short key":     {Key: []byte("short")},
	} {
		if _, err := New(opts); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestReloadFollowsTheExpectedWait(t *testing.T) {
	r, hard := newRoom(t, Options{}), newRoom(t, Options{Step: ProofOfWork})
	for _, test := range []struct {
		room             *Room
		expected, waited time.Duration
		spread           uint8
		step             bool
		want             int
	}{
		{r, 0, 0, 0, false, 2},
		{r, 0, 0, 255, false, 2},
		{r, 7500 * time.Millisecond, 0, 0, false, 8},
		{r, 8 * time.Second, 0, 255, false, 9},
		{r, 20 * time.Second, 0, 255, false, 24},
		{r, 10 * time.Minute, 0, 0, false, 24},
		{r, 10 * time.Minute, 0, 255, false, 29}, // a visitor loses its place after a minute
		{r, time.Second, time.Minute, 0, false, 7},
		{r, time.Second, time.Hour, 255, false, 29},
		{hard, time.Second, 0, 0, true, 9},
		{hard, time.Second, 0, 0, false, 2}, // the step is passed
	} {
		if got := test.room.Reload(test.expected, test.waited, test.spread, test.step); got != test.want {
			t.Errorf("Reload(%v, %v, %d, %v) = %d, want %d", test.expected, test.waited, test.spread, test.step, got,
				test.want)
		}
	}
}

func TestContentSecurityPolicyAllowsOnlyWhatIsNeeded(t *testing.T) {
	for step, want := range map[Step]string{
		NoStep:      `^default-src 'none'; style-src 'sha256-[\w+/=]+'; base-uri 'none'; form-action 'none'$`,
		Button:      `^default-src 'none'; style-src 'sha256-[\w+/=]+'; base-uri 'none'; form-action 'self'$`,
		ProofOfWork: `^default-src 'none'; style-src 'sha256-[\w+/=]+'; script-src 'sha256-[\w+/=]+'; worker-src blob:; base-uri 'none'; form-action 'self'$`,
	} {
		got := newRoom(t, Options{Step: step}).ContentSecurityPolicy()[0]
		if !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("%v: %s", step, got)
		}
	}
	if strings.Contains(workScript, "</") || strings.Contains(style, "</") {
		t.Error("a part of the page could end its element")
	}
}
