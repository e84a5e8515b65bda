package proxy

import (
	"net/http/httptest"
	"strings"
	"testing"
)

func TestHosts(t *testing.T) {
	list := newHosts([]string{"Site.example", "*.Example.org", "dot.example.", "[::1]", "2001:DB8:0::2", "192.0.2.1"})
	for host, want := range map[string]bool{
		"site.example":                 true,
		"SITE.Example":                 true,
		"site.example.":                true,
		"site.example:8443":            true,
		"site.example.:8443":           true,
		"site.example:":                true,
		"dot.example":                  true,
		"www.example.org":              true,
		"a.b.EXAMPLE.org.:1":           true,
		"[::1]":                        true,
		"[0:0::1]:80":                  true,
		"[2001:db8::2]":                true,
		"192.0.2.1:80":                 true,
		"":                             false,
		".":                            false,
		":80":                          false,
		"example.org":                  false, // is not below itself
		".example.org":                 false,
		"evilexample.org":              false,
		"www.example.org.evil.example": false,
		"site.example..":               false,
		"site.example:80:80":           false,
		"site.example:evil.example":    false,
		"site.example:80@evil.example": false,
		"evil.example,site.example":    false,
		"www.site.example":             false,
		"::1":                          false, // not without brackets
		"[::1":                         false,
		"[::1]evil.example":            false,
		"[::1]:x":                      false,
		"[site.example]":               false,
		"[192.0.2.1]":                  false,
		strings.Repeat("a.", 200) + "example.org": false, // no name is as long
	} {
		if got := list.have(host); got != want {
			t.Errorf("have(%q) = %v, want %v", host, got, want)
		}
	}
}

func TestOtherHostsAreMisdirected(t *testing.T) {
	mirror := httptest.NewServer(nil)
	defer mirror.Close()
	for _, test := range []struct {
		name  string
		hosts []string
		host  string
		want  int
	}{
		{"any host", nil, "evil.example", 404},
		{"no host, any will do", nil, "", 404},
		{"the site's", []string{"site.example"}, "site.example:80", 404},
		{"another", []string{"site.example"}, "evil.example", 421},
		{"none", []string{"site.example"}, "", 421},
		{"an empty list", []string{}, "site.example", 421},
		{"none that is one", []string{"site.example"}, "site.example/", 400},
	} {
		u, err := ParseUpstream(mirror.URL)
		if err != nil {
			t.Fatal(err)
		}
		p := New(Config{Upstream: u, Hosts: test.hosts})
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = test.host
		w := httptest.NewRecorder()
		p.ServeHTTP(w, r)
		if w.Code != test.want || test.want == 421 && !strings.Contains(w.Body.String(), "<h1>Misdirected Request</h1>") {
			t.Errorf("%s: %d %s, want %d", test.name, w.Code, w.Body, test.want)
		}
		p.Close()
	}
}

// A host that is known is known however it is written, and only its own port
// and final dot are passed over.
func FuzzHostName(f *testing.F) {
	for _, s := range []string{"site.example:80", "[::1]:80", "[::ffff:1.2.3.4]", "a.:1", "a..", "[", "]", ":"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, host string) {
		name, ok := hostName(host)
		if !ok || !validHost(host) {
			return
		}
		if name == "" || strings.ToLower(name) != name {
			t.Errorf("%q is %q", host, name)
		}
		plain := name
		if strings.Contains(name, ":") {
			plain = "[" + name + "]"
		} else if !strings.HasPrefix(strings.ToLower(host), name) {
			t.Errorf("%q is %q", host, name)
		}
		for _, same := range []string{plain, strings.ToUpper(plain), plain + ":80"} {
			if again, ok := hostName(same); !ok || again != name {
				t.Errorf("%q is %q, %v; %q is %q", same, again, ok, host, name)
			}
		}
	})
}
