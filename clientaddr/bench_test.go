package clientaddr_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"fairshare/clientaddr"
)

// Typical requests.
var common = []struct {
	name, peer, header, value string
	trusted                   []string
	want                      string
}{
	{"direct", "192.0.2.1:4711", "", "6.6.6.6", nil, "192.0.2.1"},
	{"direct-v6", "[2001:db8::1]:4711", "", "6.6.6.6", nil, "2001:db8::1"},
	{"untrusted", "192.0.2.1:4711", "", "6.6.6.6", []string{"loopback", "cloudflare"}, "192.0.2.1"},
	{"one", "127.0.0.1:4711", "", "192.0.2.1", []string{"loopback", "cloudflare"}, "192.0.2.1"},
	{"two", "127.0.0.1:4711", "", "192.0.2.1, 104.16.0.1", []string{"loopback", "cloudflare"}, "192.0.2.1"},
	{"v6", "127.0.0.1:4711", "", "2001:db8::1, 2606:4700::1", []string{"loopback", "cloudflare"}, "2001:db8::1"},
	{"unix", "@", "", "192.0.2.1", []string{"unix"}, "192.0.2.1"},
	{"single", "104.16.0.1:4711", "CF-Connecting-IP", "192.0.2.1", []string{"cloudflare"}, "192.0.2.1"},
	{"forwarded", "127.0.0.1:4711", "Forwarded", `for="[2001:db8::1]:80";proto=https`, []string{"loopback"},
		"2001:db8::1"},
	{"zone", "127.0.0.1:4711", "", "fe80::1%eth0", []string{"loopback"}, "fe80::1"},
}

func TestResolveMakesNoAllocation(t *testing.T) {
	for _, test := range common {
		r := newResolver(t, test.header, test.trusted...)
		header := make(http.Header)
		header.Set("X-Forwarded-For", test.value)
		if test.header != "" {
			header.Set(test.header, test.value)
		}
		var got clientaddr.Result
		if n := testing.AllocsPerRun(100, func() { got = r.Resolve(test.peer, header) }); n != 0 {
			t.Errorf("%s: %v allocations", test.name, n)
		}
		if got.Addr != addr(test.want) {
			t.Errorf("%s: %+v, want %s", test.name, got, test.want)
		}
		if test.name == "unix" {
			continue
		}
		peer := r.Resolve(test.peer, nil).Peer
		if n := testing.AllocsPerRun(100, func() { got = r.ResolveAddr(peer, test.value) }); n != 0 {
			t.Errorf("%s: %v allocations in ResolveAddr", test.name, n)
		}
		if got.Addr != addr(test.want) {
			t.Errorf("%s: ResolveAddr: %+v, want %s", test.name, got, test.want)
		}
	}
}

// hostile returns headers of a megabyte that are expensive for a parser that reads
// an element more than once.
func hostile() map[string][]string {
	const size = 1 << 20
	fill := func(s string) string { return strings.Repeat(s, size/len(s)) }
	lines := make([]string, 10000)
	for i := range lines {
		lines[i] = "for=10.0.0.1, 10.0.0.1"
	}
	return map[string][]string{
		"addresses":           {fill("10.0.0.1, ")},
		"forwarded":           {fill("for=10.0.0.1, ")},
		"commas":              {fill(",")},
		"blanks":              {fill(" ")},
		"semicolons":          {fill(";")},
		"pairs":               {fill("x=y;")},
		"fors":                {fill("for=10.0.0.1;")},
		"quotes":              {fill(`"`)},
		"odd quotes":          {fill(`"`) + `"`},
		"backslashes":         {fill(`\`)},
		"escaped quotes":      {fill(`\"`)},
		"backslashes, quotes": {fill(`\\\"`) + `"`},
		"one quote":           {`for="` + fill(`\`) + `"`},
		"quoted escapes":      {`for="` + fill(`\1`) + `"`},
		"no end":              {"for=" + fill("1")},
		"zone":                {"fe80::1%" + fill("z")},
		"brackets":            {fill("[")},
		"colons":              {fill(":")},
		"lines":               lines,
	}
}

// Each takes microseconds; read again for each of its elements, hours.
func TestResolveTakesBoundedWork(t *testing.T) {
	for _, name := range []string{"X-Forwarded-For", "Forwarded", "X-Real-IP"} {
		r := newResolver(t, name, "10.0.0.0/8")
		for kind, values := range hostile() {
			header := make(http.Header)
			for _, value := range values {
				header.Add(name, value)
			}
			got := r.Resolve("10.0.0.1:4711", header)
			if got.Addr != addr("10.0.0.1") || !got.Proxy || got.Malformed == got.Missing {
				t.Errorf("%s of %s: %+v", name, kind, got)
			}
		}
	}
}

func BenchmarkResolve(b *testing.B) {
	for _, test := range common {
		r := newResolver(b, test.header, test.trusted...)
		header := make(http.Header)
		header.Set("X-Forwarded-For", test.value)
		if test.header != "" {
			header.Set(test.header, test.value)
		}
		b.Run(test.name, func(b *testing.B) {
			b.ReportAllocs()
			var got clientaddr.Result
			for b.Loop() {
				got = r.Resolve(test.peer, header)
			}
			if got.Addr != addr(test.want) {
				b.Fatalf("%+v", got)
			}
		})
	}
}

func BenchmarkResolveAddr(b *testing.B) {
	for _, trusted := range [][]string{nil, {"loopback", "cloudflare"}} {
		r := newResolver(b, "", trusted...)
		b.Run(fmt.Sprintf("trusted=%d", len(trusted)), func(b *testing.B) {
			b.ReportAllocs()
			client := addr("192.0.2.1")
			for b.Loop() {
				if r.ResolveAddr(client, "6.6.6.6").Addr != client {
					b.Fatal("not the client")
				}
			}
		})
	}
}

func BenchmarkHostile(b *testing.B) {
	r := newResolver(b, "Forwarded", "10.0.0.0/8")
	for kind, values := range hostile() {
		header := http.Header{"Forwarded": values}
		b.Run(kind, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if got := r.Resolve("10.0.0.1:4711", header); !got.PeerTrusted {
					b.Fatalf("%+v", got)
				}
			}
		})
	}
}

// What a watch costs on top of Resolve, for all kinds of peers.
var watched = []struct {
	name, peer string
	trusted    []string
	headers    []string
	before     int // requests for three clients
	via        bool
}{
	{"public", "192.0.2.1:4711", nil, []string{"X-Forwarded-For: 6.6.6.6"}, 0, false},
	{"public-v6", "[2001:db8::1]:4711", nil, nil, 0, false},
	{"trusted", "127.0.0.1:4711", []string{"loopback"}, []string{"X-Forwarded-For: 192.0.2.1"}, 0, false},
	{"trusted-missing", "127.0.0.1:4711", []string{"loopback"}, nil, 0, false},
	{"unnamed", "127.0.0.1:4711", nil, []string{"X-Forwarded-For: 192.0.2.1"}, 200, true},
	{"unnamed-unix", "@", nil, []string{"X-Forwarded-For: 192.0.2.1"}, 200, true},
	{"new", "127.0.0.1:4711", nil, []string{"X-Forwarded-For: 192.0.2.1"}, 0, true},
	{"silent", "10.0.0.1:4711", nil,
		[]string{"User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"}, 0, false},
}

func TestLookMakesNoAllocation(t *testing.T) {
	for _, test := range watched {
		w, r, h := clientaddr.NewWatch(), namingResolver(t, "", test.trusted...), headers(test.headers...)
		forward(w, r, test.peer, xff, test.before)
		var res clientaddr.Result
		look := func() {
			res = w.Resolve(r, test.peer, h)
		}
		if n := testing.AllocsPerRun(200, look); n != 0 {
			t.Errorf("%s: %v allocations", test.name, n)
		}
		if res.Via.IsValid() != test.via {
			t.Errorf("%s: %+v", test.name, res)
		}
	}
}

func BenchmarkLook(b *testing.B) {
	for _, test := range watched {
		w, r, h := clientaddr.NewWatch(), namingResolver(b, "", test.trusted...),
			headers(append(test.headers, "Accept: */*", "Accept-Language: de", "Accept-Encoding: gzip")...)
		forward(w, r, test.peer, xff, test.before)
		b.Run(test.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if res := w.Resolve(r, test.peer, h); res.Via.IsValid() != test.via {
					b.Fatalf("%+v", res)
				}
			}
		})
	}
}
