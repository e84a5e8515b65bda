package visitor

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairshare"
)

var (
	start  = time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)
	secret = []byte("a secret of thirty-two bytes, or")
	other  = []byte("another secret of 32 bytes, here")
)

func open(t testing.TB, opts Options) *Cookies {
	t.Helper()
	c, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func request(addr string) *fairshare.Request {
	return &fairshare.Request{Addr: netip.MustParseAddr(addr)}
}

// sign returns a new cookie of an address.
func (c *Cookies) sign(t testing.TB, addr string, at time.Time, change Change) (string, fairshare.Visitor) {
	t.Helper()
	value, v, ok := c.Sign(fairshare.Visitor{}, request(addr), at, at, change)
	if !ok {
		t.Fatalf("%s gets no cookie", addr)
	}
	return value, v
}

func TestCookieIdentifiesItsVisitor(t *testing.T) {
	c := open(t, Options{Secrets: [][]byte{secret}})
	value, v := c.sign(t, "192.0.2.1", start, Change{})
	if size := len(Name + "=" + value); size > 80 {
		t.Errorf("the cookie has %d bytes, want at most 80", size)
	}
	_, sameNetwork := c.sign(t, "192.0.2.200", start, Change{})
	_, elsewhere := c.sign(t, "198.51.100.1", start, Change{})
	_, sameWider := c.sign(t, "192.0.99.1", start, Change{})
	if v.Network != sameNetwork.Network || v.Network == elsewhere.Network || v.ID == sameNetwork.ID ||
		v.Wider != sameWider.Wider || v.Wider == elsewhere.Wider || v.Network == sameWider.Network {
		t.Errorf("identities %+v, %+v of one network, %+v of another", v, sameNetwork, elsewhere)
	}
	for _, test := range []struct {
		name  string
		value string
		at    time.Duration
		found bool
		renew bool
	}{
		{"at once", value, 0, true, false},
		{"after two days", value, 48 * time.Hour, true, true},
		{"after its lifetime", value, lifetime + time.Second, false, false},
		{"of a clock that is a little ahead", value, -30 * time.Second, true, false},
		{"of a clock that is far ahead", value, -2 * time.Minute, false, false},
		{"cut short", value[:len(value)-1], 0, false, false},
		{"with more behind it", value + "A", 0, false, false},
		{"empty", "", 0, false, false},
	} {
		// The clock of requests is not that of the day.
		now := start.Add(1000*time.Hour + test.at)
		found := c.Read(test.value, now, start.Add(test.at))
		same := found.ID == v.ID && found.Network == v.Network && found.Wider == v.Wider
		if same != test.found || found.Renew != test.renew {
			t.Errorf("%s: found %+v, want %v", test.name, found, test.found)
		}
		if want := now.Add(-max(test.at, 0)); test.found && !found.Since.Equal(want) {
			t.Errorf("%s: known since %v, want %v", test.name, found.Since, want)
		}
	}
}

// Each changed bit makes a cookie invalid.
func TestForgedCookiesIdentifyNobody(t *testing.T) {
	c := open(t, Options{Secrets: [][]byte{secret}})
	value, _ := c.sign(t, "192.0.2.1", start, Change{})
	raw, err := encoding.DecodeString(value)
	if err != nil {
		t.Fatal(err)
	}
	for i := range raw {
		for bit := range 8 {
			forged := slices.Clone(raw)
			forged[i] ^= 1 << bit
			if found := c.Read(encoding.EncodeToString(forged), start, start); found.ID != 0 {
				t.Errorf("with bit %d of byte %d changed: %+v", bit, i, found)
			}
		}
	}
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := strings.IndexByte(alphabet, value[len(value)-1])
	for _, c2 := range []byte{alphabet[last^1], '=', ' '} { // the last character has unused bits
		if found := c.Read(value[:len(value)-1]+string(c2), start, start); found.ID != 0 {
			t.Errorf("with %q at the end: %+v", c2, found)
		}
	}
}

func TestSecretsRotate(t *testing.T) {
	old, both, fresh := open(t, Options{Secrets: [][]byte{secret}}),
		open(t, Options{Secrets: [][]byte{other, secret}}), open(t, Options{Secrets: [][]byte{other}})
	value, v := old.sign(t, "192.0.2.1", start, Change{})
	found := both.Read(value, start, start)
	if found.ID != v.ID || !found.Renew {
		t.Errorf("with a former secret: %+v, want it to be renewed", found)
	}
	if found := fresh.Read(value, start, start); found.ID != 0 {
		t.Errorf("with another secret: %+v", found)
	}
	value, renewed, ok := both.Sign(found.Visitor, request("203.0.113.1"), start, start, Change{})
	if !ok || renewed.ID != v.ID || renewed.Network != v.Network {
		t.Errorf("renewed: %+v, want the identity %+v", renewed, v)
	}
	if found := fresh.Read(value, start, start); found.ID != v.ID || found.Renew {
		t.Errorf("renewed with another secret: %+v", found)
	}
	if err := fresh.SetSecrets([][]byte{[]byte("short")}); err == nil {
		t.Error("a short secret is accepted")
	}
	random := open(t, Options{})
	value, _ = random.sign(t, "192.0.2.1", start, Change{})
	if random.Read(value, start, start).ID == 0 {
		t.Error("without a secret the own cookies are invalid")
	}
}

// The tag of the wider network is that of the owner, if it is known and proved.
func TestCookieHoldsATagOfTheOwner(t *testing.T) {
	c := open(t, Options{})
	tag := func(change func(*fairshare.Request)) uint16 {
		req := request("192.0.2.1")
		change(req)
		_, v, ok := c.Sign(fairshare.Visitor{}, req, start, start, Change{})
		if !ok || v.Wider == 0 {
			t.Fatalf("%+v: %+v", req, v)
		}
		return v.Wider
	}
	owned := tag(func(req *fairshare.Request) { req.Owner.ASN = 64500 })
	if other := tag(func(req *fairshare.Request) {
		req.Owner.ASN, req.Addr = 64500, netip.MustParseAddr("2001:db8::1")
	}); other != owned {
		t.Error("two networks of one owner have different tags")
	}
	if unknown := tag(func(*fairshare.Request) {}); unknown == owned {
		t.Error("an unknown owner has the tag of a known one")
	}
	if named := tag(func(req *fairshare.Request) {
		req.Owner.ASN, req.Via = 64500, netip.MustParseAddr("127.0.0.1")
	}); named == owned {
		t.Error("the owner of a provisional address counts")
	}
}

func TestPlaceInTheWaitingRoomEndsAfterAMinute(t *testing.T) {
	c := open(t, Options{})
	value, v := c.sign(t, "192.0.2.1", start, Change{Waits: start.Add(-20 * time.Second)})
	for _, test := range []struct {
		after time.Duration
		waits time.Duration // before start; 0: no place
	}{{0, 20 * time.Second}, {time.Minute, 20 * time.Second}, {time.Minute + time.Second, 0}} {
		at := start.Add(test.after)
		found := c.Read(value, at, at)
		if want := start.Add(-test.waits); found.ID != v.ID || !found.Waits.Equal(want) && test.waits > 0 ||
			test.waits == 0 && !found.Waits.IsZero() {
			t.Errorf("after %v: %+v, want a place since %v before the start", test.after, found, test.waits)
		}
	}
	// The next cookie without a place ends it.
	value, _, _ = c.Sign(v, request("192.0.2.1"), start, start, Change{})
	if found := c.Read(value, start, start); !found.Waits.IsZero() {
		t.Errorf("after the turn: %+v", found)
	}
}

func TestAPassedStepRaisesStandingWithinBounds(t *testing.T) {
	c := open(t, Options{})
	for _, test := range []struct{ age, raise, want time.Duration }{
		{0, 0, 0},
		{0, time.Minute, time.Minute},
		{0, time.Hour, maxRaise}, // a step is worth ten minutes at most
		{time.Hour, time.Minute, time.Hour},
	} {
		_, v := c.sign(t, "192.0.2.1", start, Change{})
		now := start.Add(test.age)
		_, raised, _ := c.Sign(v, request("192.0.2.1"), now, now, Change{Raise: test.raise, Member: true})
		if got := now.Sub(raised.Since); got != test.want || !raised.Member {
			t.Errorf("age %v, raised by %v: known for %v, want %v; member %v", test.age, test.raise, got, test.want,
				raised.Member)
		}
	}
}

func TestEachNetworkGetsABoundedNumberOfCookies(t *testing.T) {
	c := open(t, Options{PerNetwork: 10})
	get := func(req *fairshare.Request, at time.Time) bool {
		_, _, ok := c.Sign(fairshare.Visitor{}, req, at, at, Change{})
		return ok
	}
	peer := netip.MustParseAddr("127.0.0.1")
	for _, test := range []struct {
		name string
		req  func(i int) *fairshare.Request
	}{
		{"addresses of a /24", func(i int) *fairshare.Request {
			return &fairshare.Request{Addr: netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})}
		}},
		{"addresses of a /48", func(i int) *fairshare.Request {
			return &fairshare.Request{Addr: netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 0, 1, byte(i), 15: byte(i)})}
		}},
		{"clients that an unnamed peer names", func(i int) *fairshare.Request {
			return &fairshare.Request{Addr: netip.AddrFrom4([4]byte{203, byte(i), 2, 1}), Via: peer}
		}},
		{"unknown addresses", func(int) *fairshare.Request { return &fairshare.Request{} }},
	} {
		n := 0
		for i := range 100 {
			if get(test.req(i), start) {
				n++
			}
		}
		if n != 10 {
			t.Errorf("%s: %d cookies at once, want 10", test.name, n)
		}
		if !get(test.req(0), start.Add(6*time.Minute)) || get(test.req(1), start.Add(6*time.Minute)) {
			t.Errorf("%s: want one more cookie after a tenth of an hour", test.name)
		}
	}
	// A visitor with a cookie is signed again in any network.
	_, v := c.sign(t, "198.51.100.1", start, Change{})
	for range 100 {
		if _, _, ok := c.Sign(v, request("192.0.2.1"), start, start, Change{}); !ok {
			t.Fatal("a known visitor is not signed again")
		}
	}
}

func TestStripLeavesTheCookiesOfTheSite(t *testing.T) {
	for _, test := range []struct{ in, want []string }{
		{nil, nil},
		{[]string{"a=b"}, []string{"a=b"}},
		{[]string{"fs1=x"}, nil},
		{[]string{"fs1=x; a=b"}, []string{"a=b"}},
		{[]string{"a=b; fs1=x"}, []string{"a=b"}},
		{[]string{"a=b; fs1=x; c=d"}, []string{"a=b; c=d"}},
		{[]string{"a=b;fs1=x;fs1=y;c=d", "fs1=z", "e=f"}, []string{"a=b; c=d", "e=f"}},
		{[]string{"afs1=x; b=fs1=y"}, []string{"afs1=x; b=fs1=y"}},
		{[]string{"a=\"fs1=x\"; fs1="}, []string{"a=\"fs1=x\""}},
		{[]string{" fs1=x ;; a=b"}, []string{"a=b"}},
	} {
		if got := Strip(slices.Clone(test.in)); !slices.Equal(got, test.want) {
			t.Errorf("Strip(%q) = %q, want %q", test.in, got, test.want)
		}
	}
}

func TestFind(t *testing.T) {
	for _, test := range []struct {
		lines []string
		want  string
		found bool
	}{
		{nil, "", false},
		{[]string{"a=b"}, "", false},
		{[]string{"fs1=x"}, "x", true},
		{[]string{"a=b; fs1=x; c=d"}, "x", true},
		{[]string{"a=b", "c=fs1=z;fs1=x"}, "x", true},
		{[]string{"afs1=x"}, "", false},
	} {
		if got, found := Find(test.lines); got != test.want || found != test.found {
			t.Errorf("Find(%q) = %q, %v, want %q, %v", test.lines, got, found, test.want, test.found)
		}
	}
}

// A header of a megabyte with many cookies once took half a minute.
func TestManyCookiesTakeLinearTime(t *testing.T) {
	const size = 1 << 20
	for _, part := range []string{"a=b;", "fs1;", "a=fs10;", ";", "fs1=;", "fs1=;a;", "xfs1=;"} {
		line := "a;" + strings.Repeat(part, size/len(part)) + "xfs1="
		want := []byte(nil)
		for pair := range strings.SplitSeq(line, ";") {
			if name, _, ok := strings.Cut(pair, "="); !ok || name != Name {
				want = append(want, pair[:min(len(pair), 1)]...) // enough to tell them apart
			}
		}
		_, found := Find([]string{line})
		if found != strings.HasPrefix(part, "fs1=") {
			t.Errorf("%q: found %v", part, found)
		}
		got := ""
		allocs := testing.AllocsPerRun(1, func() {
			for _, rest := range Strip([]string{line}) {
				got = rest
			}
		})
		if allocs > 64 {
			t.Errorf("%q: %v allocations", part, allocs)
		}
		first := make([]byte, 0, len(want))
		for pair := range strings.SplitSeq(got, ";") {
			pair = strings.TrimLeft(pair, " ")
			first = append(first, pair[:min(len(pair), 1)]...)
		}
		if !bytes.Equal(first, want) {
			t.Errorf("%q: other cookies have changed", part)
		}
	}
}

func TestSetCookie(t *testing.T) {
	const want = "fs1=x; Path=/; Max-Age=5184000; HttpOnly; SameSite=Lax"
	if got := SetCookie("x", false); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := SetCookie("x", true); got != want+"; Secure" {
		t.Errorf("over TLS: %q", got)
	}
}

// What Read accepts was signed by Sign, and Strip removes all that Find finds.
func FuzzRead(f *testing.F) {
	c := open(f, Options{Secrets: [][]byte{secret}})
	v := fairshare.Visitor{ID: 1, Network: 2, Since: start} // the same in each process of the fuzzer
	value, _, _ := c.Sign(v, request("192.0.2.1"), start, start, Change{})
	f.Add("a=b; fs1=" + value)
	f.Add("fs1=" + value + "; fs1=x")
	f.Add(" fs1 = x;;=; fs1=\"" + value + "\"")
	f.Fuzz(func(t *testing.T, line string) {
		got, _ := Find([]string{line})
		if found := c.Read(got, start, start); found.ID != 0 && got != value {
			t.Errorf("%q identifies %+v", line, found)
		}
		if rest := Strip([]string{line}); len(rest) > 0 {
			if _, found := Find(rest); found {
				t.Errorf("%q holds a cookie after Strip: %q", line, rest)
			}
		}
	})
}

func BenchmarkRead(b *testing.B) {
	c := open(b, Options{})
	value, _ := c.sign(b, "192.0.2.1", start, Change{})
	for name, lines := range map[string][]string{"valid": {"session=0123456789abcdef; fs1=" + value},
		"none": {"session=0123456789abcdef; theme=dark"}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				value, _ := Find(lines)
				if found := c.Read(value, start, start); (found.ID != 0) != (name == "valid") {
					b.Fatal(found)
				}
			}
		})
	}
}
