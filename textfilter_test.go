package fairshare

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// TestTextFilterFindsEveryMatch compares texts with a filter and without it: texts that contain
// a pattern at any place, parts of patterns, and random ones.
func TestTextFilterFindsEveryMatch(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const letters = "abc(' /"
	random := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = letters[rng.IntN(len(letters))]
		}
		return string(b)
	}
	skipped := 0
	for range 300 {
		texts := make([]string, filterFewest+rng.IntN(20))
		for i := range texts {
			texts[i] = random(2 + rng.IntN(8))
		}
		patterns, err := newPatterns(texts, contains)
		if err != nil {
			t.Fatal(err)
		}
		c := condition{patterns: patterns, filter: newTextFilter(patterns)}
		if c.filter == nil {
			t.Fatalf("%q: no filter", texts)
		}
		for range 50 {
			s := random(rng.IntN(12))
			if rng.IntN(2) == 0 {
				s += texts[rng.IntN(len(texts))] + random(rng.IntN(4))
			}
			want := matchAny(patterns, s, s)
			if got := c.matchesText(s, s); got != want {
				t.Fatalf("%q in %q: %v, want %v", s, texts, got, want)
			}
			if !c.filter.mayMatch(s) {
				skipped++
			}
		}
	}
	if skipped < 1000 {
		t.Errorf("the filter skipped only %d of 15,000 texts", skipped)
	}
}

func TestTextFilterNeedsPlainPatterns(t *testing.T) {
	for _, texts := range []string{
		"a1,b2,c3", "aa,bb,cc,*", "aa,bb,cc,re:dd", "aa,bb,cc,d", "aa,bb,cc,,dd", "aa,bb,cc,Ä",
	} {
		patterns, err := newPatterns(strings.Split(texts, ","), anyValue)
		if err != nil {
			t.Fatal(err)
		}
		if newTextFilter(patterns) != nil {
			t.Errorf("%s: has a filter", texts)
		}
	}
}
