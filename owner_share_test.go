package fairshare_test

import (
	"testing"

	"fairshare"
)

// All addresses of an owner have one key in the share of a busy upstream. The
// provisional clients of a peer have one too, whatever their networks.
func TestShareKeyByASN(t *testing.T) {
	g := newGuard(t, fairshare.Policy{})
	key := func(req fairshare.Request) string {
		return string(g.AppendKey(nil, &req, fairshare.KeyPart{Kind: fairshare.ByASN}))
	}
	for _, c := range []struct {
		name string
		a, b fairshare.Request
		same bool
	}{
		{"two networks of one owner", owned(from("10.1.2.3"), hosting), owned(from("2001:db8::1"), hosting), true},
		{"two owners", owned(from("10.1.2.3"), hosting), owned(from("10.1.2.4"), telecom), false},
		{"one network without an owner", from("10.1.2.3"), from("10.1.2.4"), true},
		{"two networks without an owner", from("10.1.2.3"), from("10.1.3.3"), false},
		{"an owner and its network", owned(from("10.1.2.3"), hosting), from("10.1.2.3"), false},
		{"provisional clients of a peer", owned(through(nginx, "10.1.2.3"), hosting),
			owned(through(nginx, "10.9.2.3"), telecom), true},
	} {
		if got := key(c.a) == key(c.b); got != c.same {
			t.Errorf("%s: the same key: %v, want %v", c.name, got, c.same)
		}
	}
}
