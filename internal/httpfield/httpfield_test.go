package httpfield

import (
	"net/textproto"
	"testing"

	"golang.org/x/net/http/httpguts"
)

// Every byte alone is classified as by golang.org/x/net.
func TestBytesOfTokensAndValues(t *testing.T) {
	for c := range 256 {
		one := string([]byte{byte(c)})
		if got, want := IsToken(one), httpguts.ValidHeaderFieldName(one); got != want {
			t.Errorf("IsToken(%q) = %v", one, got)
		}
		if got, want := IsValue([]byte(one)), httpguts.ValidHeaderFieldValue(one); got != want {
			t.Errorf("IsValue(%q) = %v", one, got)
		}
	}
	if IsToken("") || !IsValue("") || IsToken("a b") || IsValue("a\nb") {
		t.Error("longer texts are wrong")
	}
}

func TestCanonicalNames(t *testing.T) {
	for _, name := range []string{"A", "a", "Ab", "AB", "A-B", "A-b", "a-B", "Www-Authenticate", "ETag", "X-1a", "X--a",
		"_a", "-", "1"} {
		if got, want := IsCanonical(name), textproto.CanonicalMIMEHeaderKey(name) == name; got != want {
			t.Errorf("IsCanonical(%q) = %v", name, got)
		}
	}
}

// AppendValid writes what Append does for valid fields, and only Append changes or omits others.
func TestAppend(t *testing.T) {
	for _, value := range []string{"", "b", " b\t", "b  c", "\t"} {
		want := "A: " + textproto.TrimString(value) + "\r\n"
		for i, got := range [][]byte{Append([]byte("x"), "A", value), AppendValid([]byte("x"), "A", []byte(value))} {
			if string(got) != "x"+want {
				t.Errorf("%d: %q is appended as %q", i, value, got)
			}
		}
	}
	got := AppendAll(nil, "A", []string{"b\r\nC: d", "\r\n", "\n\r\nb\r\n"})
	if got = AppendAll(got, "B C", []string{"x"}); string(got) != "A: b  C: d\r\nA: \r\nA: b\r\n" {
		t.Errorf("invalid fields are appended as %q", got)
	}
}

func TestHasToken(t *testing.T) {
	for list, want := range map[string]bool{"close": true, "a, Close\t,b": true, "closed": false, "": false,
		"a;close": false} {
		if HasToken(list, "close") != want {
			t.Errorf("%q: %v", list, !want)
		}
	}
}
