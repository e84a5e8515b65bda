package fairshare

import (
	"math/rand/v2"
	"testing"
)

// An index with a filter finds the path sets that fit one after another.
func TestPathIndexAgreesWithPathSets(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	filtered, fit := 0, 0
	for range 300 {
		fold := rnd.IntN(2) == 0
		x := pathIndex{fold: fold}
		var sets []*pathSet
		for n := range 1 + rnd.IntN(12) {
			set, err := newPathSet(some(rnd, "*ab*", "*ab*cd*", "*/ab", "x*cd*", "*cd*x", "*Ab*", "/ab*cd", "*b/*",
				"/ab", "*.ab*.cd"), fold)
			if err != nil {
				t.Fatal(err)
			}
			x.add(set, 1<<n)
			sets = append(sets, set)
		}
		if x.addFilter(); x.filter != nil {
			filtered++
		}
		d := &decision{}
		for range 100 {
			path := ""
			for range rnd.IntN(6) {
				path += pick(rnd, "/", "ab", "cd", "x", "A", "b", ".", "a", "/ab")
			}
			got := x.match(d, path)
			for n, set := range sets {
				want := set.match(d, path)
				if (got>>n&1 != 0) != want {
					t.Fatalf("%q, set %q: the index says %v, want %v", path, set.texts, !want, want)
				}
				if want {
					fit++
				}
			}
		}
	}
	if filtered < 50 || fit < 1000 {
		t.Errorf("only %d filters, %d fits", filtered, fit)
	}
}
