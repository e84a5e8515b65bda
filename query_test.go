package fairshare

import (
	"math/rand/v2"
	"testing"
)

// A query without escapes is looked at as a whole first; the model is the same condition without
// its filter.
func TestQueryFilterAgreesWithPlainSearch(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	d := &decision{}
	held := 0
	for range 20_000 {
		favorable := rnd.IntN(2) == 0
		m := Match{Query: map[string][]string{pick(rnd, "*", "a", "b*", "k"): {"../", "<script", "ab", "x=y", "' or "}}}
		conds, err := newMatcher(&m, standing{favorable: favorable, foldPaths: rnd.IntN(2) == 0})
		if err != nil {
			t.Fatal(err)
		}
		fast, plain := &conds[0], conds[0]
		if fast.filter == nil {
			t.Fatal("the condition has no filter")
		}
		plain.filter = nil
		query := ""
		for range rnd.IntN(8) {
			query += pick(rnd, "a", "b", "AB", "=", "&", ";", "#", "x=y", "../", "<Script", "%", "+", "%2e./", "' or ",
				"Ä", "k", "a=", "\u212a")
		}
		got, want := fast.holdsEncoded(d, query), plain.holdsEncoded(d, query)
		if got != want {
			t.Fatalf("%v, favorable %v: %q holds: %v, want %v", m.Query, favorable, query, got, want)
		}
		if want {
			held++
		}
	}
	if held < 1000 {
		t.Errorf("only %d conditions held", held)
	}
}
