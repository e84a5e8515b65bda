package replay

import (
	"fmt"
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
				known.attack != isAttack(target) {
				t.Fatalf("round %d, %q: %+v", round, target, known)
			}
		}
	}
}
