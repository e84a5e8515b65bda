package otlp

import (
	"regexp"
	"strings"
	"testing"
)

const (
	exampleTrace  = "4bf92f3577b34da6a3ce929d0e0e4736"
	exampleSpan   = "00f067aa0ba902b7"
	exampleParent = "00-" + exampleTrace + "-" + exampleSpan + "-01"
)

// The cases of W3C Trace Context, section 3.2, and what its test suite tries.
func TestParseContext(t *testing.T) {
	for _, c := range []struct {
		text        string
		ok, sampled bool
	}{
		{exampleParent, true, true},
		{"00-" + exampleTrace + "-" + exampleSpan + "-00", true, false},
		{"00-" + exampleTrace + "-" + exampleSpan + "-ff", true, true},
		{"00-" + exampleTrace + "-" + exampleSpan + "-02", true, false},
		{"cc-" + exampleTrace + "-" + exampleSpan + "-01", true, true},
		{"cc-" + exampleTrace + "-" + exampleSpan + "-01-more", true, true},
		{"", false, false},
		{exampleParent + "-", false, false},
		{exampleParent + " ", false, false},
		{"cc-" + exampleTrace + "-" + exampleSpan + "-01.more", false, false},
		{"ff-" + exampleTrace + "-" + exampleSpan + "-01", false, false},
		{strings.ToUpper(exampleParent), false, false},
		{"00-" + strings.Repeat("0", 32) + "-" + exampleSpan + "-01", false, false},
		{"00-" + exampleTrace + "-" + strings.Repeat("0", 16) + "-01", false, false},
		{"00-" + exampleTrace + "_" + exampleSpan + "-01", false, false},
		{"00-" + exampleTrace + "-" + exampleSpan + "-0g", false, false},
		{"00-" + exampleTrace[1:] + "-" + exampleSpan + "-011", false, false},
	} {
		got, ok := ParseContext(c.text)
		if ok != c.ok || ok && got.Sampled != c.sampled {
			t.Errorf("%q: %v, sampled %v", c.text, ok, got.Sampled)
		}
		if c.text == exampleParent && got.String() != c.text {
			t.Errorf("%q is written as %q", c.text, got.String())
		}
	}
}

var (
	validParent = regexp.MustCompile(`^(00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}|` +
		`(0[1-9a-f]|[1-9a-e][0-9a-f]|f[0-9a-e])-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-(?s:.*))?)$`)
	zeroIDs = regexp.MustCompile(`^..-(0{32}-|.{32}-0{16}-)`)
)

func FuzzParseContext(f *testing.F) {
	for _, text := range []string{exampleParent, "cc" + exampleParent[2:] + "-more", "ff" + exampleParent[2:],
		"00-" + strings.Repeat("0", 32) + exampleParent[35:],
		"00-" + exampleTrace + "-" + strings.Repeat("0", 16) + "-00"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, ok := ParseContext(text)
		if want := validParent.MatchString(text) && !zeroIDs.MatchString(text); ok != want {
			t.Fatalf("%q: %v, want %v", text, ok, want)
		}
		if ok && c.String()[2:53] != text[2:53] {
			t.Fatalf("%q is written as %q", text, c.String())
		}
		if again, fine := ParseContext(c.String()); ok && (!fine || again != c) {
			t.Fatalf("%q: read again: %v", text, again)
		}
	})
}
