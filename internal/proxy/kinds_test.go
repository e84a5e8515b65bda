package proxy_test

import (
	"fmt"
	"log"
	"slices"
	"strings"
	"testing"

	"fairshare/internal/proxy"
)

// Values that a client tries to forge. None of them may reach the site.
const (
	forgedAddr = "203.0.113.66"
	forgedHost = "forged.example"
	forgedPath = "/forged-path"
	forgedVerb = "FORGED-METHOD"
)

// forgeable are headers from which some server, CDN or framework reads the client's
// address, the host, the path or the method.
var forgeable = map[string][]string{
	forgedAddr: {"X-Forwarded-For", "Forwarded-For", "X-Forwarded", "X-Forward-For", "X-Forward", "X-Forwarder-For",
		"X-Forwarded-By", "X-Forwarded-For-Original",
		"X-Forwarded-For-IP", "Forwarded-For-IP", "X-Forwarded-IP", "X-Forwarded-Client-IP",
		"X-Original-Forwarded-For", "X-Originally-Forwarded-For", "X-Envoy-Forwarded-For",
		"X-Real-IP", "Real-IP", "X-RealIP", "Client-IP", "X-Client-IP", "X-ClientIP", "True-Client-IP",
		"X-True-Client-IP", "X-True-IP", "X-Cluster-Client-IP", "Proxy-Client-IP",
		"WL-Proxy-Client-IP", "HTTP-Client-IP", "Fly-Client-IP", "Fastly-Client-IP", "Incap-Client-IP",
		"CF-Connecting-IP", "CF-Connecting-IPv6", "CF-Pseudo-IPv4",
		"DO-Connecting-IP", "X-Appengine-User-IP", "X-Appengine-Remote-Addr", "X-Envoy-External-Address",
		"X-Azure-ClientIP", "X-Azure-SocketIP", "X-Sucuri-ClientIP",
		"X-NF-Client-Connection-IP", "Ali-CDN-Real-IP", "Cdn-Src-Ip", "CloudFront-Viewer-Address",
		"X-Vercel-Forwarded-For", "X-Originating-IP", "X-Origin-IP",
		"X-Original-IP", "X-Remote-IP", "X-Remote-Addr", "X-Remote-Address", "X-Original-Remote-Addr",
		"X-Remote-Host", "X-ProxyUser-Ip", "X-Device-IP", "X-IP",
		"X-Source-IP", "X-Visitor-IP", "X-Client-Addr", "X-Coming-From", "X-Custom-IP-Authorization"},
	"for=" + forgedAddr: {"Forwarded", "X-Forwarded"},
	forgedHost: {"X-Forwarded-Host", "X-Host", "X-Forwarded-Server", "X-Original-Host", "X-Original-Forwarded-Host",
		"X-HTTP-Host-Override", "X-Host-Override", "X-Envoy-Original-Host",
		"X-Rewrite-Host", "X-Real-Host", "Proxy-Host", "X-Proxy-Host"},
	"site.example, " + forgedHost: {"X-Forwarded-Host", "X-Host"},
	"host=" + forgedHost:          {"Forwarded"},
	forgedPath: {"X-Original-URL", "X-Rewrite-URL", "X-Original-URI", "X-Rewrite-URI", "X-Original-Path",
		"X-Rewrite-Path", "X-Override-URL", "X-Envoy-Original-Path", "X-MS-Original-URL",
		"X-WAWS-Unencoded-URL", "X-Forwarded-Uri", "X-Forwarded-Path", "X-Script-Name", "Request-Uri", "X-Proxy-Url",
		"X-HTTP-DestinationURL", "X-HTTP-Path-Override", "X-Matched-Path",
		"X-Invoke-Path", "X-Middleware-Rewrite", "X-Middleware-Subrequest"},
	forgedVerb: {"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "X-Original-Method",
		"X-Forwarded-Method", "X-HTTP-Verb-Override", "X-HTTP-Verb"},
}

// spellings are how a client may write a header's name.
var spellings = map[string]func(string) string{
	"unchanged":      func(s string) string { return s },
	"lower case":     strings.ToLower,
	"upper case":     strings.ToUpper,
	"underscores":    func(s string) string { return strings.ReplaceAll(s, "-", "_") },
	"one underscore": func(s string) string { return strings.Replace(s, "-", "_", 1) },
	"last underscore": func(s string) string {
		if i := strings.LastIndexByte(s, '-'); i >= 0 {
			return s[:i] + "_" + s[i+1:]
		}
		return s
	},
	"lower, underscores": func(s string) string { return strings.ToLower(strings.ReplaceAll(s, "-", "_")) },
	"dots":               func(s string) string { return strings.ReplaceAll(s, "-", ".") },
}

// A client cannot choose its address, or the host, path or method that the site uses.
// This holds for every kind of peer and every spelling of a header.
func TestForgedHeadersAreRemoved(t *testing.T) {
	upstream := mirror(t)
	hosts := []string{"site.example", "*.site.example"}
	fronts := []struct {
		name, header string
		real         string // what the trusted proxy sends, after the client's own
		addr         string
		want         []string // lines, in addition to those of every case
	}{
		{"a untrusted", "X-Forwarded-For", "", "127.0.0.1", []string{"X-Forwarded-For: 127.0.0.1"}},
		{"behind a proxy that appends", "X-Forwarded-For", "X-Forwarded-For: " + forgedAddr + ", 192.0.2.1\n",
			"192.0.2.1", []string{"X-Forwarded-For: 192.0.2.1, 127.0.0.1"}},
		{"behind a proxy that appends a line", "X-Forwarded-For",
			"X-Forwarded-For: " + forgedAddr + "\nX-Forwarded-For: 192.0.2.1\n", "192.0.2.1",
			[]string{"X-Forwarded-For: 192.0.2.1, 127.0.0.1"}},
		{"behind two proxies", "X-Forwarded-For", "X-Forwarded-For: @, " + forgedAddr +
			", [2001:db8::1]:80, 10.0.0.1\n", "2001:db8::1",
			[]string{"X-Forwarded-For: 2001:db8::1, 10.0.0.1, 127.0.0.1"}},
		{"behind a CDN", "CF-Connecting-IP", "CF-Connecting-IP: 192.0.2.1\n", "192.0.2.1",
			[]string{"X-Forwarded-For: 192.0.2.1, 127.0.0.1", "Cf-Connecting-Ip: 192.0.2.1"}},
		{"behind a proxy that sends Forwarded", "Forwarded",
			"Forwarded: for=" + forgedAddr + ";host=" + forgedHost +
				", for=192.0.2.1;host=www.site.example;proto=https\n", "192.0.2.1",
			[]string{"X-Forwarded-For: 192.0.2.1, 127.0.0.1",
				`Forwarded: for=192.0.2.1;host="www.site.example";proto=https, for=127.0.0.1`}},
	}
	for _, front := range fronts {
		for _, keep := range []bool{false, true} {
			c := proxy.Config{Header: front.header, Hosts: hosts, KeepUnderscores: keep, Fields: 300}
			addr := serveTrusting(t, upstream, c)
			if front.real == "" {
				addr = serve(t, upstream, c)
			}
			for spelling, spell := range spellings {
				for _, more := range []string{"", "twice", "Connection"} {
					for value, names := range forgeable {
						var sent, listed strings.Builder
						for _, name := range names {
							if strings.EqualFold(name, front.header) && front.real != "" {
								continue // real contains it, as the proxy sends it
							}
							name = spell(name)
							fmt.Fprintf(&sent, "%s: %s\n", name, value)
							if more == "twice" {
								fmt.Fprintf(&sent, "%s: %s\n", name, value)
							}
							fmt.Fprintf(&listed, "%s, ", name)
						}
						if more == "Connection" {
							fmt.Fprintf(&sent,
								"Connection: %sX-Forwarded-For, X-Forwarded-Host, X-Forwarded-Proto, Host, Fairshare-Client\n", listed.String())
						}
						what := fmt.Sprintf("%s, %s, %s, underscores kept %v", front.name, spelling, more, keep)
						resp, head := exchange(t, addr, "GET /a HTTP/1.1\nHost: site.example\n"+sent.String()+
							front.real+"\n")
						lines := strings.Split(head, "\r\n")
						if resp.StatusCode != 200 || lines[0] != "GET /a HTTP/1.1" ||
							count(lines, "Host: site.example") != 1 {
							t.Fatalf("%s: %d %q", what, resp.StatusCode, head)
						}
						for _, line := range lines {
							if lower := strings.ToLower(line); strings.Contains(lower, "forged") ||
								strings.Contains(lower, forgedAddr) {
								t.Errorf("%s: the site gets %q", what, line)
							}
						}
						for _, want := range append(front.want, "Fairshare-Client: "+front.addr) {
							if count(lines, want) != 1 {
								t.Errorf("%s: the site does not get %q but %q", what, want, lines)
							}
						}
						if prefix := "X-Forwarded-Host: "; !slices.ContainsFunc(lines,
							func(s string) bool {
								return strings.HasPrefix(s, prefix) &&
									strings.HasSuffix(s, "site.example")
							}) {
							t.Errorf("%s: X-Forwarded-Host in %q", what, lines)
						}
					}
				}
			}
		}
	}
}

// From a trusted proxy the site gets only valid values: the judged address, its own
// hosts, and known names of the scheme, port and prefix.
func TestHeadersOfATrustedProxy(t *testing.T) {
	upstream := mirror(t)
	const real = "X-Forwarded-For: 192.0.2.1\n"
	listed := serveTrusting(t, upstream, proxy.Config{Hosts: []string{"site.example", "*.site.example",
		"[2001:db8::1]"}})
	open := serveTrusting(t, upstream, proxy.Config{})
	untrusted := serve(t, upstream, proxy.Config{})
	for _, test := range []struct {
		sent   string
		listed string // the line that the site gets if the policy names hosts: "-" as sent, "" none
		open   string // the same if the policy names none
	}{
		{"X-Real-Ip: 192.0.2.1", "-", "-"},
		{"X-Real-Ip: 198.51.100.1", "X-Real-Ip: 192.0.2.1", "X-Real-Ip: 192.0.2.1"},
		{"True-Client-Ip: nonsense", "True-Client-Ip: 192.0.2.1", "True-Client-Ip: 192.0.2.1"},
		{"X-Envoy-External-Address: 198.51.100.1", "X-Envoy-External-Address: 192.0.2.1",
			"X-Envoy-External-Address: 192.0.2.1"},
		{"Cloudfront-Viewer-Address: 192.0.2.1:80", "", ""},

		{"X-Forwarded-Host: www.site.example", "-", "-"},
		{"X-Forwarded-Host: WWW.Site.example.:8443", "-", "-"},
		{"X-Forwarded-Host: [2001:db8::1]:80", "-", "-"},
		{"X-Forwarded-Host: evil.example, www.site.example", "X-Forwarded-Host: www.site.example",
			"X-Forwarded-Host: www.site.example"},
		// without hosts any host of the proxy is accepted
		{"X-Forwarded-Host: evil.example", "X-Forwarded-Host: site.example", "-"},
		{"X-Forwarded-Host: www.site.example, evil.example", "X-Forwarded-Host: site.example",
			"X-Forwarded-Host: evil.example"},
		{"X-Forwarded-Host: ..site.example", "X-Forwarded-Host: site.example", "X-Forwarded-Host: site.example"},
		{"X-Forwarded-Host: evil;.site.example", "X-Forwarded-Host: site.example", "X-Forwarded-Host: site.example"},
		{"X-Forwarded-Host: evil.example/.site.example", "X-Forwarded-Host: site.example",
			"X-Forwarded-Host: site.example"},
		{"X-Forwarded-Host: ", "X-Forwarded-Host: site.example", "X-Forwarded-Host: site.example"},
		{"X-Host: www.site.example", "-", ""},
		{"X-Host: site.example", "-", "-"},
		{"X-Host: evil.example", "", ""},
		{"X-Host: ", "", ""},
		{"X-Original-Host: a.site.example", "-", ""},
		{"X-Forwarded-Server: proxy.internal", "", ""},

		{"X-Forwarded-Proto: https", "-", "-"},
		{"X-Forwarded-Proto: http, HTTPS", "X-Forwarded-Proto: HTTPS", "X-Forwarded-Proto: HTTPS"},
		{"X-Forwarded-Proto: wss", "-", "-"},
		{"X-Forwarded-Proto: javascript", "X-Forwarded-Proto: http", "X-Forwarded-Proto: http"},
		{"X-Forwarded-Proto: https://evil.example", "X-Forwarded-Proto: http", "X-Forwarded-Proto: http"},
		{"X-Forwarded-Proto: ", "X-Forwarded-Proto: http", "X-Forwarded-Proto: http"},
		{"X-Forwarded-Ssl: on", "-", "-"},
		{"X-Forwarded-Scheme: <script>", "", ""},
		{"Front-End-Https: on", "-", "-"},
		{"X-Url-Scheme: file", "", ""},

		{"X-Forwarded-Port: 443", "-", "-"},
		{"X-Forwarded-Port: 80, 8443", "X-Forwarded-Port: 8443", "X-Forwarded-Port: 8443"},
		{"X-Forwarded-Port: 0", "", ""},
		{"X-Forwarded-Port: 65536", "", ""},
		{"X-Forwarded-Port: 80@evil.example", "", ""},
		{"X-Forwarded-Port: ", "", ""},

		{"X-Forwarded-Prefix: /shop", "-", "-"},
		{"X-Forwarded-Prefix: /a/b_c-d.e/", "-", "-"},
		{"X-Forwarded-Prefix: //evil.example", "", ""},
		{"X-Forwarded-Prefix: /a//evil.example", "", ""},
		{"X-Forwarded-Prefix: /\\evil.example", "", ""},
		{"X-Forwarded-Prefix: https://evil.example", "", ""},
		{"X-Forwarded-Prefix: shop", "", ""},
		{"X-Forwarded-Prefix: /a/../b", "", ""},
		{"X-Forwarded-Prefix: /a/.", "", ""},
		{"X-Forwarded-Prefix: /%2e%2e", "", ""},
		{"X-Forwarded-Prefix: /a?b", "", ""},
		{"X-Forwarded-Prefix: /a;b", "", ""},
		{"X-Forwarded-Prefix: /<a>", "", ""},
		{"X-Forwarded-Prefix: ", "", ""},

		{"X-Forwarded-User: anna", "-", "-"}, // of a proxy that authenticates users
		{"X-Sendfile-Type: X-Accel-Redirect", "-", "-"},
	} {
		name, _, _ := strings.Cut(test.sent, ":")
		for addr, want := range map[string]string{listed: test.listed, open: test.open, untrusted: ""} {
			if want == "-" {
				want = test.sent
			}
			_, head := exchange(t, addr, "GET /a HTTP/1.1\nHost: site.example\n"+real+test.sent+"\n\n")
			got := ""
			for line := range strings.SplitSeq(head, "\r\n") {
				if strings.HasPrefix(line, name+":") {
					got += line
				}
			}
			if addr == untrusted {
				want = map[string]string{"X-Forwarded-Host": "X-Forwarded-Host: site.example",
					"X-Forwarded-Proto": "X-Forwarded-Proto: http"}[name]
			}
			if got != want {
				t.Errorf("%s, trusted %v, with hosts %v: the site gets %q, want %q", test.sent, addr != untrusted,
					addr == listed, got, want)
			}
		}
	}
}

// If rules test the host, a trusted proxy cannot name another host than the tested one:
// otherwise a client behind it would evade them.
func TestForwardedHostIsTheJudgedOneWhereRulesLookAtHosts(t *testing.T) {
	upstream := mirror(t)
	for _, hosts := range [][]string{nil, {"site.example", "admin.site.example"}} {
		addr := serveTrusting(t, upstream, proxy.Config{Hosts: hosts, HostsJudged: true})
		for sent, want := range map[string]string{"site.example": "site.example",
			"Site.Example.:443": "Site.Example.:443", "admin.site.example": "site.example",
			"evil.example": "site.example", "": "site.example"} {
			_, head := exchange(t, addr, "GET / HTTP/1.1\nHost: site.example\nX-Forwarded-Host: "+sent+
				"\nX-Original-Host: "+sent+"\n\n")
			if !strings.Contains(head, "X-Forwarded-Host: "+want+"\r\n") ||
				strings.Contains(head, "X-Original-Host") != (sent == want) {
				t.Errorf("X-Forwarded-Host %q with hosts %q: %q", sent, hosts, head)
			}
		}
	}
}

// The site gets only the end of X-Forwarded-For: the address by which the client was
// judged, and the trusted proxies after it.
func TestForwardedForBeginsWithTheJudgedClient(t *testing.T) {
	upstream := mirror(t)
	for _, header := range []string{"", "X-Forwarded-For"} {
		addr := serveTrusting(t, upstream, proxy.Config{Header: header})
		for sent, want := range map[string]string{
			"":                                   "127.0.0.1",
			"192.0.2.1":                          "192.0.2.1, 127.0.0.1",
			"192.0.2.1:4711":                     "192.0.2.1, 127.0.0.1",
			"[2001:db8::1]":                      "2001:db8::1, 127.0.0.1",
			"::ffff:192.0.2.1":                   "192.0.2.1, 127.0.0.1",
			forgedAddr + ", 192.0.2.1":           "192.0.2.1, 127.0.0.1",
			forgedAddr + ",192.0.2.1,10.0.0.1":   "192.0.2.1, 10.0.0.1, 127.0.0.1",
			"192.0.2.1, 10.0.0.1, 2001:db8:a::1": "192.0.2.1, 10.0.0.1, 2001:db8:a::1, 127.0.0.1",
			"10.0.0.1":                           "10.0.0.1, 127.0.0.1",
			"10.0.0.2, 10.0.0.1":                 "10.0.0.2, 10.0.0.1, 127.0.0.1",
			"unknown":                            "127.0.0.1", // then the proxy is the client
			forgedAddr + ", unknown, 10.0.0.1":   "10.0.0.1, 127.0.0.1",
			forgedAddr + ", @, 10.0.0.1":         "10.0.0.1, 127.0.0.1", // trusted as a peer, but not an address
			forgedAddr + ", , 10.0.0.1":          "10.0.0.1, 127.0.0.1",
			forgedAddr + strings.Repeat(", 10.0.0.1", 40): strings.Repeat("10.0.0.1, ", 32) + "127.0.0.1",
			"<script>, 192.0.2.1":                         "192.0.2.1, 127.0.0.1",
			strings.Repeat(", ", 500) + "192.0.2.1":       "192.0.2.1, 127.0.0.1",
		} {
			_, head := exchange(t, addr, "GET / HTTP/1.1\nHost: a\nX-Forwarded-For: "+sent+"\n\n")
			if !strings.Contains(head, "\r\nX-Forwarded-For: "+want+"\r\n") {
				t.Errorf("%q: %q, want %q", sent, head, want)
			}
		}
	}
}

// KeepHeaders works only for headers that choose a path or a method, and only in that
// spelling. Then they pass from every client.
func TestKeepHeaders(t *testing.T) {
	upstream := mirror(t)
	c := proxy.Config{KeepHeaders: []string{"x-http-method-override", "X-Original-URL"}, KeepUnderscores: true}
	for _, addr := range []string{serve(t, upstream, c), serveTrusting(t, upstream, c)} {
		_, head := exchange(t, addr,
			"POST /a HTTP/1.1\nHost: a\nContent-Length: 0\nConnection: X-Original-URL\nX-HTTP-Method-Override: DELETE\nX-Original-Url: /b\n"+
				"X_HTTP_Method_Override: PUT\nX-Rewrite-URL: /c\nX-Method-Override: PATCH\n\n")
		for _, want := range []string{"X-Http-Method-Override: DELETE\r\n", "X-Original-Url: /b\r\n"} {
			if !strings.Contains(head, want) {
				t.Errorf("%q is not in %q", want, head)
			}
		}
		for _, not := range []string{"PUT", "/c", "PATCH"} {
			if strings.Contains(head, not) {
				t.Errorf("%q is in %q", not, head)
			}
		}
	}
	for _, name := range []string{"X-HTTP-Method-Override", "x-original-url", "X-MIDDLEWARE-SUBREQUEST",
		"X-Acme-Rewrite-URL"} {
		if err := proxy.CheckKeepHeader(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, want := range map[string]string{
		"":                          "is not the name",
		"X Original":                "is not the name",
		"X.Original.URL":            "is not the name",
		"X_Original_URL":            `cannot be kept with "_": X-Original-URL can`,
		"X-Custom":                  "passes anyway",
		"User-Agent":                "passes anyway",
		"X-Forwarded-For":           "cannot be kept",
		"X-Real-IP":                 "cannot be kept",
		"X-Forwarded-Host":          "cannot be kept",
		"X-Host":                    "cannot be kept",
		"Connection":                "cannot be kept",
		"Fairshare-Client":          "cannot be kept",
		"X-Forwarded-Proto":         "cannot be kept",
		"Transfer-Encoding":         "cannot be kept",
		"X-Forwarded-Prefix":        "cannot be kept",
		"CloudFront-Viewer-Address": "cannot be kept",
	} {
		if err := proxy.CheckKeepHeader(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", name, err, want)
		}
	}
}

// The site's own clients send method overrides with POST. The first one that is removed
// is logged; those of scanners are not.
func TestRemovedMethodOverrideIsLoggedOnce(t *testing.T) {
	var out lockedBuffer
	addr := serve(t, mirror(t), proxy.Config{Log: log.New(&out, "", 0)})
	for _, request := range []string{"GET / HTTP/1.1\nHost: a\nX-HTTP-Method-Override: PUT\n",
		"POST / HTTP/1.1\nHost: a\nContent-Length: 0\nX-Original-URL: /b\nX-Evil-Method-Override: PUT\n"} {
		exchange(t, addr, request+"\n")
	}
	if out.String() != "" {
		t.Fatalf("logged too early: %q", out.String())
	}
	for range 3 {
		exchange(t, addr, "POST / HTTP/1.1\nHost: a\nContent-Length: 0\nX-HTTP-Method-Override: PUT\n\n")
	}
	if got := out.String(); strings.Count(got, "\n") != 1 ||
		!strings.Contains(got, "add keep_headers: X-Http-Method-Override to the policy") {
		t.Errorf("%q", got)
	}
}

// A request without a host is forwarded without one.
func TestNoHostIsSentIfThereIsNone(t *testing.T) {
	_, head := exchange(t, serve(t, mirror(t), proxy.Config{}), "GET / HTTP/1.0\n\n")
	if strings.Contains(head, "X-Forwarded-Host") || !strings.HasPrefix(head, "GET / HTTP/1.1\r\n") {
		t.Errorf("%q", head)
	}
}
