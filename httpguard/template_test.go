package httpguard

import (
	"encoding/json"
	"html"
	"net/url"
	"strings"
	"testing"

	"github.com/dunglas/httpsfv"
)

// Values cannot break out of their place in a template.
func FuzzEscapes(f *testing.F) {
	for _, s := range []string{"", "plain", `"'<>&\`, "a\r\nSet-Cookie: x", "ü漢\xff\x00", "100% ;,"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if escaped := string(appendHTML(nil, s)); strings.ContainsAny(escaped, "<>\"'\x00") ||
			html.UnescapeString(escaped) != strings.ReplaceAll(s, "\x00", "\uFFFD") {
			t.Errorf("HTML: %q becomes %q", s, escaped)
		}
		if quoted := appendJSON(nil, s); !json.Valid(quoted) {
			t.Errorf("JSON: %q becomes %s", s, quoted)
		}
		percent := string(appendPercent(nil, s, ""))
		if back, err := url.PathUnescape(percent); err != nil || back != s ||
			strings.ContainsAny(percent, "/?#&=;+ \r\n") {
			t.Errorf("URL: %q becomes %q", s, percent)
		}
		if line := oneLine(s); strings.ContainsAny(line, "\r\n\x00\x1b") {
			t.Errorf("line: %q becomes %q", s, line)
		}
		item, err := httpsfv.UnmarshalItem([]string{string(appendSFString(nil, s))})
		if err != nil {
			t.Fatalf("structured field: %q becomes %s: %v", s, appendSFString(nil, s), err)
		}
		name := item.Value.(string)
		if name != s {
			if back, err := url.PathUnescape(name); err != nil || back != s {
				t.Errorf("structured field: %q becomes %q", s, name)
			}
		}
	})
}

func FuzzTemplate(f *testing.F) {
	f.Add("wait {wait}{", "{rule}")
	f.Add(`{"a":"{id}{client}"}`, "x")
	f.Add("<p>{contact}", "{until")
	f.Fuzz(func(t *testing.T, text, name string) {
		tmpl := parseTemplate(text)
		var back strings.Builder
		for i, s := range tmpl {
			if i%2 == 1 {
				s = "{" + s + "}"
			}
			back.WriteString(s)
		}
		if back.String() != text {
			t.Errorf("%q came back as %q", text, back.String())
		}
		f := refusal{answers: &answers{contact: name},
			gist: gist{ruleAnswer: &ruleAnswer{name: name}, wait: 7, id: "0123456789"}}
		if tmpl.kind() == jsonBody && !json.Valid(f.appendTemplate(nil, tmpl, jsonBody)) {
			t.Errorf("%q filled with %q is not JSON", text, name)
		}
		if location := f.appendLocation(nil, tmpl); strings.ContainsAny(string(location), "\r\n") {
			t.Errorf("%q ends its header", location)
		}
	})
}
