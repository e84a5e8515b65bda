package fairshare

import (
	"strings"
	"testing"
)

func TestPattern(t *testing.T) {
	for _, c := range []struct {
		kind patternKind
		text string
		yes  []string
		no   []string
	}{
		{glob, "/static/*", []string{"/static/", "/static/a/b.css"}, []string{"/static", "/Static/a", "/x/static/"}},
		{glob, "*.css", []string{".css", "/a/b.css"}, []string{"/a.css/", "/a.CSS"}},
		{glob, "/a*b*c", []string{"/abc", "/aXbYc", "/abcbc"}, []string{"/ac", "/acb", "/ab"}},
		{glob, "/aXa*aXa", []string{"/aXaaXa"}, []string{"/aXa"}}, // head and tail may not share
		{glob, "*", []string{"", "/x"}, nil},
		{glob, "/a", []string{"/a"}, []string{"/ab", "/"}},
		{glob, "**", []string{"", "x"}, nil},
		{glob, "re:^/a+$", []string{"/a", "/aaa"}, []string{"/A", "/ab"}},
		{glob, "re:b", []string{"/abc"}, []string{"/B"}},
		{globFold, "*.Example.org", []string{"a.example.org", "A.EXAMPLE.ORG", ".example.org"},
			[]string{"example.org", "a.example.org.evil"}},
		{globFold, "BÜCHER.example", []string{"bücher.example"}, []string{"xbücher.example"}},
		{equalFold, "get", []string{"GET", "get"}, []string{"", "GETS"}},
		{contains, "CURL/", []string{"curl/8.1", "libCurl/x"}, []string{"", "curl"}},
		{contains, "", []string{""}, []string{"x"}},
		{contains, "*", []string{"*/*"}, []string{"x", ""}}, // taken literally
		{contains, "a.c", []string{"xa.cx"}, []string{"abc"}},
		{contains, "Ärger", []string{"viel äRGER"}, []string{"arger"}},
		{anyValue, "*", []string{"", "x"}, nil},
	} {
		p, err := newPattern(c.text, c.kind)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range c.yes {
			if !p.match(s, lower(s)) {
				t.Errorf("%q does not fit %q", s, c.text)
			}
		}
		for _, s := range c.no {
			if p.match(s, lower(s)) {
				t.Errorf("%q fits %q", s, c.text)
			}
		}
	}
	if err := CheckPattern("re:("); err == nil || !strings.Contains(err.Error(), `regexp "("`) {
		t.Errorf("CheckPattern of an open group: %v", err)
	}
}

// The fast glob, alone and in a set, agrees with the obvious one.
func FuzzGlob(f *testing.F) {
	f.Add("/a*b*c", "/abXc")
	f.Add("*.css", "/a.css")
	f.Add("a**b", "ab")
	f.Add("*.", "a.")
	f.Add("*.a.b", "x.a.b")
	f.Add("*.css", "a.b.css")
	f.Add("*/b.php", "/a/b.php")
	f.Add("*.git/x", "/a.git/x")
	f.Add("*/", "/a/")
	f.Fuzz(func(t *testing.T, glob, s string) {
		if strings.HasPrefix(glob, regexpMark) || len(glob) > 20 || len(s) > 40 {
			return
		}
		p, err := newPattern(glob, 0)
		if err != nil {
			t.Fatal(err)
		}
		set, err := newPathSet([]string{glob}, false)
		if err != nil {
			t.Fatal(err)
		}
		want := obviousGlob(glob, s)
		if got, inSet := p.match(s, ""), set.match(nil, s); got != want || inSet != want {
			t.Errorf("%q fits %q: %v, in a set %v, want %v", s, glob, got, inSet, want)
		}
	})
}

func obviousGlob(glob, s string) bool {
	// fits[j]: the part of glob looked at so far fits s[:j].
	fits := make([]bool, len(s)+1)
	fits[0] = true
	for i := 0; i < len(glob); i++ {
		next := make([]bool, len(s)+1)
		for j := range fits {
			switch {
			case glob[i] == '*':
				next[j] = fits[j] || j > 0 && next[j-1]
			case j > 0:
				next[j] = fits[j-1] && s[j-1] == glob[i]
			}
		}
		fits = next
	}
	return fits[len(s)]
}

// A testHeader is a Header of one map.
type testHeader map[string][]string

func (h testHeader) Values(name string) []string { return h[name] }

func TestCookies(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"", ""},
		{"a=1; b=2", "a=1 b=2 "},
		{"a=1;b=2;", "a=1 b=2 "},
		{"a", ""}, // no pair
		{"=1", ""},
		{"a=", "a= "},
		{`a="x y"`, "a=x y "},
		{`a="`, ""},
		{"a b=1; c=3", "c=3 "}, // a name is a token
		{"a=1\x01; c=3", "c=3 "},
		{"a=ü", ""},
		{"a=b=c", "a=b=c "},
		{" ; ;; a=1 ", "a=1 "},
	} {
		var got strings.Builder
		cookies(testHeader{"Cookie": {c.line}}, func(name, value string) bool {
			got.WriteString(name + "=" + value + " ")
			return true
		})
		if has := hasPair(testHeader{"Cookie": {c.line}}); has != (c.want != "") {
			t.Errorf("%q has a pair: %v", c.line, has)
		}
		if got.String() != c.want {
			t.Errorf("cookies of %q: %q, want %q", c.line, got.String(), c.want)
		}
	}
	for line, want := range map[string]string{
		"b=1; a=2":                  "2",
		"a=2; a=2":                  "2",
		"a=2; b=1; a=3":             "", // a server may take either
		"a=%32":                     "2",
		"a=x%20y; a=x+y; a=\"x y\"": "x y",
		"b=2":                       "",
	} {
		if got := cookie(testHeader{"Cookie": {line}}, "a"); got != want {
			t.Errorf("cookie a of %q = %q, want %q", line, got, want)
		}
	}
	if got := cookie(nil, "a"); got != "" {
		t.Errorf("cookie without a header = %q", got)
	}
}

func TestAppendLower(t *testing.T) {
	var all []byte
	for c := range 256 {
		all = append(all, byte(c))
	}
	for begin := range 9 { // every place in a word
		for i, c := range appendLower(nil, string(all[begin:])) {
			want := all[begin+i]
			if want >= 'A' && want <= 'Z' {
				want += 'a' - 'A'
			}
			if c != want {
				t.Errorf("%q becomes %q, want %q", all[begin+i], c, want)
			}
		}
	}
}
