package sessions

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestSetCookie(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		line, path string
		secure     bool
		want       cookie
		ok         bool
	}{
		{"a=b", "/", false, cookie{name: "a", value: "b", path: "/"}, true},
		{"a = b ; Path = /", "/x", false, cookie{name: "a", value: "b", path: "/"}, true},
		{"a=b", "/x", false, cookie{name: "a", value: "b", path: "/"}, true},
		{"a=b", "/x/y/z", false, cookie{name: "a", value: "b", path: "/x/y"}, true},
		{"a=b", "/x/", false, cookie{name: "a", value: "b", path: "/x"}, true},
		{"a=b", "*", false, cookie{name: "a", value: "b", path: "/"}, true},
		{"a=b; Path=", "/x/y", false, cookie{name: "a", value: "b", path: "/x"}, true},
		{"a=b; Path=x", "/x/y", false, cookie{name: "a", value: "b", path: "/x"}, true},
		{"a=b; path=/shop; HttpOnly; SameSite=Strict; Domain=.example.org", "/", false,
			cookie{name: "a", value: "b", path: "/shop"}, true},
		{"a=b; Secure", "/", true, cookie{name: "a", value: "b", path: "/", secure: true}, true},
		// the site uses TLS that ends in front of fairshare
		{"a=b; Secure", "/", false, cookie{name: "a", value: "b", path: "/"}, true},
		{`a="b c"`, "/", false, cookie{name: "a", value: `"b c"`, path: "/"}, true},
		{"a=b; Max-Age=60; Expires=Fri, 20 Nov 2026 11:00:00 GMT", "/", false,
			cookie{name: "a", value: "b", path: "/", expires: now.Add(time.Minute)}, true},
		{"a=b; Max-Age=0", "/", false, cookie{name: "a", value: "b", path: "/", expires: now}, true},
		{"a=b; Max-Age=-5; Expires=Fri, 20 Nov 2026 13:00:00 GMT", "/", false,
			cookie{name: "a", value: "b", path: "/", expires: now}, true},
		{"a=b; Max-Age=99999999999", "/", false, cookie{name: "a", value: "b", path: "/",
			expires: now.Add(400 * 24 * time.Hour)}, true},
		{"a=deleted; expires=Thu, 01-Jan-1970 00:00:01 GMT", "/", false,
			cookie{name: "a", value: "deleted", path: "/", expires: time.Unix(1, 0).UTC()}, true},
		{"a=", "/", false, cookie{name: "a", path: "/", expires: now}, true},
		{"a=; Max-Age=60", "/", false, cookie{name: "a", path: "/", expires: now.Add(time.Minute)}, false},
		{"a", "/", false, cookie{}, false},
		{"=b", "/", false, cookie{}, false},
		{"", "/", false, cookie{}, false},
		{"a b=c", "/", false, cookie{}, false},
		{"a=b\x00c", "/", false, cookie{}, false},
		{`a=b\c`, "/", false, cookie{}, false},
	} {
		got, ok := parseSetCookie(test.line, test.path, test.secure, now)
		if test.line == "a=; Max-Age=60" { // a cookie without a value is never a session
			if !ok || !got.gone(now) {
				t.Errorf("%q: %+v, want one that is gone", test.line, got)
			}
			continue
		}
		if ok != test.ok || got != test.want {
			t.Errorf("%q for %s: %+v %v, want %+v %v", test.line, test.path, got, ok, test.want, test.ok)
		}
	}
}

func TestPathsMatch(t *testing.T) { // RFC 6265 §5.1.4
	for _, test := range []struct {
		cookie, path string
		want         bool
	}{
		{"/", "/", true}, {"/", "/a", true}, {"/a", "/a", true}, {"/a", "/a/", true}, {"/a", "/a/b", true},
		{"/a/", "/a/b", true},
		{"/a", "/", false}, {"/a", "/ab", false}, {"/a/", "/a", false}, {"/a", "/A", false}, {"/a", "/%61", false},
		{"/", "*", false},
	} {
		c := cookie{path: test.cookie}
		if got := c.applies(test.path, false); got != test.want {
			t.Errorf("%s with a request for %s: %v, want %v", test.cookie, test.path, got, test.want)
		}
	}
	c := cookie{path: "/", secure: true}
	if c.applies("/", false) || !c.applies("/", true) {
		t.Error("a Secure cookie is sent without TLS, or not sent with TLS")
	}
}

func TestNames(t *testing.T) {
	n := newNames([]string{"JSESSIONID", "ASPSESSIONID*", "*_session", "a*b*c"})
	for name, want := range map[string]bool{
		"JSESSIONID": true, "jsessionid": false, "XJSESSIONID": false, "JSESSIONID2": false, "ASPSESSIONID": true,
		"ASPSESSIONIDQQ": true,
		"shop_session":   true, "_session": true, "_sessions": false, "abc": true, "a-b-c": true, "ab": false,
		"acb": false, "": false,
	} {
		if got := n.match(name); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

func TestParameters(t *testing.T) {
	for target, want := range map[string]string{
		"/":                            "",
		"/?a":                          "",
		"/?a=b&c=d;e=f&=g":             "a:b c:d e:f :g",
		"/a;sid=1;t=2/b;u=3?v=4?w=5":   "sid:1 t:2 u:3 v:4?w=5",
		"http://x/a;b=c?%61=%62":       "b:c %61:%62",
		"/a=b":                         "",
		"/;;=;x=":                      ": x:",
		"/a;jsessionid=A.node1/b?q=;r": "jsessionid:A.node1 q:",
	} {
		var got []string
		parameters(target, func(name, value string) { got = append(got, name+":"+value) })
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%q: %q, want %q", target, s, want)
		}
	}
}

// For any Set-Cookie, the Cookie header is one that net/http sends, and it reads as the value that
// was set.
func FuzzSetCookie(f *testing.F) {
	for _, s := range []string{"a=b; Path=/x; Max-Age=3; Secure", `a="b c"; expires=Thu, 01-Jan-1970 00:00:01 GMT`,
		"a=%41; path=/", "a=;;;", "\x00", "a=b,c=d"} {
		f.Add(s, "/x/y")
	}
	f.Add("a= b ", "/")
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, line, path string) {
		c, ok := parseSetCookie(line, path, true, now)
		if !ok {
			return
		}
		if c.path == "" || c.path[0] != '/' || c.name == "" || c.value == "" && !c.gone(now) {
			t.Fatalf("%q: %+v", line, c)
		}
		text := header([]cookie{c, c})
		for i := range len(text) {
			if text[i] < ' ' || text[i] >= 0x7F {
				t.Fatalf("%q: the header %q", line, text)
			}
		}
		var n int
		pairs(text, func(name, value string) {
			if n++; name != c.name || value != c.value {
				t.Errorf("%q: %q reads as %q, %q", line, text, name, value)
			}
		})
		read, err := http.ParseCookie(text)
		if n != 2 || err != nil && c.value != "" || err == nil && (len(read) != 2 || read[0].Name != c.name) {
			t.Errorf("%q: %q has %d pairs; %v %v", line, text, n, read, err)
		}
		if markOf(c.name, c.value) != markOf(c.name, unquote(c.value)) && !strings.Contains(unquote(c.value), "%") &&
			!strings.HasPrefix(unquote(c.value), `"`) {
			t.Errorf("%q: the mark of %q is not that of %q", line, c.value, unquote(c.value))
		}
	})
}

// Any request is parsed without an error.
func FuzzRequest(f *testing.F) {
	f.Add("/a;jsessionid=1/b?c=d&e=%zz", "a=b; c", "X-Auth-Token")
	f.Add("http://x?y", `="a"; ;;=`, "Cookie")
	f.Fuzz(func(t *testing.T, target, cookies, name string) {
		r := &http.Request{Method: "GET", RequestURI: target, Host: target,
			Header: http.Header{"Cookie": {cookies}, name: {cookies}}}
		if target == "" {
			return
		}
		s := &setup{names: newNames([]string{"a*b", "*"}), table: newTable()}
		s.endBrought(r, key{})
		if !usesOwnSession(r) && !noCookies(r.Header["Cookie"]) {
			t.Errorf("%q is not seen as the client's own", r.Header)
		}
		bypasses(r)
		if p := targetPath(r); strings.Contains(p, "?") {
			t.Errorf("%q: the path %q", target, p)
		}
		if name, ok := site(r); ok && (name == "" || len(name) > 2*longestHost) {
			t.Errorf("%q: the site %q", target, name)
		}
		parameters(target, func(_, value string) {
			if len(value) >= uniqueLength && !echoes(r, cookie{name: "x", value: value}) &&
				!strings.ContainsAny(value, `"%`) {
				t.Errorf("%q: %q is not found again", target, value)
			}
		})
	})
}
