package lookup

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

func TestHostname(t *testing.T) {
	long := strings.Repeat("a", 63)
	for _, c := range []struct {
		in, want string
		ok       bool
	}{
		{"crawl-66-249-66-1.googlebot.com.", "crawl-66-249-66-1.googlebot.com", true},
		{"printer", "printer", true},
		{"_x.example.", "_x.example", true},
		{"xn--bcher-kva.example", "xn--bcher-kva.example", true},
		{long + ".example", long + ".example", true},
		{strings.Join([]string{long, long, long, long[:61]}, "."),
			strings.Join([]string{long, long, long, long[:61]}, "."), true},
		{strings.Join([]string{long, long, long, long[:62]}, "."), "", false},
		{long + "a.example", "", false},
		{"", "", false}, {".", "", false}, {"..", "", false}, {"a..b", "", false}, {".a", "", false},
		{"a.b..", "", false},
		{"-a.example", "", false}, {"a-.example", "", false}, {"a.example-", "", false},
		{"66.249.66.1", "", false}, {"a.1", "", false}, {"1.a", "1.a", true},
		{"a b.example", "", false}, {"a\x00.example", "", false}, {"é.example", "", false}, {"A.example", "", false},
		{"*.example", "", false}, {"a\\.b", "", false},
	} {
		if got, ok := hostname(c.in); ok != c.ok || ok && got != c.want {
			t.Errorf("%q: %q, %v, want %q, %v", c.in, got, ok, c.want, c.ok)
		}
	}
}

func TestReverseName(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.1":      "1.2.0.192.in-addr.arpa.",
		"255.255.255.0":  "0.255.255.255.in-addr.arpa.",
		"2001:db8::12:3": "3.0.0.0.2.1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa.",
	} {
		if got := reverseName(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
}

func TestListCodes(t *testing.T) {
	for _, c := range []struct {
		in, want []netip.Addr
		err      error
	}{
		{nil, nil, nil},
		{addrs("127.0.0.2"), addrs("127.0.0.2"), nil},
		{addrs("127.3.5.1"), addrs("127.3.5.1"), nil},
		{addrs("127.255.254.1"), addrs("127.255.254.1"), nil},
		{addrs("127.255.255.1"), nil, errRefused},
		{addrs("127.255.255.255", "127.0.0.2"), addrs("127.0.0.2"), nil},
		{addrs("128.0.0.2"), nil, errNoList},
		{addrs("1.2.3.4", "127.0.0.2"), addrs("127.0.0.2"), nil},
	} {
		got, err := listCodes(c.in)
		if !slices.Equal(got, c.want) || err != c.err {
			t.Errorf("%v: %v, %v, want %v, %v", c.in, got, err, c.want, c.err)
		}
	}
	if got, err := listCodes(slices.Repeat(addrs("127.0.0.2"), 100)); len(got) != maxCodes || err != nil {
		t.Errorf("%d codes, %v", len(got), err)
	}
}

// A resource is one record of an answer.
type resource struct {
	owner string
	cname string
	ptr   string
	a, a6 string
}

func message(t testing.TB, h dnsmessage.Header, q dnsmessage.Question, answers ...resource) []byte {
	t.Helper()
	b := dnsmessage.NewBuilder(nil, h)
	b.StartQuestions()
	b.Question(q)
	b.StartAnswers()
	for _, r := range answers {
		rh := dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(r.owner), Class: dnsmessage.ClassINET}
		var err error
		switch {
		case r.cname != "":
			err = b.CNAMEResource(rh, dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName(r.cname)})
		case r.ptr != "":
			err = b.PTRResource(rh, dnsmessage.PTRResource{PTR: dnsmessage.MustNewName(r.ptr)})
		case r.a != "":
			err = b.AResource(rh, dnsmessage.AResource{A: netip.MustParseAddr(r.a).As4()})
		case r.a6 != "":
			err = b.AAAAResource(rh, dnsmessage.AAAAResource{AAAA: netip.MustParseAddr(r.a6).As16()})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	m, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestParse(t *testing.T) {
	const id = 4711
	ok := dnsmessage.Header{ID: id, Response: true, RecursionAvailable: true}
	q := dnsmessage.Question{Name: dnsmessage.MustNewName("Host.example."), Type: dnsmessage.TypeA,
		Class: dnsmessage.ClassINET}
	with := func(change func(*dnsmessage.Header)) dnsmessage.Header {
		h := ok
		change(&h)
		return h
	}
	code := func(c dnsmessage.RCode) dnsmessage.Header {
		return with(func(h *dnsmessage.Header) { h.RCode = c })
	}
	other := q
	other.Name = dnsmessage.MustNewName("other.example.")
	upper := q
	upper.Name = dnsmessage.MustNewName("HOST.EXAMPLE.")
	ring := func(n int) (answers []resource) {
		for i := range n {
			answers = append(answers, resource{owner: string(rune('a'+i)) + ".example.",
				cname: string(rune('a'+i+1)) + ".example."})
		}
		return append(answers, resource{owner: "host.example.", cname: "a.example."},
			resource{owner: string(rune('a'+n)) + ".example.", a: "192.0.2.1"})
	}
	for _, c := range []struct {
		name string
		in   []byte
		want []netip.Addr
		err  error
	}{
		{"an address", message(t, ok, q, resource{owner: "host.EXAMPLE.", a: "192.0.2.1"}), addrs("192.0.2.1"), nil},
		{"the question in other letters", message(t, ok, upper, resource{owner: "host.example.", a: "192.0.2.1"}),
			addrs("192.0.2.1"), nil},
		{"none", message(t, ok, q), nil, nil},
		{"no such name", message(t, code(dnsmessage.RCodeNameError), q), nil, nil},
		{"an address of another name", message(t, ok, q, resource{owner: "evil.example.", a: "192.0.2.1"}), nil, nil},
		{"another kind", message(t, ok, q, resource{owner: "host.example.", a6: "2001:db8::1"}), nil, nil},
		{"an alias", message(t, ok, q, resource{owner: "host.example.", cname: "b.example."},
			resource{owner: "b.example.", a: "192.0.2.1"}), addrs("192.0.2.1"), nil},
		{"an alias, in disorder", message(t, ok, q, ring(3)...), addrs("192.0.2.1"), nil},
		{"too many aliases", message(t, ok, q, ring(9)...), nil, errAliases},
		{"aliases in a circle", message(t, ok, q, resource{owner: "host.example.", cname: "b.example."},
			resource{owner: "b.example.", cname: "host.example."}), nil, errAliases},
		{"an alias of itself", message(t, ok, q, resource{owner: "host.example.", cname: "host.example."}), nil,
			errAliases},
		{"an alias of nothing", message(t, ok, q, resource{owner: "host.example.", cname: "b.example."}), nil, nil},
		{"an alias that is left to us", message(t, with(
			func(h *dnsmessage.Header) { h.RecursionAvailable, h.Authoritative = false, true }), q,
			resource{owner: "host.example.", cname: "b.example."}), nil, errReferral},
		{"a referral", message(t, with(func(h *dnsmessage.Header) { h.RecursionAvailable = false }), q), nil,
			errReferral},
		{"no records, from an authoritative server", message(t, with(func(h *dnsmessage.Header) {
			h.RecursionAvailable,
				h.Authoritative = false, true
		}), q), nil, nil},
		{"SERVFAIL", message(t, code(dnsmessage.RCodeServerFailure), q), nil,
			rcodeError(dnsmessage.RCodeServerFailure)},
		{"REFUSED, with an answer", message(t, code(dnsmessage.RCodeRefused), q,
			resource{owner: "host.example.", a: "192.0.2.1"}), nil, rcodeError(dnsmessage.RCodeRefused)},
		{"too long", message(t, with(func(h *dnsmessage.Header) { h.Truncated = true }), q), nil, errTruncated},
		{"no answer, but a question", message(t, with(func(h *dnsmessage.Header) { h.Response = false }), q), nil,
			errForeign},
		{"another id", message(t, with(func(h *dnsmessage.Header) { h.ID++ }), q,
			resource{owner: "host.example.", a: "192.0.2.1"}), nil, errForeign},
		{"another question", message(t, ok, other, resource{owner: "host.example.", a: "192.0.2.1"}), nil, errForeign},
		{"cut", message(t, ok, q, resource{owner: "host.example.", a: "192.0.2.1"})[:45], nil, errMalformed},
		{"nothing", nil, nil, errForeign},
	} {
		found, err := parse(c.in, id, q)
		if !slices.Equal(found.addrs, c.want) || err != c.err {
			t.Errorf("%s: %v, %v, want %v, %v", c.name, found.addrs, err, c.want, c.err)
		}
	}
}

// A dot within a label can make "crawl.googlebot.com" from one label. Such a record is skipped, and
// the others still count.
func TestParseDotInALabel(t *testing.T) {
	q := dnsmessage.Question{Name: dnsmessage.MustNewName("1.2.0.192.in-addr.arpa."), Type: dnsmessage.TypePTR,
		Class: dnsmessage.ClassINET}
	m := message(t, dnsmessage.Header{ID: 1, Response: true, RecursionAvailable: true}, q,
		resource{owner: "1.2.0.192.in-addr.arpa.", ptr: "crawlXgooglebot.com."},
		resource{owner: "1.2.0.192.in-addr.arpa.", ptr: "own.example."})
	m = bytes.Replace(m, []byte("crawlXgooglebot"), []byte("crawl.googlebot"), 1)
	found, err := parse(m, 1, q)
	if !slices.Equal(found.names, []string{"own.example"}) || err != nil {
		t.Errorf("%q, %v", found.names, err)
	}
}

// For any message of a server, names are host names, few and short; addresses have the requested
// family; and codes are in 127.0.0.0/8.
func FuzzParse(f *testing.F) {
	ok := dnsmessage.Header{ID: 1, Response: true, RecursionAvailable: true}
	ptr := dnsmessage.Question{Name: dnsmessage.MustNewName("1.2.0.192.in-addr.arpa."), Type: dnsmessage.TypePTR,
		Class: dnsmessage.ClassINET}
	a := dnsmessage.Question{Name: dnsmessage.MustNewName("host.example."), Type: dnsmessage.TypeA,
		Class: dnsmessage.ClassINET}
	aaaa := a
	aaaa.Type = dnsmessage.TypeAAAA
	questions := []dnsmessage.Question{ptr, a, aaaa}
	f.Add(byte(0), message(f, ok, ptr, resource{owner: ptr.Name.String(), ptr: "CRAWL.example."},
		resource{owner: ptr.Name.String(), ptr: "a b."}))
	f.Add(byte(0), message(f, ok, ptr, resource{owner: ptr.Name.String(), cname: "x."},
		resource{owner: "x.", ptr: "own.example."}))
	f.Add(byte(1), message(f, ok, a, resource{owner: "host.example.", a: "127.0.0.2"},
		resource{owner: "host.example.", a: "127.255.255.254"}))
	f.Add(byte(2), message(f, ok, aaaa, resource{owner: "host.example.", a6: "::ffff:192.0.2.1"}))
	f.Fuzz(func(t *testing.T, kind byte, m []byte) {
		q := questions[int(kind)%len(questions)]
		found, err := parse(m, 1, q)
		if err != nil && (found.names != nil || found.addrs != nil) {
			t.Fatalf("%+v and %v", found, err)
		}
		if len(found.names) > maxNames || len(strings.Join(found.names, "")) > maxNamed {
			t.Fatalf("%q", found.names)
		}
		for _, name := range found.names {
			if again, ok := hostname(name); !ok || again != name || name != strings.ToLower(name) ||
				strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" {
				t.Fatalf("%q is not a host name", name)
			}
			if _, err := dnsmessage.NewName(name + "."); err != nil {
				t.Fatalf("%q: %v", name, err)
			}
		}
		for _, addr := range found.addrs {
			if q.Type == dnsmessage.TypeA && !addr.Is4() || addr.Is4In6() || q.Type == dnsmessage.TypePTR {
				t.Fatalf("%v", addr)
			}
		}
		if q.Type != dnsmessage.TypeA {
			return
		}
		codes, err := listCodes(found.addrs)
		if err != nil && codes != nil || len(codes) > maxCodes {
			t.Fatalf("%v, %v", codes, err)
		}
		for _, code := range codes {
			if o := code.As4(); o[0] != 127 || o[1] == 255 && o[2] == 255 {
				t.Fatalf("%v", code)
			}
		}
	})
}
