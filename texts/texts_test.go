package texts

import (
	"fmt"
	"html"
	"strings"
	"testing"
)

func newSet(t testing.TB, own map[string]Texts) *Set {
	t.Helper()
	s, err := New(own)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestBuiltInTextsAreComplete(t *testing.T) {
	for lang, texts := range builtIn {
		for _, text := range texts.All() {
			if err := CheckText(text.Key, *text.Text); err != nil {
				t.Errorf("%s in %s: %v", text.Key, lang, err)
			}
		}
	}
}

func TestAllNamesEachTextOnce(t *testing.T) {
	var texts Texts
	keys := map[string]bool{}
	for i, text := range texts.All() {
		if keys[text.Key] || *text.Text != "" {
			t.Errorf("%s: twice", text.Key)
		}
		keys[text.Key] = true
		*text.Text = fmt.Sprint(i)
	}
	if empty := strings.Count(fmt.Sprintf("%q", texts), `""`); empty > 0 {
		t.Errorf("%d texts have no key", empty)
	}
}

// Own texts replace those of their language; the others are built in, or else English, also if the
// English ones are the operator's.
func TestOwnTextsReplaceBuiltInOnes(t *testing.T) {
	s := newSet(t, map[string]Texts{"EN": {Requests: "Slow down", Cost: "Too much"}, "de-AT": {Requests: "Langsamer"},
		"DE": {Retry: "Nochmal"}, "it": {Retry: "Riprova"}})
	for _, test := range []struct{ lang, tag, requests, cost, retry string }{
		{"en", "en", "Slow down", "Too much", "Try again now"},
		{"de", "DE", "Zu viele Anfragen", "Zu viele aufwendige Anfragen", "Nochmal"},
		{"de-AT", "de-AT", "Langsamer", "Too much", "Try again now"},
		{"it", "it", "Slow down", "Too much", "Riprova"},
		{"fr", "fr", "Trop de requêtes", "Trop de requêtes coûteuses", "Réessayer maintenant"},
		{"nl", "en", "Slow down", "Too much", "Try again now"},
	} {
		l := s.Languages()[s.Choose([]string{test.lang})]
		if l.Tag != test.tag || l.Requests != test.requests || l.Cost != test.cost || l.Retry != test.retry {
			t.Errorf("%s: %+v", test.lang, l)
		}
	}
}

func TestUnusableTextsAreErrors(t *testing.T) {
	many := map[string]Texts{}
	for i := range MaxLanguages + 1 {
		many[fmt.Sprintf("aa-x%d", i)] = Texts{}
	}
	for name, own := range map[string]map[string]Texts{
		"no language":            {"en_US": {}},
		"a language twice":       {"de": {}, "DE": {}},
		"too many languages":     many,
		"no number":              {"it": {Seconds: "5 secondi"}},
		"two numbers":            {"it": {Seconds: "{n} {n}"}},
		"a line end":             {"it": {Busy: "a\nb"}},
		"not UTF-8":              {"it": {Busy: "\xff"}},
		"a long text":            {"it": {Busy: strings.Repeat("x", MaxText+1)}},
		"a placeholder":          {"it": {Busy: "attesa {wait}"}},
		"an unknown one":         {"it": {PleaseWait: "{wait} {rule}"}},
		"a brace that is open":   {"it": {PleaseWait: "{wait} {"}},
		"a brace without a mate": {"it": {Retry: "}"}},
	} {
		if _, err := New(own); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestDurations(t *testing.T) {
	english, french := BuiltIn().Languages()[0].Texts, builtIn["fr"]
	for sec, want := range map[int64]string{0: "0 seconds", 1: "1 second", 2: "2 seconds", 119: "119 seconds",
		120: "2 minutes", 121: "3 minutes", 7200: "120 minutes", 7201: "3 hours", 48 * 3600: "48 hours",
		48*3600 + 1: "3 days"} {
		if got := string(english.AppendDuration(nil, sec)); got != want {
			t.Errorf("%d: %s, want %s", sec, got, want)
		}
	}
	if got := string(french.AppendDuration(nil, 7201)); got != "3 heures" {
		t.Error(got)
	}
}

// A placeholder is still found in an escaped text.
func TestEscapedTextsKeepPlaceholders(t *testing.T) {
	own := newSet(t, map[string]Texts{"it": {PleaseWait: `<b>"{wait}" & co</b>`}}).Languages()[3]
	if got := own.Escaped(html.EscapeString); got.PleaseWait != "&lt;b&gt;&#34;{wait}&#34; &amp; co&lt;/b&gt;" ||
		got.Seconds != "{n} seconds" || own.PleaseWait[0] != '<' {
		t.Errorf("%+v", got)
	}
}

func BenchmarkChoose(b *testing.B) {
	for _, accept := range []string{"", "de-AT,de;q=0.8,en;q=0.5", strings.Repeat(strings.Repeat("a-", 17)+"a,", 12)} {
		b.Run(fmt.Sprint(len(accept)), func(b *testing.B) {
			header := []string{accept}
			b.ReportAllocs()
			for b.Loop() {
				BuiltIn().Choose(header)
			}
		})
	}
}
