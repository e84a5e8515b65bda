package key

import (
	"bytes"
	"cmp"
	"slices"
	"testing"

	"fairshare"

	"pgregory.net/rapid"
)

func id(s string) fairshare.ClientID {
	id, err := fairshare.ParseClientID(s)
	if err != nil {
		panic(err)
	}
	return id
}

// The keys of the clients within a prefix are one range, which holds no other keys.
func TestKeysOfAPrefixAreOneRange(t *testing.T) {
	prefix := rapid.Custom(func(t *rapid.T) fairshare.ClientID {
		addr := rapid.SampledFrom([]string{"192.0.2.1", "192.0.2.255", "0.0.0.0", "255.255.255.255", "::",
			"2001:db8::", "2001:db8::ffff", "::ffff:0:0:1"}).Draw(t, "addr")
		c := id(addr)
		p, _ := c.Prefix.Addr().Prefix(rapid.IntRange(0, c.Prefix.Bits()).Draw(t, "bits"))
		return fairshare.PrefixID(p)
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := prefix.Draw(t, "a"), prefix.Draw(t, "b")
		ka, err := Of(a)
		if err != nil {
			t.Fatal(err)
		}
		kb, err := Of(b)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := Client(ka); err != nil || back != a {
			t.Fatalf("%v became %v: %v", a, back, err)
		}
		first, last := Within(ka)
		inside := bytes.Compare(first, kb) <= 0 && bytes.Compare(kb, last) <= 0
		if want := holds(a, b) && a.Prefix.Addr().Is4() == b.Prefix.Addr().Is4(); inside != want {
			t.Fatalf("%v in the range of %v: %v, want %v", b, a, inside, want)
		}
		listed := slices.ContainsFunc(Wider(kb), func(k Key) bool { return bytes.Equal(k, ka) })
		if want := a != b && holds(a, b); listed != want {
			t.Fatalf("%v among those wider than %v: %v, want %v", a, b, listed, want)
		}
		if c := bytes.Compare(ka, kb); c != less(a, b) {
			t.Fatalf("keys of %v and %v compare as %d", a, b, c)
		}
	})
}

// holds reports whether a is b, or a wider prefix.
func holds(a, b fairshare.ClientID) bool {
	return a == b || a.Bot == "" && b.Bot == "" && a.Prefix.Bits() <= b.Prefix.Bits() &&
		a.Prefix.Contains(b.Prefix.Addr())
}

func less(a, b fairshare.ClientID) int {
	if c := cmp.Compare(min(len(a.Bot), 1), min(len(b.Bot), 1)); c != 0 || a.Bot != "" {
		return cmp.Or(c, cmp.Compare(a.Bot, b.Bot))
	}
	return cmp.Or(a.Prefix.Addr().Compare(b.Prefix.Addr()), cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()))
}
