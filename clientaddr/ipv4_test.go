package clientaddr

import (
	"net/netip"
	"testing"
)

// parseIPv4 reads the same address as net/netip, or leaves the text to others.
func FuzzIPv4(f *testing.F) {
	for _, text := range []string{"192.0.2.1", "192.0.2.1:80", "255.255.255.255:65535", "0.0.0.0", "0.0.0.1:0", "1.2.3",
		"1.2.3.4.5",
		"1.2.3.4:", "1.2.3.4:66666", "01.2.3.4", "256.1.1.1", "1234.1.1.1",
		"1..2.3", "::1", "[::1]:80", "", "1.2.3.4 "} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, ok := parseIPv4(text)
		want, err := netip.ParseAddr(text)
		usual := err == nil && want.String() == text
		if err != nil {
			var both netip.AddrPort
			both, err = netip.ParseAddrPort(text)
			want, usual = both.Addr(), err == nil && both.String() == text
		}
		if ok && (err != nil || got != want) {
			t.Errorf("%q is %v, not %v", text, got, want)
		}
		if !ok && usual && want.Is4() && !want.IsUnspecified() {
			t.Errorf("%q is not read, but %v", text, want)
		}
	})
}
