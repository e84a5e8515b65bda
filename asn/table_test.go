package asn

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/maxmind/mmdbwriter"
	"github.com/maxmind/mmdbwriter/mmdbtype"

	"fairshare"
)

// write writes a file and returns its name.
func write(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// parsed returns the table of a CSV text.
func parsed(t testing.TB, text string) *Table {
	t.Helper()
	table, err := Load(Files{Tables: []string{write(t, "asn.csv", text)}})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func owner(table *Table, addr string) string { return table.Owner(netip.MustParseAddr(addr)).String() }

func TestTableFindsTheOwnerOfAnAddress(t *testing.T) {
	table := parsed(t, `10.0.0.0,10.0.0.255,64500,"Example, Inc."
10.0.1.0,10.0.1.255,64501,Second
10.0.2.0,10.0.2.255,64501,Second
10.0.4.0,10.0.7.255,0,Not routed
255.255.255.0,255.255.255.255,64502,Last
2001:db8::,2001:db8:0:ffff:ffff:ffff:ffff:ffff,64500,"Example, Inc."
2001:db8:1::,2001:db8:1::,64501,Second
fd00::,fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff,64503,Private
ffff:ffff::,ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff,64502,Last
`)
	for addr, want := range map[string]string{
		"9.255.255.255": "", "10.0.0.0": "AS64500 Example, Inc.", "10.0.0.255": "AS64500 Example, Inc.",
		"10.0.1.0": "AS64501 Second", "10.0.2.255": "AS64501 Second", "10.0.3.0": "", "10.0.4.9": "",
		"255.255.254.255": "", "255.255.255.255": "AS64502 Last", "0.0.0.0": "", "::": "",
		"::ffff:10.0.0.7": "AS64500 Example, Inc.", "2001:db8::1": "AS64500 Example, Inc.",
		"2001:db7:ffff::": "", "2001:db8:0:ffff:ffff:ffff:ffff:ffff": "AS64500 Example, Inc.",
		"2001:db8:1::": "AS64501 Second", "2001:db8:1::1": "", "fd12::1": "AS64503 Private", "fe80::1%eth0": "",
		"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff": "AS64502 Last", "ffff:fffe::": "",
	} {
		if got := owner(table, addr); got != want {
			t.Errorf("owner of %s: %q, want %q", addr, got, want)
		}
	}
	if table.Ranges() != 8 || table.Len() != 4 {
		t.Errorf("%s", table)
	}
	if got := table.Owner(netip.Addr{}); got != (fairshare.Owner{}) {
		t.Errorf("owner of no address: %v", got)
	}
}

// Random ranges, against a search through all of them.
func TestTableAgreesWithASearchOfAllRanges(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		var text strings.Builder
		var ranges [][2]netip.Addr
		for base := range 200 {
			if rnd.IntN(3) == 0 {
				continue
			}
			four := base%2 == 0
			at := func(offset int) netip.Addr {
				if four {
					return netip.AddrFrom4([4]byte{byte(base), byte(base * 7), byte(offset >> 8), byte(offset)})
				}
				return netip.AddrFrom16([16]byte{byte(base >> 2 * 3), byte(base), byte(base), 14: byte(offset >> 8),
					15: byte(offset)})
			}
			for low := 0; low < 1<<16; {
				first := low + rnd.IntN(20000)
				last := first + rnd.IntN(20000)
				if last >= 1<<16 {
					break
				}
				low = last + 1 + rnd.IntN(2)*rnd.IntN(5)
				fmt.Fprintf(&text, "%s,%s,%d,Owner %[3]d\n", at(first), at(last), len(ranges)+1)
				ranges = append(ranges, [2]netip.Addr{at(first), at(last)})
			}
		}
		table := parsed(t, text.String())
		for range 20000 {
			near := ranges[rnd.IntN(len(ranges))]
			addr := near[rnd.IntN(2)]
			switch rnd.IntN(3) {
			case 0:
				addr = addr.Next()
			case 1:
				addr = addr.Prev()
			}
			if !addr.IsValid() {
				continue
			}
			want := 1 + slices.IndexFunc(ranges, func(r [2]netip.Addr) bool {
				return r[0].Is4() == addr.Is4() && !addr.Less(r[0]) && !r[1].Less(addr)
			})
			if got := table.Owner(addr); got.ASN != uint32(want) {
				t.Fatalf("owner of %s: %v, want AS%d", addr, got, want)
			}
		}
	}
}

// Of overlapping ranges, the one that begins later counts, then the one that
// ends first, then the one that is listed later.
func TestRangesMayOverlap(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		var text strings.Builder
		type span struct{ first, last, number int }
		var spans []span
		for n := range 1 + rnd.IntN(8) {
			s := span{first: rnd.IntN(40), number: 1 + n%3}
			s.last = s.first + rnd.IntN(40-s.first)
			spans = append(spans, s)
			fmt.Fprintf(&text, "255.255.255.%d,255.255.255.%d,%d,\n", 216+s.first, 216+s.last, s.number)
			fmt.Fprintf(&text, "ffff::%x,ffff::%x,%d,\n", s.first, s.last, s.number)
		}
		table := parsed(t, text.String())
		for at := range 40 {
			best := span{first: -1}
			for _, s := range spans {
				later := s.first > best.first || s.first == best.first && s.last <= best.last
				if s.first <= at && at <= s.last && later {
					best = s
				}
			}
			four, six := fmt.Sprintf("255.255.255.%d", 216+at), fmt.Sprintf("ffff::%x", at)
			if got := table.Owner(netip.MustParseAddr(four)).ASN; got != uint32(best.number) {
				t.Fatalf("owner of %s in\n%s: AS%d, want AS%d", four, text.String(), got, best.number)
			}
			if got := table.Owner(netip.MustParseAddr(six)).ASN; got != uint32(best.number) {
				t.Fatalf("owner of %s in\n%s: AS%d, want AS%d", six, text.String(), got, best.number)
			}
		}
	}
}

func TestTablesOfManyPublishersAreRead(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"GeoLite2": {`network,autonomous_system_number,autonomous_system_organization
192.0.2.0/24,64500,"Example, Inc."`, "AS64500 Example, Inc. "},
		"IPinfo": {`start_ip,end_ip,asn,name,domain,type
192.0.2.0,192.0.2.255,AS64500,"Example, Inc.",example.com,Hosting`, "AS64500 Example, Inc. hosting"},
		"IPinfo Lite": {`network,country,country_code,continent,continent_code,asn,as_name,as_domain
192.0.2.0/24,Germany,DE,Europe,EU,AS64500,"Example, Inc.",example.com`, "AS64500 Example, Inc. "},
		"ip-location-db": {`192.0.2.0,192.0.2.255,64500,"Example, Inc."`, "AS64500 Example, Inc. "},
		"iptoasn":        {"192.0.2.0\t192.0.2.255\t64500\tDE\tExample, Inc.", "AS64500 Example, Inc. "},
		"semicolons":     {"192.0.2.0/24; 64500; Example", "AS64500 Example "},
		"a byte order mark and CRLF": {"\uFEFFprefix,asn,name\r\n192.0.2.0/24,64500,Example\r\n",
			"AS64500 Example "},
		"a comment, and no name": {"# mine\n192.0.2.1,AS64500\n", "AS64500 "},
		"control characters":     {"192.0.2.0/24,64500,Ex\x1b[31mam\u0085ple\n", "AS64500 Ex[31mample "},
		"rows without an owner": {"network,asn,name\n192.0.1.0/24,,\n192.0.2.0/24,64500,Example\n198.51.100.0/24,0,-\n",
			"AS64500 Example "},
	} {
		o := parsed(t, c.text).Owner(netip.MustParseAddr("192.0.2.1"))
		if got := o.String() + " " + o.Type; got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestTableCanBePackedAndInSeveralFiles(t *testing.T) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	fmt.Fprint(w, "2001:db8::/32,64501,Second\n")
	w.Close()
	files := Files{Tables: []string{write(t, "v4.csv", "192.0.2.0/24,64500,First\n"),
		write(t, "v6.csv.gz", packed.String())},
		Hosting: write(t, "hosting.csv", "ASN,Entity\n64501, \"Second, Inc.\"\n# mine\nAS64502\n")}
	table, err := Load(files)
	if err != nil {
		t.Fatal(err)
	}
	if got := table.Owner(netip.MustParseAddr("192.0.2.1")); got.Name != "First" || got.Type != "" {
		t.Errorf("IPv4: %+v", got)
	}
	if got := table.Owner(netip.MustParseAddr("2001:db8::1")); got.Name != "Second" || got.Type != Hosting {
		t.Errorf("IPv6: %+v", got)
	}
	truncated := write(t, "v6.csv.gz", packed.String()[:packed.Len()-9])
	if _, err := Load(Files{Tables: []string{truncated}}); err == nil || !strings.Contains(err.Error(), "truncated") {
		t.Errorf("a truncated file: %v", err)
	}
}

func TestBrokenTablesAreErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       "it contains no address",
		"<!DOCTYPE html>\n<html>":                "it is not a table of autonomous systems",
		"name,age\nBob,3":                        "it is not a table of autonomous systems",
		"192.0.2.0/24":                           "the number of the autonomous system is missing",
		"192.0.2.0/33,64500,X":                   "it is not a table",
		"192.0.2.0/24,64500,X\n192.0.3.0/33,1,X": `line 2: "192.0.3.0/33" is not a network`,
		"192.0.2.0,192.0.1.0,64500,X":            "line 1: the last address 192.0.1.0 is before the first, 192.0.2.0",
		"192.0.2.0,2001:db8::,64500,X":           "line 1: the first and the last address are not of one family",
		"192.0.2.0/24,Bob,X":                     `line 1: "Bob" is not the number of an autonomous system`,
		"192.0.2.0/24,4294967296,X":              `line 1: "4294967296" is not the number`,
	} {
		_, err := Load(Files{Tables: []string{write(t, "asn.csv", text)}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	for text, want := range map[string]string{
		"ASN\n":          "it contains no number",
		"64500\nBob\n":   `line 2: "Bob" is not the number`,
		"a\nb\n":         `line 2: "b" is not the number`,
		"AS4294967296\n": "it contains no number",
	} {
		_, err := Load(Files{Tables: []string{write(t, "asn.csv", "192.0.2.0/24,64500,X")},
			Hosting: write(t, "hosting.txt", text)})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("hosting %q: %v, want %q", text, err, want)
		}
	}
	if _, err := Load(Files{Tables: []string{"nowhere/asn.mmdb"}}); err == nil ||
		Faulty(err) != "nowhere/asn.mmdb" {
		t.Errorf("a missing file: %v", err)
	}
}

// database returns a file in MMDB form.
func database(t testing.TB, kind string, networks map[string]mmdbtype.Map) string {
	t.Helper()
	tree, err := mmdbwriter.New(mmdbwriter.Options{DatabaseType: kind, IncludeReservedNetworks: true})
	if err != nil {
		t.Fatal(err)
	}
	for network, record := range networks {
		_, prefix, err := net.ParseCIDR(network)
		if err != nil {
			t.Fatal(err)
		}
		if err := tree.Insert(prefix, record); err != nil {
			t.Fatal(err)
		}
	}
	var b bytes.Buffer
	if _, err := tree.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestDatabasesInMMDBFormAreRead(t *testing.T) {
	text := database(t, "GeoLite2-ASN", map[string]mmdbtype.Map{
		"192.0.2.0/24": {"autonomous_system_number": mmdbtype.Uint32(64500),
			"autonomous_system_organization": mmdbtype.String("Example, Inc.")},
		"2001:db8::/32": {"asn": mmdbtype.String("AS64501"), "name": mmdbtype.String("Second"),
			"type": mmdbtype.String("Hosting")},
		"198.51.100.0/24": {"asn": mmdbtype.String("AS64502"), "as_name": mmdbtype.String("Lite")},
		"203.0.113.0/24":  {"autonomous_system_organization": mmdbtype.String("Nobody")},
	})
	table, err := Load(Files{Tables: []string{write(t, "asn.mmdb", text)}})
	if err != nil {
		t.Fatal(err)
	}
	for addr, want := range map[string]fairshare.Owner{
		"192.0.2.1": {ASN: 64500, Name: "Example, Inc."}, "192.0.3.1": {}, "203.0.113.1": {},
		"2001:db8::1":  {ASN: 64501, Name: "Second", Type: "hosting"},
		"198.51.100.1": {ASN: 64502, Name: "Lite"},
		"2001:db9::1":  {},
	} {
		if got := table.Owner(netip.MustParseAddr(addr)); got != want {
			t.Errorf("owner of %s: %+v, want %+v", addr, got, want)
		}
	}
	for at := 1; at < len(text); at += 1 + len(text)/50 {
		if _, err := Load(Files{Tables: []string{write(t, "asn.mmdb", text[:at])}}); err == nil {
			t.Fatalf("%d of %d bytes are read without an error", at, len(text))
		}
	}
	city := database(t, "GeoLite2-City", map[string]mmdbtype.Map{
		"192.0.2.0/24": {"city": mmdbtype.Map{"geoname_id": mmdbtype.Uint32(1)}}})
	_, err = Load(Files{Tables: []string{write(t, "city.mmdb", city)}})
	if err == nil || !strings.Contains(err.Error(), `not a table of autonomous systems, but of the type "GeoLite2-City"`) ||
		Hint(err) == "" {
		t.Errorf("a database of cities: %v", err)
	}
}

func TestLiveTableIsReadAgainWhenItsFileChanges(t *testing.T) {
	path := write(t, "asn.csv", "192.0.2.0/24,64500,First\n")
	old := time.Now().Add(-time.Hour)
	os.Chtimes(path, old, old)
	var lines []string
	live, err := Open(Files{Tables: []string{path}}, nil, func(line string) { lines = append(lines, line) })
	if err != nil {
		t.Fatal(err)
	}
	change := func(text string, age time.Duration) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		os.Chtimes(path, old.Add(age), old.Add(age))
	}
	checks := func(n int) {
		for range n {
			live.check(time.Now())
		}
	}
	addr := netip.MustParseAddr("192.0.2.1")
	change("192.0.2.0/24,64501,Second\n192.0.3.0/24,64501,Second\n", time.Minute)
	checks(1)
	if got := live.Owner(addr).ASN; got != 64500 {
		t.Errorf("after one check: AS%d; the file may still be written", got)
	}
	checks(2)
	if got := live.Owner(addr).ASN; got != 64501 || len(lines) != 1 {
		t.Errorf("after the change: AS%d, %q", got, lines)
	}
	change("192.0.2.0/24,Bob\n", 2*time.Minute)
	checks(4)
	if got := live.Owner(addr).ASN; got != 64501 || len(lines) != 2 ||
		!strings.Contains(lines[1], "the table in use stays") {
		t.Errorf("with a broken file: AS%d, %q", got, lines)
	}
	os.Remove(path)
	checks(3)
	if got := live.Owner(addr).ASN; got != 64501 || len(lines) != 3 {
		t.Errorf("without a file: AS%d, %q", got, lines)
	}
	change("192.0.2.0/24,64502,Third\n", 3*time.Minute)
	checks(3)
	if got := live.Owner(addr).ASN; got != 64502 || len(lines) != 4 {
		t.Errorf("with a good file: AS%d, %q", got, lines)
	}
	again, err := Open(Files{Tables: []string{path}}, live, nil)
	if err != nil || again.Table() != live.Table() {
		t.Errorf("the unchanged file was read again: %v", err)
	}
	var none *Live
	if got := none.Owner(addr); got.ASN != 0 || none.Table().String() != "none" {
		t.Error("a nil table has owners")
	}
}

func text4(a addr6) string {
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, uint32(a.low)))).String()
}

func text6(a addr6) string {
	b := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, a.high), a.low)
	return netip.AddrFrom16([16]byte(b)).String()
}

func FuzzCSV(f *testing.F) {
	f.Add("192.0.2.0,192.0.2.255,64500,\"Example, Inc.\"\n")
	f.Add("network,asn,name\n2001:db8::/32,AS64500,Example\n")
	f.Add("192.0.2.0\t192.0.2.255\t64500\tDE\tExample\n")
	f.Add("\"\n,;\t-\n")
	f.Fuzz(func(t *testing.T, text string) {
		b := newBuilder(map[uint32]bool{1: true})
		if b.readCSV(bufio.NewReader(strings.NewReader(text))) != nil {
			return
		}
		table, err := b.table()
		if err != nil {
			return
		}
		var again strings.Builder
		all := append(slices.Clone(b.v4), b.v6...)
		for i, s := range all {
			print := text6
			if i < len(b.v4) {
				print = text4
			}
			o := table.owners[s.owner]
			fmt.Fprintf(&again, "%s,%s,%d,%q\n", print(s.first), print(s.last), o.ASN, o.Name)
			if o.Name != clean(o.Name) {
				t.Fatalf("a name with control characters: %q", o.Name)
			}
		}
		c := newBuilder(nil)
		if err := c.readCSV(bufio.NewReader(strings.NewReader(again.String()))); err != nil {
			t.Fatalf("%q: %v", again.String(), err)
		}
	})
}

// realTable returns the table that the environment names.
func realTable(tb testing.TB) *Table {
	tb.Helper()
	table, err := Load(Files{Tables: []string{os.Getenv("ASN_IPV4"), os.Getenv("ASN_IPV6")},
		Hosting: os.Getenv("ASN_HOSTING")})
	if err != nil {
		tb.Skip("ASN_IPV4, ASN_IPV6 and ASN_HOSTING name no table:", err)
	}
	return table
}

func BenchmarkOwner(b *testing.B) {
	table := realTable(b)
	rnd := rand.New(rand.NewPCG(1, 2))
	addrs := make([]netip.Addr, 1<<16)
	for i := range addrs {
		addrs[i] = netip.AddrFrom4([4]byte{byte(1 + rnd.IntN(222)), byte(rnd.Uint32()), byte(rnd.Uint32()), 1})
		if i%4 == 0 {
			addrs[i] = netip.AddrFrom16([16]byte{0x20 + byte(rnd.IntN(16)), byte(rnd.Uint32()), byte(rnd.Uint32()), 5})
		}
	}
	b.ReportAllocs()
	i, found := 0, 0
	for b.Loop() {
		if table.Owner(addrs[i&(len(addrs)-1)]).ASN != 0 {
			found++
		}
		i++
	}
	if found == 0 {
		b.Fatal("no owner was found")
	}
}

func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		realTable(b)
	}
}
