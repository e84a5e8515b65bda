package journal

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestClientTextIsCutAndEscaped(t *testing.T) {
	long := strings.Repeat("x", 511)
	for _, test := range []struct{ in, want string }{
		{`a"b\c`, `"a\"b\\c"`},
		{"a\nb\x1b[31m\x7f", `"a\u000ab\u001b[31m\u007f"`},
		// direction marks, zero width, line ends
		{"a\u202eb\u2066c\u200bd\u0085\u2028\ufeff", `"a\u202eb\u2066c\u200bd\u0085\u2028\ufeff"`},
		{"\U000E0041", `"\udb40\udc41"`}, // an invisible tag
		{"Käse 漢 🧀", `"Käse 漢 🧀"`},
		{"a\xffb", `"a` + "\uFFFD" + `b"`},
		{long + "yy", `"` + long + `y…"`},
		{long + "ä", `"` + long + `…"`}, // never a part of a character
		{strings.Repeat("\xbf", 600), `"` + strings.Repeat("\uFFFD", 512) + `…"`},
	} {
		if got := string(appendText(nil, test.in)); got != test.want {
			t.Errorf("%q becomes %s, want %s", test.in, got, test.want)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add("/wp-login.php")
	f.Add("a\x00\u202e\xf0\x9f")
	f.Add(strings.Repeat("ä", 300))
	f.Fuzz(func(t *testing.T, s string) {
		b := appendText(nil, s)
		var back string
		if err := json.Unmarshal(b, &back); err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		if len(s) <= maxText && utf8.ValidString(s) && back != s {
			t.Errorf("%q was decoded as %q", s, back)
		}
		for _, r := range string(b) {
			if !unicode.IsGraphic(r) || unicode.Is(unicode.Bidi_Control, r) {
				t.Errorf("%q holds %U", b, r)
			}
		}
		if len(b) > 6*maxText+len(`"…"`) {
			t.Errorf("%d bytes became %d", len(s), len(b))
		}
	})
}

// For any data of clients, an entry is one line: of JSON, or of text in which only
// quoted values can look like a field.
func FuzzLine(f *testing.F) {
	f.Add("GET", "example.org", "/a b", "a=b", "curl\n/8")
	f.Add("\"", "\\", "a\" rule=x", "\u2067", "\xff")
	f.Fuzz(func(t *testing.T, method, host, path, query, agent string) {
		e := with(func(e *Entry) { e.Method, e.Host, e.Path, e.Query, e.UserAgent = method, host, path, query, agent })
		line := layout{}.entry(nil, new(stamps), &e, true, 0)
		var fields map[string]any
		if err := json.Unmarshal(line, &fields); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if fields["rule"] != e.Rule || fields["action"] != e.Action || fields["id"] != e.ID {
			t.Errorf("%s", line)
		}
		text := string(layout{text: true}.entry(nil, new(stamps), &e, true, 0))
		for _, l := range []string{string(line), text} {
			if strings.IndexFunc(l, func(r rune) bool { return !unicode.IsGraphic(r) }) != len(l)-1 {
				t.Errorf("not one line of visible characters: %q", l)
			}
		}
		names := ""
		for rest := text[strings.IndexByte(text, ' '):]; rest != "\n"; {
			name, after, _ := strings.Cut(rest[1:], "=")
			names += name + " "
			if rest = after; rest[0] != '"' {
				rest = rest[strings.IndexAny(rest, " \n"):]
				continue
			}
			end := 1
			for ; rest[end] != '"'; end++ {
				if rest[end] == '\\' {
					end++
				}
			}
			rest = rest[end+1:]
		}
		want := "client method host path query user_agent cookies rule action dry_run status retry_after resource used allowed load id "
		if query == "" {
			want = strings.Replace(want, "query ", "", 1)
		}
		if names != want {
			t.Errorf("fields %s of %s", names, text)
		}
	})
}
