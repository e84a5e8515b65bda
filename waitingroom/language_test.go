package waitingroom

import (
	"strings"
	"testing"
)

func TestLanguageIsLookedUp(t *testing.T) {
	r := newRoom(t, Options{Languages: map[string]Texts{"pt-BR": {Title: "x"}, "ar": {}, "zh-Hant": {}, "az-Arab": {}}})
	for _, test := range []struct{ accept, want string }{
		{"", "en"},
		{"*", "en"},
		{"de", "de"},
		{"DE-at,en;q=0.5", "de"},
		{"en;q=0.5, fr;q=0.8", "fr"},
		{"fr;q=0.5, de;q=0.5", "fr"}, // the first of equals
		{"nl, it;q=0.9", "en"},
		{"nl, de;q=0.1", "de"},
		{"de;q=0, fr;q=0.1", "fr"},
		{"pt", "en"},
		{"pt-br", "pt-BR"},
		{"zh-Hant-TW-x-private", "zh-Hant"}, // RFC 4647 §3.4: a single letter goes with what follows it
		{"de-x", "de"},
		{"de;level=1", "en"}, // no weight
		{"de;q=1.5,de;q=2,de;q=x,de;q=", "en"},
		{";;,,;q=1,-,--,de-", "de"},
		{strings.Repeat("xx,", 11) + "de", "de"},
		{strings.Repeat("xx,", 12) + "de", "en"}, // more are not looked at
		{strings.Repeat("x", 10000), "en"},
	} {
		if got := r.language([]string{test.accept}).lang; got != test.want {
			t.Errorf("%q: %s, want %s", test.accept, got, test.want)
		}
	}
	if got := r.language([]string{"nl", "fr"}).lang; got != "fr" {
		t.Errorf("two lines: %s", got)
	}
	for tag, want := range map[string]string{"ar": `<html lang="ar" dir="rtl">`, "az-Arab": `dir="rtl"`,
		"de": `dir="ltr"`} {
		if p := r.language([]string{tag}); !strings.Contains(p.head, want) || p.header[0] != tag {
			t.Errorf("%s: %s", tag, p.head)
		}
	}
}

func TestLanguageTags(t *testing.T) {
	for tag, want := range map[string]bool{"en": true, "pt-BR": true, "zh-Hant-TW": true, "sl-rozaj-1994": true,
		"": false, "e": false, "e1": false, "en_US": false, "en-": false, "-en": false, "en-toolongsub": false,
		`en" x="`:                       false,
		strings.Repeat("abc-", 9) + "d": false} {
		if got := CheckLanguage(tag); got != want {
			t.Errorf("%q: %v", tag, got)
		}
	}
}

func FuzzLanguage(f *testing.F) {
	f.Add("de-AT, en;q=0.5")
	f.Add("zh-Hant-TW-x-private;q=0.123, *;q=0")
	r := newRoom(f, Options{Languages: map[string]Texts{"pt-BR": {}}})
	f.Fuzz(func(t *testing.T, accept string) {
		p := r.language([]string{accept})
		if p.lang != "en" && !strings.Contains(strings.ToLower(accept), strings.ToLower(p.lang)) {
			t.Errorf("%q: %s", accept, p.lang)
		}
	})
}
