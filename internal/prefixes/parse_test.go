package prefixes

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/gaissmai/bart"
	"github.com/google/go-cmp/cmp"
)

func asText(prefixes []netip.Prefix) string {
	texts := make([]string, len(prefixes))
	for i, p := range prefixes {
		texts[i] = p.String()
	}
	return strings.Join(texts, " ")
}

func packed(t testing.TB, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestParseText(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "", ""},
		{"comments alone", "# nobody\n; nobody\n// nobody\n\n  \n", ""},
		{"addresses and prefixes", "192.0.2.1\n198.51.100.0/24\n2001:db8::/32\n2001:db8::1",
			"192.0.2.1/32 198.51.100.0/24 2001:db8::/32 2001:db8::1/128"},
		{"line ends", "\xef\xbb\xbf192.0.2.1\r\n192.0.2.2\r\n\r\n192.0.2.3", "192.0.2.1/32 192.0.2.2/32 192.0.2.3/32"},
		{"comments behind", "192.0.2.1 # one\n192.0.2.2#two\n192.0.2.0/28 ; SBL1\n",
			"192.0.2.1/32 192.0.2.2/32 192.0.2.0/28"},
		{"text after an address", "192.0.2.1 SBL123\n192.0.2.2\tsome 9 words: of 10.text\n",
			"192.0.2.1/32 192.0.2.2/32"},
		{"bits behind the mask", "192.0.2.77/24\n2001:db8::77/32", "192.0.2.0/24 2001:db8::/32"},
		{"IPv4 in IPv6", "::ffff:192.0.2.1\n::ffff:192.0.2.0/120", "192.0.2.1/32 192.0.2.0/24"},
		{"ranges",
			"192.0.2.1-192.0.2.2\n198.51.100.0 - 198.51.100.255\n2001:db8::-2001:db8::ffff # all\n203.0.113.9- 203.0.113.9", "192.0.2.1/32 192.0.2.2/32 198.51.100.0/24 2001:db8::/112 203.0.113.9/32"},
		{"a geofeed", "# RFC 8805\n31.13.24.0/21,IE,,Dublin,\n2a03:2880::/32,US,US-CA,Menlo Park,94025\n",
			"31.13.24.0/21 2a03:2880::/32"},
		{"names of columns, quotes", "\"network\",\"country\"\n\"192.0.2.0/24\",\"XX\"\n", "192.0.2.0/24"},
		{"first, last, bits", "Start\tEnd\tNetmask\tAttacks\n192.0.2.0\t192.0.2.255\t24\t1234\n", "192.0.2.0/24"},
		{"a bar", "192.0.2.0/24|XX|name", "192.0.2.0/24"},
		{"reserved space", "224.0.0.0/3\nfc00::/7\n0.0.0.0/8\n::/8", "224.0.0.0/3 fc00::/7 0.0.0.0/8 ::/8"},
		{"gzip", packed(t, "192.0.2.1\n"), "192.0.2.1/32"},
	} {
		got, err := Parse([]byte(c.text))
		if err != nil || asText(got) != c.want {
			t.Errorf("%s: %s, %v; want %s", c.name, asText(got), err, c.want)
		}
	}
}

func TestParseJSON(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"Google",
			`{"creationTime": "2026-08-20T14:46:45.000000", "prefixes": [{"ipv6Prefix": "2001:4860:4801:10::/64"}, {"ipv4Prefix": "66.249.64.0/27", "service": "x"}]}`, "2001:4860:4801:10::/64 66.249.64.0/27"},
		{"no mask, bits behind it, empty",
			`{"prefixes":[{"ipv4Prefix":"192.0.2.1"},{"ipv4Prefix":"192.0.2.9/28"},{"ipv4Prefix":""},{},{"ipv6Prefix":null}]}`, "192.0.2.1/32 192.0.2.0/28"},
		{"mark and control bytes",
			"\xef\xbb\xbf\x00{\"prefixes\":[{\"ipv4Prefix\":\"\xef\xbb\xbf192.0.2.0/2\x008\x01 \"}]}\x1a",
			"192.0.2.0/28"},
		{"AWS", `{"syncToken":"1","createDate":"2026-01-01-00-00-00","prefixes":[{"ip_prefix":"3.4.12.4/32","region":"eu-west-1","service":"AMAZON"}],"ipv6_prefixes":[{"ipv6_prefix":"2600:1f00::/24"}]}`, "3.4.12.4/32 2600:1f00::/24"},
		{"Cloudflare",
			`{"result":{"ipv4_cidrs":["192.0.2.0/24"],"ipv6_cidrs":["2001:db8::/32"],"etag":"38f79d050aa027e3be3865e495dcc9bc"},"success":true,"errors":[]}`, "192.0.2.0/24 2001:db8::/32"},
		{"Fastly", `{"addresses":["192.0.2.0/24"],"ipv6_addresses":["2001:db8::/32"]}`, "192.0.2.0/24 2001:db8::/32"},
		{"GitHub",
			`{"verifiable_password_authentication":false,"ssh_key_fingerprints":{"SHA256_RSA":"uNiVztksCsDhcc0u9e8BrqJX3:YJ"},"ssh_keys":["ssh-rsa AAAA"],"hooks":["192.0.2.0/24","2001:db8::/32"],"domains":{"website":["*.github.com"]}}`, "192.0.2.0/24 2001:db8::/32"},
		{"Spamhaus",
			"{\"cidr\":\"192.0.2.0/24\",\"sblid\":\"SBL1\",\"rir\":\"ripencc\"}\n{\"type\":\"metadata\",\"timestamp\":1770000000,\"size\":1}\n", "192.0.2.0/24"},
		{"arrays", `["192.0.2.1", ["2001:db8::/32"], 7, true, null, "v1.2"]`, "192.0.2.1/32 2001:db8::/32"},
		{"Azure", `{"values":[{"name":"x","properties":{"changeNumber":1,"addressPrefixes":["192.0.2.0/24"]}}]}`,
			"192.0.2.0/24"},
		{"by number", `{"1":{"ip":"192.0.2.1","description":"London, UK - 1"},"2":{"ip":"192.0.2.2"}}`,
			"192.0.2.1/32 192.0.2.2/32"},
		{"Datadog",
			`{"version":7,"modified":"2026-01-01-00-00-00","synthetics":{"prefixes_ipv4":["192.0.2.1/32"],"prefixes_ipv6":[]}}`, "192.0.2.1/32"},
		{"a version is not an address", `{"version":"1.2.3.4","prefixes":[]}`, ""},
		{"gzip", packed(t, `["192.0.2.1"]`), "192.0.2.1/32"},
	} {
		got, err := Parse([]byte(c.text))
		if err != nil || asText(got) != c.want {
			t.Errorf("%s: %s, %v; want %s", c.name, asText(got), err, c.want)
		}
	}
}

func TestParseRefusesWholeLists(t *testing.T) {
	deep := strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1)
	for _, c := range []struct{ name, text, want string }{
		{"a broken line", "192.0.2.1\n\nexample.org\n192.0.2.3",
			`line 3: "example.org" is neither an address nor a prefix`},
		{"many", "a\nb\nc\nd\ne\n192.0.2.1",
			`line 1: "a" is neither an address nor a prefix; line 2: "b" is neither an address nor a prefix; line 3: "c" is neither an address nor a prefix; and 2 more lines`},
		{"half a line", "192.0.2.1\n192.0.", `line 2: "192.0." is neither an address nor a prefix`},
		{"a mask", "192.0.2.0 255.255.255.0",
			`line 1: "192.0.2.0 255.255.255.0" has two addresses: write one a line, or FIRST-LAST for a range`},
		{"columns that do not agree", "192.0.2.0 192.0.2.255 23",
			"line 1: \"192.0.2.0 192.0.2.255 23\" has two addresses: write one a line, or FIRST-LAST for a range"},
		{"a range that runs back", "192.0.2.9-192.0.2.1", `line 1: "192.0.2.9-192.0.2.1" is not a range of addresses`},
		{"a range of two kinds", "192.0.2.9-2001:db8::", `line 1: "192.0.2.9-2001:db8::" is not a range of addresses`},
		{"a zone", "fe80::1%eth0", `line 1: "fe80::1%eth0" has a zone: remove % and the text after it`},
		{"everybody", "0.0.0.0/0",
			"line 1: 0.0.0.0/0 is shorter than /8: such a large part of the Internet must be a mistake"},
		{"everybody by IPv6", "::/0",
			"line 1: ::/0 is shorter than /8: such a large part of the Internet must be a mistake"},
		{"everybody by a range", "0.0.0.0-255.255.255.255",
			"line 1: 0.0.0.0/0 is shorter than /8: such a large part of the Internet must be a mistake"},
		{"everybody mapped", "::ffff:0:0/96",
			"line 1: 0.0.0.0/0 is shorter than /8: such a large part of the Internet must be a mistake"},
		{"HTML", "\n<!DOCTYPE html><html>", "a page of HTML or XML, not a list of addresses"},
		{"UTF-16", "\xff\xfe1\x00", "it is UTF-16: save it as UTF-8"},
		{"a long line", strings.Repeat("é", 100), `line 1: "` + strings.Repeat("é", 20) +
			`"… is neither an address nor a prefix`},
		{"incomplete JSON", "{\"prefixes\":[\n{\"ipv4Prefix\":\"192.0.2.0/24\"},\n{\"ipv4", "line 3: incomplete JSON"},
		{"JSON with more behind", "[\"192.0.2.1\"]\nx",
			"line 2: JSON: invalid character 'x' looking for beginning of value"},
		{"JSON with a broken prefix", "{\"prefixes\":[\n{\"ipv4Prefix\":\"192.0.2.0/33\"}]}",
			`line 2: "192.0.2.0/33" is neither an address nor a prefix`},
		{"JSON with a word for a prefix", `{"prefix":"all"}`, `line 1: "all" is neither an address nor a prefix`},
		{"JSON with a broken item", `["192.0.2.256"]`, `line 1: "192.0.2.256" is neither an address nor a prefix`},
		{"JSON for everybody", `["0.0.0.0/1"]`,
			"line 1: 0.0.0.0/1 is shorter than /8: such a large part of the Internet must be a mistake"},
		{"deep JSON", deep, "JSON nested deeper than 32"},
		{"half of gzip", packed(t, strings.Repeat("192.0.2.1\n", 1000))[:30], "gzip: unexpected EOF"},
	} {
		got, err := Parse([]byte(c.text))
		if err == nil || err.Error() != c.want || got != nil {
			t.Errorf("%s: %s, %v\nwant %s", c.name, asText(got), err, c.want)
		}
	}
	var fault *ParseError
	if _, err := Parse([]byte("x")); !errors.As(err, &fault) || fault.Hint() == "" {
		t.Errorf("no hint: %v", err)
	}
}

func TestParseIsBounded(t *testing.T) {
	if _, err := Parse([]byte(packed(t, strings.Repeat("\n", MaxSize+1)))); err == nil ||
		err.Error() != "it is larger than 64 MiB" {
		t.Errorf("packed: %v", err)
	}
	// Each line is 247 prefixes.
	line := "2001:db8::1-2001:dbf:ffff:ffff:ffff:ffff:ffff:fffe\n"
	if got, err := Parse([]byte(strings.Repeat(line, 20_000))); !errors.Is(err, errMany) {
		t.Errorf("%d prefixes, %v", len(got), err)
	}
}

// A span contains exactly the addresses between its ends, each once.
func TestSpanContainsItsRange(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		a, b := random.IntN(1<<16), random.IntN(1<<16)
		if random.IntN(4) == 0 {
			b = a + random.IntN(20)
		}
		a, b = min(a, b), min(max(a, b), 1<<16-1)
		addr := func(n int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, byte(n >> 8), byte(n)}) }
		text := fmt.Sprintf("%s-%s", addr(a), addr(b))
		got, err := Parse([]byte(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		next := addr(a)
		for _, p := range got {
			if p.Addr() != next || p.Masked() != p {
				t.Fatalf("%s: %s at %s", text, asText(got), next)
			}
			next = lastOf(p).Next()
		}
		if next != addr(b).Next() || len(got) > 32 {
			t.Fatalf("%s: ends before %s: %s", text, next, asText(got))
		}
	}
	got, err := Parse([]byte("2001:db8::1-2001:db8::ffff:ffff:ffff:fffe"))
	if err != nil || len(got) != 126 || got[0].String() != "2001:db8::1/128" ||
		lastOf(got[125]).String() != "2001:db8::ffff:ffff:ffff:fffe" {
		t.Errorf("%d: %s, %v", len(got), asText(got), err)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"192.0.2.1\n2001:db8::/32 ; x\n1.2.3.4-1.2.3.9", "a,b\n\"1.2.3.0/24\",x",
		`{"prefixes":[{"ipv4Prefix":"66.249.64.0/27"}]}`,
		`[["::1",{"cidr":"1.2.3.4"}]]`, "1.2.3.0\t1.2.3.255\t24", "\xef\xbb\xbf[\x00\"1.2.3.4\"]", "\x1f\x8b",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := Parse(data)
		if err != nil {
			if err.Error() == "" || len(err.Error()) > 2000 {
				t.Errorf("%q: error %q", data, err)
			}
			return
		}
		var b strings.Builder
		for _, p := range got {
			if !p.IsValid() || p != p.Masked() || p.Addr().Is4In6() || tooWide(p) {
				t.Errorf("%q: %v", data, p)
			}
			b.WriteString(p.String() + "\n")
		}
		again, err := Parse([]byte(b.String()))
		if err != nil || !cmp.Equal(again, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })) &&
			len(got) > 0 {
			t.Errorf("%q: %v, then %v, %v", data, got, again, err)
		}
	})
}

// many returns half a million prefixes in the format of feeds.
func many() []byte {
	random := rand.New(rand.NewPCG(1, 2))
	var b bytes.Buffer
	for i := range 500_000 {
		switch i % 5 {
		case 0:
			fmt.Fprintf(&b, "%d.%d.%d.0/24 ; SBL%d\n", 1+random.IntN(223), random.IntN(256), random.IntN(256), i)
		case 1:
			fmt.Fprintf(&b, "2001:%x:%x::/48\n", random.IntN(1<<16), random.IntN(1<<16))
		default:
			fmt.Fprintf(&b, "%d.%d.%d.%d\n", 1+random.IntN(223), random.IntN(256), random.IntN(256), random.IntN(256))
		}
	}
	return b.Bytes()
}

// Half a million prefixes, from bytes to a table: 0.24 s as text and 0.36 s as JSON; two seconds
// are allowed.
func BenchmarkLoadHalfAMillion(b *testing.B) {
	for name, data := range map[string][]byte{"text": many(), "json": asJSON(many())} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				got, err := Parse(data)
				if err != nil || len(got) != 500_000 {
					b.Fatal(len(got), err)
				}
				var table bart.Lite
				for _, p := range got {
					table.Insert(p)
				}
				if table.Size() < 490_000 {
					b.Fatal(table.Size())
				}
			}
		})
	}
}

// Look-ups of addresses in half a million prefixes, mostly without a hit.
func BenchmarkMatchHalfAMillion(b *testing.B) {
	all, err := Parse(many())
	if err != nil {
		b.Fatal(err)
	}
	var table bart.Lite
	for _, p := range all {
		table.Insert(p)
	}
	random := rand.New(rand.NewPCG(3, 4))
	addrs := make([]netip.Addr, 1<<16)
	for i := range addrs {
		addrs[i] = netip.AddrFrom4([4]byte{byte(1 + random.IntN(223)), byte(random.IntN(256)), byte(random.IntN(256)),
			byte(random.IntN(256))})
	}
	b.ReportAllocs()
	i, in := 0, 0
	for b.Loop() {
		if table.Contains(addrs[i&(1<<16-1)]) {
			in++
		}
		i++
	}
	if in == 0 || in == i {
		b.Fatal(in, i)
	}
}

func asJSON(text []byte) []byte {
	var b bytes.Buffer
	b.WriteString(`{"creationTime":"2026-01-01T00:00:00","prefixes":[`)
	comma := ""
	for line := range bytes.Lines(text) {
		line, _, _ = bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		fmt.Fprintf(&b, "%s\n{\"ipv4Prefix\":%q}", comma, line)
		comma = ","
	}
	b.WriteString("]}")
	return b.Bytes()
}
