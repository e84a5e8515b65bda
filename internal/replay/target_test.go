package replay

import (
	"fmt"
	"net/netip"
	"reflect"
	"testing"

	"fairshare"
)

// Targets that are remembered have the same parts and signs as new ones.
func TestRememberedTargetsAreAsNewOnes(t *testing.T) {
	t.Parallel()
	targets := []string{"", "*", "/", "/a", "/a?", "/a?b=c?d", "?", "/%61/b.css", "/a//b/../c.js?q=%41", "//a/b",
		"/.git/config", "http://shop.example", "http://shop.example/x.png?y", "shop.example:443", "/a%2fb", "/a;b/c",
		"/a\\b", "/é?é",
		"/a\tb", "/a%09b", "/a/./a", "/?a/./a"}
	for i := range 9000 { // more than are remembered
		targets = append(targets, fmt.Sprintf("/page/%d?n=%d", i%4500, i))
	}
	seeds := newSeeds()
	p := preparer{opts: &Options{}, seeds: &seeds, targets: new(knownTargets)}
	for round := range 3 {
		for _, target := range targets {
			var want fairshare.Request
			want.SetTarget(target)
			got := fairshare.Request{}
			got.SetTarget("/%2e%2e/another?request")
			known := p.target(&got, target, seeds.hashText(target))
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("round %d, %q:\n got %+v\nwant %+v", round, target, got, want)
			}
			if known.path != seeds.hashText(want.Path) || known.asset != asset(want.Path) ||
				known.attack != isAttack(target) ||
				known.plain != (len(want.Path) <= mostPath && !hasControls(want.Path)) {
				t.Fatalf("round %d, %q: %+v", round, target, known)
			}
		}
	}
}

func TestClientsAreInOrderOfTheirAddresses(t *testing.T) {
	t.Parallel()
	var all []*client
	for _, text := range []string{"::", "::1", "::ffff:0:0", "::fffe:1.2.3.4", "::1:0:1.2.3.4", "0.0.0.0", "1.2.3.4",
		"255.255.255.255", "2001:db8::1", "2001:db8::2", "2001:db8:1::", "ffff::"} {
		all = append(all, &client{addr: netip.MustParseAddr(text).As16()})
	}
	for _, a := range all {
		for _, b := range all {
			if got, want := a.compare(b), a.address().Compare(b.address()); got != want {
				t.Errorf("%v and %v: %d, want %d", a.address(), b.address(), got, want)
			}
		}
	}
}

func TestNumbersAndAddressesAsText(t *testing.T) {
	t.Parallel()
	for _, n := range []int64{0, 9, 10, 99, 100, 1<<63 - 1, -1, -1 << 63} {
		if got := string(appendNumber([]byte("n"), n)); got != fmt.Sprint("n", n) {
			t.Errorf("%d is %q", n, got)
		}
	}
	for _, text := range []string{"0.0.0.0", "1.22.133.255", "100.99.9.10"} {
		if got := string(appendIPv4(nil, netip.MustParseAddr(text).As4())); got != text {
			t.Errorf("%s is %q", text, got)
		}
	}
}
