package fairshare

import (
	"math/rand/v2"
	"testing"
)

// What is remembered of user agents and queries is what a search finds.
func TestTextsAreRememberedAsTheyAreFound(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	remembered := 0
	for range 50 {
		g, err := NewGuard(randomPolicy(rnd), noLimiter{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		d := g.decisions.New().(*decision)
		for range 200 {
			req := randomRequest(rnd)
			req.UserAgent = pick(rnd, "curl", "", "Mozilla", "Moz curl", "CURL/1")
			req.SetTarget("/?" + pick(rnd, "", "x", "x=1", "x=1&x=2", "y=1;x=1", "x=%31", "X=1", "z#x=1", "+x=11"))
			d.reset(req, req.Time)
			for _, cache := range [...]*textCache{&g.agents, &g.queries} {
				for _, c := range cache.conditions {
					if rnd.IntN(2) == 0 {
						continue // each request asks for some of them
					}
					if got, want := c.holdsText(d), c.searchText(d); got != want {
						t.Fatalf("%q?%s: field %d holds: %t, found: %t", req.UserAgent, req.Query, c.field, got, want)
					}
				}
			}
			if d.agent.stored|d.query.stored != 0 {
				remembered++
			}
			d.remember()
		}
	}
	if remembered < 1000 {
		t.Errorf("only %d requests had a text that was remembered", remembered)
	}
}

// A slot that several writers have left in parts fits none of their texts, unless the parts are the same.
func TestPartsOfSeveralWritersFitNoText(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	type entry struct{ hash, known, holds uint64 }
	for range 2000 {
		var written [3]entry
		for i := range written {
			written[i] = entry{rnd.Uint64() / 1024 * 1024, 1 + rnd.Uint64N(4), rnd.Uint64N(4)} // of the same slot
		}
		var slots [3]textSlots
		for i, e := range written {
			slots[i].put(e.hash, e.known, e.holds)
		}
		mixed, known, holds := rnd.IntN(3), rnd.IntN(3), rnd.IntN(3)
		slot := &slots[0][0]
		slot.mixed.Store(written[mixed].hash ^ mixBits(written[mixed].known, written[mixed].holds))
		slot.known.Store(written[known].known)
		slot.holds.Store(written[holds].holds)
		for _, e := range written {
			got, of := slots[0].get(e.hash)
			if got != 0 && (got != e.known || of != e.holds) {
				t.Fatalf("%+v: bits %#x and %#x are found", e, got, of)
			}
		}
	}
}
