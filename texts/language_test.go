package texts

import (
	"strings"
	"testing"
)

func TestLanguageIsLookedUp(t *testing.T) {
	s := newSet(t, map[string]Texts{"pt-BR": {Busy: "x"}, "ar": {}, "zh-Hant": {}, "az-Arab": {}})
	choose := func(accept ...string) Language { return s.Languages()[s.Choose(accept)] }
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
		if got := choose(test.accept).Tag; got != test.want {
			t.Errorf("%q: %s, want %s", test.accept, got, test.want)
		}
	}
	if got := choose("nl", "fr").Tag; got != "fr" {
		t.Errorf("two lines: %s", got)
	}
	for tag, want := range map[string]string{"ar": "rtl", "az-Arab": "rtl", "de": "ltr"} {
		if l := choose(tag); l.Dir != want || l.Header[0] != tag {
			t.Errorf("%s: %s %v", tag, l.Dir, l.Header)
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
	s := newSet(f, map[string]Texts{"pt-BR": {}})
	f.Fuzz(func(t *testing.T, accept string) {
		tag := s.Languages()[s.Choose([]string{accept})].Tag
		if tag != "en" && !strings.Contains(strings.ToLower(accept), strings.ToLower(tag)) {
			t.Errorf("%q: %s", accept, tag)
		}
	})
}
