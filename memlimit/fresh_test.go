package memlimit_test

import (
	"slices"
	"testing"
	"time"

	"fairshare"
)

// FreshOf names the limits that With starts from zero, and changes nothing: asked twice, the answer is the same.
func TestFreshOfMatchesWith(t *testing.T) {
	limit := func(name string, res fairshare.Resource, n int64) fairshare.Limit {
		return fairshare.Limit{Name: name, Resource: res, N: n, Window: time.Minute}
	}
	l := open(t, []fairshare.Limit{limit("a", fairshare.Requests, 5), limit("b", fairshare.Bytes, 1000)}, 1<<20)
	for _, limits := range [][]fairshare.Limit{
		{limit("a", fairshare.Requests, 50), limit("b", fairshare.Bytes, 1000)},
		{limit("a", fairshare.Requests, 5), limit("c", fairshare.Requests, 5)},
		{limit("a", fairshare.Bytes, 5), limit("b", fairshare.Bytes, 1<<43)},
	} {
		first, second := l.FreshOf(limits), l.FreshOf(limits)
		next, err := l.With(limits)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(first, second) || !slices.Equal(first, next.Fresh()) {
			t.Errorf("FreshOf says %v, then %v; With: %v", first, second, next.Fresh())
		}
	}
}
