package proxy

import (
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

func TestHosts(t *testing.T) {
	list := []string{"Site.example", "*.Example.org", "dot.example.", "[::1]", "2001:DB8:0::2", "192.0.2.1",
		"*.deep.below.example", "xn--bcher-kva.example"}
	label := strings.Repeat("a", 63)
	long := strings.Repeat(label+".", 3) + strings.Repeat("a", 253-3*64-len(".example.org")) + ".example.org"
	for host, want := range map[string]int{
		"site.example":                    200,
		"SITE.Example":                    200,
		"site.example.":                   200,
		"site.example:8443":               200,
		"site.example:65535":              200,
		"site.example.:8443":              200,
		"site.example:":                   200,
		"dot.example":                     200,
		"www.example.org":                 200,
		"a.b.EXAMPLE.org.:1":              200,
		"my_shop.example.org":             200,
		"_acme.example.org":               200,
		"1.example.org":                   200,
		"a--b.example.org":                200,
		"xn--bcher-kva.example":           200,
		"XN--BCHER-KVA.example":           200,
		"xn--p1ai.example.org":            200,
		label + ".example.org":            200,
		long:                              200,
		"[::1]":                           200,
		"[0:0::1]:80":                     200,
		"[2001:db8::2]":                   200,
		"192.0.2.1:80":                    200,
		"192.0.2.1.":                      200,
		"example.org":                     421, // a wildcard does not include the domain itself
		"evilexample.org":                 421,
		"www.example.org.evil.example":    421,
		"www.site.example":                421,
		"below.example":                   421,
		"deep.below.example":              421,
		"evildeep.below.example":          421,
		"b.c.xn--bcher-kva.example":       421,
		"localhost":                       421,
		"192.0.2.2":                       421,
		"[2001:db8::3]":                   421,
		"":                                421,
		".":                               400,
		"..":                              400,
		":80":                             400,
		".example.org":                    400,
		"..example.org":                   400,
		"...example.org":                  400,
		"a..example.org":                  400,
		"a.b..example.org":                400,
		"www.example.org..":               400,
		"site.example..":                  400,
		"evil;.example.org":               400,
		"evil'.example.org":               400,
		"evil\".example.org":              400,
		"evil,.example.org":               400,
		"evil.example,www.example.org":    400,
		"evil$.example.org":               400,
		"evil&.example.org":               400,
		"evil!.example.org":               400,
		"evil=.example.org":               400,
		"evil+.example.org":               400,
		"evil~.example.org":               400,
		"(evil).example.org":              400,
		"*.example.org":                   400,
		"[evil].example.org":              400,
		"evil%2f.example.org":             400,
		"evil%00.example.org":             400,
		"evil/.example.org":               400,
		"evil.example/.example.org":       400,
		"evil\\.example.org":              400,
		"evil@www.example.org":            400,
		"evil:80@www.example.org":         400,
		"evil.example:80.example.org":     400,
		"evil?.example.org":               400,
		"evil#.example.org":               400,
		"evil`.example.org":               400,
		"evil|.example.org":               400,
		"evil^.example.org":               400,
		"{evil}.example.org":              400,
		"<evil>.example.org":              400,
		"evil .example.org":               400,
		"evil\t.example.org":              400,
		"evil\n.example.org":              400,
		"evil\x00.example.org":            400,
		" www.example.org":                400,
		"www.example.org ":                400,
		"b\u00fccher.example.org":         400,
		"www.example\u3002org":            400, // browsers treat it as a dot
		"\u217d.example.org":              400,
		"-a.example.org":                  400,
		"a-.example.org":                  400,
		"-.example.org":                   400,
		"xn--.example.org":                400,
		label + "a.example.org":           400,
		"a" + long:                        400,
		strings.Repeat("a.", 200) + "org": 400,
		"site.example:80:80":              400,
		"site.example:evil.example":       400,
		"site.example:80@evil.example":    400,
		"site.example:-1":                 400,
		"site.example:+80":                400,
		"site.example: 80":                400,
		"site.example:0":                  400,
		"site.example:65536":              400,
		"site.example:000080":             400,
		"site.example:8_0":                400,
		"site.example:0x50":               400,
		"www.example.org.1":               400, // clients read it as an address
		"1":                               400,
		"127.1":                           400,
		"0x7f000001":                      400,
		"0x7f.0x0.0x0.0X1":                400,
		"2130706433":                      400,
		"192.0.2.256":                     400,
		"192.0.2.01":                      400,
		"192.0.2":                         400,
		"::1":                             400, // brackets are missing
		"[::1":                            400,
		"::1]":                            400,
		"[]":                              400,
		"[":                               400,
		"[::1]evil.example":               400,
		"[::1].example.org":               400,
		"[::1]:x":                         400,
		"[::1]:65536":                     400,
		"[fe80::1%25en0]":                 400,
		"[fe80::1%en0]":                   400,
		"[v1.a]":                          400,
		"[site.example]":                  400,
		"[192.0.2.1]":                     400,
	} {
		if got := HostStatus(list, host); got != want {
			t.Errorf("%q: %d, want %d", host, got, want)
		}
		if want == 421 {
			want = 200
		}
		if got := HostStatus(nil, host); got != want {
			t.Errorf("%q where any host is accepted: %d, want %d", host, got, want)
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
		{"no host, any host is accepted", nil, "", 404},
		{"the site's", []string{"site.example"}, "site.example:80", 404},
		{"another", []string{"site.example"}, "evil.example", 421},
		{"none", []string{"site.example"}, "", 421},
		{"an empty list", []string{}, "site.example", 421},
		{"a malformed host", []string{"site.example"}, "site.example/", 400},
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
		if w.Code != test.want || test.want == 421 && !strings.Contains(w.Body.String(),
			"<h1>Misdirected Request</h1>") {
			t.Errorf("%s: %d %s, want %d", test.name, w.Code, w.Body, test.want)
		}
		p.Close()
	}
}

// hostSyntax is a slow hostName without bounds of lengths and without numbers.
var hostSyntax = regexp.MustCompile(
	`^(?:[0-9A-Za-z_](?:[0-9A-Za-z_-]*[0-9A-Za-z_])?(?:\.[0-9A-Za-z_](?:[0-9A-Za-z_-]*[0-9A-Za-z_])?)*\.?|\[[0-9A-Fa-f:.]+\])(?::[0-9]*)?$`)

// Hosts have the syntax of hosts, and every spelling of a known host is accepted.
// Nothing else is, neither by a wildcard nor by a policy that accepts any host.
func FuzzHostName(f *testing.F) {
	for _, s := range []string{"site.example:80", "[::1]:80", "[::ffff:1.2.3.4]", "a.:1", "a..", "[", "]", ":",
		"..shop.example", "evil;.shop.example", "1.2.3.4", "0x1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, host string) {
		name, ok := hostName(host)
		if ok && !hostSyntax.MatchString(host) {
			t.Fatalf("%q is a host", host)
		}
		if below := host + ".shop.example"; HostStatus([]string{"*.shop.example"}, below) == 200 &&
			(!hostSyntax.MatchString(below) || len(below) > longestHost) {
			t.Errorf("%q is below shop.example", below)
		}
		if !ok {
			if status := HostStatus(nil, host); host != "" && status != 400 {
				t.Errorf("%q: %d", host, status)
			}
			return
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
		u, err := url.Parse("http://" + host + "/")
		if err != nil || u.User != nil || u.Path != "/" ||
			!strings.EqualFold(strings.TrimSuffix(u.Hostname(), "."), name) && !strings.Contains(name, ":") {
			t.Errorf("%q is another host in a URL: %v, %v", host, u, err)
		}
	})
}
