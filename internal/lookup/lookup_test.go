package lookup

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"fairshare/internal/lookup/lookuptest"

	"golang.org/x/net/dns/dnsmessage"
)

// open returns a resolver that uses the server.
func open(t testing.TB, o Options) *Resolver {
	t.Helper()
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// deadline is the longest wait of a test; a passing test needs much less.
func deadline(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// A notebook stores log lines.
type notebook struct {
	mu    sync.Mutex
	lines []string
}

func (n *notebook) log(line string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, line)
}

func (n *notebook) all() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.lines)
}

const crawler, crawlerName = "66.249.66.1", "crawl-66-249-66-1.googlebot.com"

func addrs(texts ...string) []netip.Addr {
	var list []netip.Addr
	for _, text := range texts {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}

// TestConfirm asks a real server, with good and bad answers.
func TestConfirm(t *testing.T) {
	const ptr, a, aaaa = dnsmessage.TypePTR, dnsmessage.TypeA, dnsmessage.TypeAAAA
	type server = lookuptest.Server
	type answer = lookuptest.Answer
	crawlers := addrs(crawler)
	for _, c := range []struct {
		name  string
		addr  string // default: crawler
		set   func(s *server)
		want  []string
		known bool
	}{
		{name: "well", set: func(s *server) { s.Host(crawler, crawlerName) }, want: []string{crawlerName}, known: true},
		{name: "IPv4 in IPv6", addr: "::ffff:66.249.66.1", set: func(s *server) { s.Host(crawler, crawlerName) },
			want: []string{crawlerName}, known: true},
		{name: "IPv6", addr: "2001:4860:4801:10::1", set: func(
			s *server) {
			s.Host("2001:4860:4801:10::1", "v6.googlebot.com")
		}, want: []string{"v6.googlebot.com"}, known: true},
		{name: "upper case", set: func(s *server) {
			s.PTR(crawler, "CRAWL.GoogleBot.COM.")
			s.Set("crawl.googlebot.com", a, answer{Addrs: crawlers})
		}, want: []string{"crawl.googlebot.com"}, known: true},
		{name: "no name at all", set: func(s *server) {}, known: true},
		{name: "no PTR record", set: func(s *server) { s.Set(lookuptest.Reverse(crawler), ptr, answer{}) },
			known: true},
		{name: "the name does not exist", set: func(s *server) { s.PTR(crawler, crawlerName) }, known: true},
		{name: "the name is another's", set: func(s *server) {
			s.PTR(crawler, crawlerName)
			s.Set(crawlerName, a, answer{Addrs: addrs("66.249.66.2", "10.0.0.1")})
		}, known: true},
		{name: "one of many addresses", set: func(s *server) {
			s.PTR(crawler, crawlerName)
			many := addrs("66.249.66.2")
			for i := range 3000 {
				many = append(many, netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}))
			}
			s.Set(crawlerName, a, answer{Addrs: append(many, crawlers...)}) // over TCP
		}, want: []string{crawlerName}, known: true},
		{name: "several names", set: func(s *server) {
			s.PTR(crawler, "forged.example.org", crawlerName, "own.example.net", "own.example.net")
			s.Set(crawlerName, a, answer{Addrs: crawlers})
			s.Set("own.example.net", a, answer{Addrs: crawlers})
		}, want: []string{crawlerName, "own.example.net"}, known: true},
		{name: "only five names are looked at", set: func(s *server) {
			s.PTR(crawler, "a.example", "b.example", "c.example", "d.example", "e.example", crawlerName)
			s.Set(crawlerName, a, answer{Addrs: crawlers})
		}, known: true},
		{name: "thousands of names", set: func(s *server) {
			many := []string{crawlerName}
			for i := range 3000 {
				many = append(many, fmt.Sprintf("n%d.example", i))
			}
			s.PTR(crawler, many...)
			s.Set(crawlerName, a, answer{Addrs: crawlers})
		}, want: []string{crawlerName}, known: true},
		{name: "odd bytes in names", set: func(s *server) {
			odd := []string{"a b.example", "x\n.example", "ümlaut.example", "-a.example", "66.249.66.1", "*.example",
				crawlerName}
			s.PTR(crawler, odd...)
			for _, name := range odd {
				s.Set(name, a, answer{Addrs: crawlers})
			}
		}, want: []string{crawlerName}, known: true},
		{name: "an alias in the reverse zone, RFC 2317", set: func(s *server) {
			s.Set(lookuptest.Reverse(crawler), ptr, answer{Alias: "1.0-63.66.249.66.in-addr.arpa",
				Names: []string{crawlerName}})
			s.Set(crawlerName, a, answer{Addrs: crawlers})
		}, want: []string{crawlerName}, known: true},
		{name: "an alias of itself", set: func(s *server) {
			s.PTR(crawler, crawlerName)
			s.Set(crawlerName, a, answer{Alias: crawlerName})
		}},
		{name: "noise before the answers", set: func(s *server) {
			s.Set(lookuptest.Reverse(crawler), ptr, answer{Noise: true, Names: []string{crawlerName}})
			s.Set(crawlerName, a, answer{Noise: true, Addrs: addrs("66.249.66.2")})
			s.Set("lie.example", a, answer{Addrs: crawlers})
		}, known: true},
		{name: "nothing but noise", set: func(s *server) {
			s.Set(lookuptest.Reverse(crawler), ptr, answer{Noise: true, Silent: true})
		}},
		{name: "too long for UDP", set: func(s *server) {
			s.Set(lookuptest.Reverse(crawler), ptr, answer{Truncate: true, Names: []string{crawlerName}})
			s.Set(crawlerName, a, answer{Truncate: true, Addrs: crawlers})
		}, want: []string{crawlerName}, known: true},
		{name: "too long for UDP, and no TCP", set: func(s *server) {
			s.Set(lookuptest.Reverse(crawler), ptr, answer{Truncate: true, NoTCP: true})
		}},
		{name: "slowly", set: func(s *server) {
			s.Set(lookuptest.Reverse(crawler), ptr, answer{Delay: 800 * time.Millisecond, Names: []string{crawlerName}})
			s.Set(crawlerName, a, answer{Delay: 800 * time.Millisecond, Addrs: crawlers})
		}, want: []string{crawlerName}, known: true},
		{name: "too slowly", set: func(s *server) {
			s.Set(lookuptest.Reverse(crawler), ptr, answer{Delay: 5 * time.Second, Names: []string{crawlerName}})
		}},
		{name: "not at all", set: func(s *server) { s.Silence(true) }},
		{name: "SERVFAIL", set: func(s *server) { s.SetOthers(answer{Code: dnsmessage.RCodeServerFailure}) }},
		{name: "SERVFAIL for the name", set: func(s *server) {
			s.PTR(crawler, crawlerName)
			s.Set(crawlerName, a, answer{Code: dnsmessage.RCodeServerFailure})
		}},
		{name: "SERVFAIL on AAAA alone", addr: "2001:db8::1", set: func(s *server) {
			s.Host("2001:db8::1", "v6.example")
			s.Set("v6.example", a, answer{Addrs: crawlers})
			s.Set("v6.example", aaaa, answer{Code: dnsmessage.RCodeServerFailure})
		}},
		{name: "REFUSED on AAAA alone", addr: "2001:db8::1", set: func(s *server) {
			s.Host("2001:db8::1", "v6.example")
			s.Set("v6.example", a, answer{Addrs: crawlers})
			s.Set("v6.example", aaaa, answer{Code: dnsmessage.RCodeRefused})
		}},
		{name: "SERVFAIL on AAAA does not concern IPv4", set: func(s *server) {
			s.Host(crawler, crawlerName)
			s.Set(crawlerName, aaaa, answer{Code: dnsmessage.RCodeServerFailure})
		}, want: []string{crawlerName}, known: true},
		{name: "a referral", set: func(s *server) { s.SetOthers(answer{Referral: true}) }},
		{name: "half of a message", set: func(s *server) {
			s.Set(lookuptest.Reverse(crawler), ptr, answer{Raw: []byte{0, 0, 0x81, 0x80, 0, 1, 0, 9, 0, 0}})
		}},
		{name: "one name confirmed, one without an answer", set: func(s *server) {
			s.PTR(crawler, "broken.example", "own.example")
			s.Set("broken.example", a, answer{Silent: true})
			s.Set("own.example", a, answer{Addrs: crawlers})
		}, want: []string{"own.example"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := lookuptest.Start(t)
			c.set(s)
			r := open(t, Options{Server: s.Addr()})
			if c.addr == "" {
				c.addr = crawler
			}
			addr := netip.MustParseAddr(c.addr)
			if names, known := r.Confirmed(addr); known || names != nil {
				t.Errorf("before the look-up: %q, %v", names, known)
			}
			names, known := r.Wait(deadline(t), addr)
			if !slices.Equal(names, c.want) || known != c.known {
				t.Errorf("Wait: %q, %v, want %q, %v", names, known, c.want, c.known)
			}
			names, known = r.Confirmed(addr)
			if !slices.Equal(names, c.want) || known != c.known {
				t.Errorf("Confirmed: %q, %v, want %q, %v", names, known, c.want, c.known)
			}
			if got := r.Hostnames(addr); !slices.Equal(got, c.want) {
				t.Errorf("Hostnames: %q, want %q", got, c.want)
			}
			if stats := r.Stats(); stats.LookedUp != 1 || (stats.Failed == 1) == c.known {
				t.Errorf("stats: %+v", stats)
			}
		})
	}
}

// A closed port and a system without a network do not count as answers.
func TestConfirmWithoutAServer(t *testing.T) {
	s := lookuptest.Start(t)
	s.Close()
	var notes notebook
	r := open(t, Options{Server: s.Addr(), Log: notes.log})
	for i := range 3 {
		if names, known := r.Wait(deadline(t), netip.AddrFrom4([4]byte{192, 0, byte(i), 1})); known || names != nil {
			t.Errorf("%q, %v", names, known)
		}
	}
	r.Close()
	if lines := notes.all(); len(lines) > 1 || len(lines) == 1 && !strings.Contains(lines[0], "does not answer") {
		t.Errorf("logged: %q", lines)
	}
}

func TestNewChecksItsOptions(t *testing.T) {
	for _, c := range []struct {
		options Options
		fault   string
	}{
		{Options{Server: "127.0.0.1"}, ""},
		{Options{Server: "::1"}, ""},
		{Options{Server: "[::1]:5353"}, ""},
		{Options{Server: "dns.example.org:53"}, `DNS server "dns.example.org:53": want an address`},
		{Options{Server: "127.0.0.1:0"}, "want an address"},
		{Options{Lists: map[string]List{"x": {}}}, "DNS list x: zone"},
		{Options{Lists: map[string]List{"x": {Zone: "a b.example"}}}, "DNS list x: zone"},
		{Options{Lists: map[string]List{"x": {Key: "secretsecre1"}}}, "DNS list x: the access key"},
		{Options{Lists: map[string]List{"x": {Key: "secretsecret.evil"}}}, "DNS list x: the access key"},
	} {
		c.options.query = func(context.Context, string, dnsmessage.Type) (records, error) { return records{}, nil }
		r, err := New(c.options)
		if err == nil {
			r.Close()
		}
		if got := fmt.Sprint(err); c.fault == "" && err != nil || !strings.Contains(got, c.fault) ||
			strings.Contains(got, "secretsecre") {
			t.Errorf("%+v: %v, want %q", c.options, err, c.fault)
		}
	}
}

// The servers of the system are those that net.Resolver uses.
func TestServersOfTheSystem(t *testing.T) {
	c := &client{}
	for _, server := range c.servers() {
		if at, err := netip.ParseAddrPort(server); err != nil || at.Port() != 53 {
			t.Errorf("%q: %v", server, err)
		}
	}
}

// The second server answers when the first does not answer, is broken or is missing.
func TestAskEach(t *testing.T) {
	good := lookuptest.Start(t)
	good.Host(crawler, crawlerName)
	broken := lookuptest.Start(t)
	broken.SetOthers(lookuptest.Answer{Code: dnsmessage.RCodeServerFailure})
	silent := lookuptest.Start(t)
	silent.Silence(true)
	gone := lookuptest.Start(t)
	gone.Close()
	q := dnsmessage.Question{Name: dnsmessage.MustNewName(crawlerName + "."), Type: dnsmessage.TypeA,
		Class: dnsmessage.ClassINET}
	for _, c := range []struct {
		servers []*lookuptest.Server
		fault   bool
	}{
		{[]*lookuptest.Server{good, silent}, false},
		{[]*lookuptest.Server{silent, good}, false},
		{[]*lookuptest.Server{broken, good}, false},
		{[]*lookuptest.Server{gone, broken, good}, false},
		{[]*lookuptest.Server{gone, broken}, true},
	} {
		var servers []string
		for _, s := range c.servers {
			servers = append(servers, s.Addr())
		}
		found, err := queryEach(deadline(t), servers, q)
		if (err != nil) != c.fault || !c.fault && !slices.Equal(found.addrs, addrs(crawler)) {
			t.Errorf("%q: %v, %v", servers, found, err)
		}
	}
	if n := silent.Queries(crawlerName, dnsmessage.TypeA); n != 1 {
		t.Errorf("the silent server was asked %d times", n)
	}
}
