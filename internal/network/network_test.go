package network

import (
	"net/netip"
	"testing"
)

func TestNetworkOfAnAddress(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.9":        "192.0.2.0/24",
		"::ffff:192.0.2.9": "192.0.2.0/24",
		"2001:db8:1:2::3":  "2001:db8:1::/48",
		"fe80::1%eth0":     "fe80::/48",
	} {
		if got := Of(netip.MustParseAddr(addr)); got.String() != want {
			t.Errorf("Of(%s) = %s, want %s", addr, got, want)
		}
	}
	if got := Of(netip.Addr{}); got != (netip.Prefix{}) {
		t.Errorf("Of of an invalid address = %s, want the zero Prefix", got)
	}
}

func TestNetworkAroundAClient(t *testing.T) {
	for client, want := range map[string]string{
		"192.0.2.9/32":          "192.0.2.0/24",
		"192.0.2.9/16":          "192.0.0.0/16",
		"::ffff:192.0.2.9/128":  "192.0.2.0/24",
		"::ffff:192.0.2.9/112":  "192.0.0.0/16",
		"2001:db8:1:2::/64":     "2001:db8:1::/48",
		"2001:db8:1:2::/32":     "2001:db8::/32",
		"0.0.0.0/0":             "0.0.0.0/0",
		"2001:db8:1:2:3::4/128": "2001:db8:1::/48",
	} {
		if got := Around(netip.MustParsePrefix(client)); got.String() != want {
			t.Errorf("Around(%s) = %s, want %s", client, got, want)
		}
	}
	if got := Around(netip.Prefix{}); got != (netip.Prefix{}) {
		t.Errorf("Around an invalid prefix = %s, want the zero Prefix", got)
	}
}

func TestCutAndSingle(t *testing.T) {
	four, six := netip.MustParseAddr("192.0.2.9"), netip.MustParseAddr("2001:db8:1:2::3")
	for _, c := range []struct {
		got  netip.Prefix
		want string
	}{
		{Cut(four, 16, 64), "192.0.0.0/16"},
		{Cut(six, 16, 64), "2001:db8:1:2::/64"},
		{Cut(four, 33, 64), "invalid Prefix"},
		{Cut(six, 32, 129), "invalid Prefix"},
		{Single(four), "192.0.2.9/32"},
		{Single(six), "2001:db8:1:2::3/128"},
		{Canonical(netip.MustParsePrefix("::ffff:0:0/90")), "::ffc0:0:0/90"},
	} {
		if c.got.String() != c.want {
			t.Errorf("got %s, want %s", c.got, c.want)
		}
	}
}

func TestClientBitsHaveDefaults(t *testing.T) {
	for _, c := range [][4]int{{0, 0, 32, 64}, {24, 0, 24, 64}, {0, 56, 32, 56}, {16, 48, 16, 48}, {33, 129, 32, 64},
		{-1, -1, 32, 64}} {
		if bits4, bits6 := ClientBits(c[0], c[1]); bits4 != c[2] || bits6 != c[3] {
			t.Errorf("ClientBits(%d, %d) = %d, %d, want %d, %d", c[0], c[1], bits4, bits6, c[2], c[3])
		}
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.9":            "192.0.2.9/32",
		"::ffff:192.0.2.9":     "192.0.2.9/32",
		"2001:db8::1":          "2001:db8::1/128",
		"192.0.2.9/24":         "192.0.2.0/24",
		"2001:db8::1/32":       "2001:db8::/32",
		"::ffff:192.0.2.9/120": "192.0.2.0/24",
		"0.0.0.0/0":            "0.0.0.0/0",
	} {
		if got, err := Parse(text); err != nil || got.String() != want {
			t.Errorf("Parse(%q) = %s, %v, want %s", text, got, err, want)
		}
	}
	for text, want := range map[string]error{
		"": ErrSyntax, "site.example": ErrSyntax, "192.0.2.9/33": ErrSyntax, "fe80::1%eth0/64": ErrZone,
		"fe80::1%eth0": ErrZone, "::ffff:192.0.2.9/95": ErrMapped,
	} {
		if got, err := Parse(text); err != want || got.IsValid() {
			t.Errorf("Parse(%q) = %s, %v, want the error %v", text, got, err, want)
		}
	}
}

func TestMask(t *testing.T) {
	for n, want := range map[int]uint64{
		-8: 0, 0: 0, 1: 1 << 63, 48: 0xFFFF_FFFF_FFFF_0000, 64: ^uint64(0), 96: ^uint64(0),
	} {
		if got := Mask(n); got != want {
			t.Errorf("Mask(%d) = %x, want %x", n, got, want)
		}
	}
}

// Cut and Around mask only where that changes something: the results are those of
// netip alone.
func TestPrefixesAgreeWithSlowOnes(t *testing.T) {
	slowCut := func(addr netip.Addr, bits4, bits6 int) netip.Prefix {
		addr = addr.Unmap().WithZone("")
		if addr.Is4() {
			bits6 = bits4
		}
		p, _ := addr.Prefix(bits6)
		return p
	}
	addrs := []netip.Addr{{}}
	for _, text := range []string{"0.0.0.0", "192.0.2.9", "255.255.255.255", "::", "::1", "2001:db8:1:2::3",
		"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "::ffff:192.0.2.9", "::ffff:0.0.0.0", "fe80::1%eth0"} {
		addrs = append(addrs, netip.MustParseAddr(text))
	}
	for _, addr := range addrs {
		for bits := -1; bits <= 130; bits++ {
			if got, want := Cut(addr, bits, bits), slowCut(addr, bits, bits); got != want {
				t.Errorf("Cut(%v, %d) = %v, want %v", addr, bits, got, want)
			}
			p := netip.PrefixFrom(addr, bits)
			canonical := Canonical(p)
			want := slowCut(canonical.Addr(), min(Bits4, canonical.Bits()), min(Bits6, canonical.Bits()))
			if got := Around(p); got != want {
				t.Errorf("Around(%v) = %v, want %v", p, got, want)
			}
		}
	}
}

func BenchmarkCut(b *testing.B) {
	for _, text := range []string{"192.0.2.9", "2001:db8:1:2::3"} {
		addr := netip.MustParseAddr(text)
		b.Run(text, func(b *testing.B) {
			for b.Loop() {
				Cut(addr, ClientBits4, ClientBits6)
			}
		})
		b.Run("around "+text, func(b *testing.B) {
			client := Cut(addr, ClientBits4, ClientBits6)
			for b.Loop() {
				Around(client)
			}
		})
	}
}
