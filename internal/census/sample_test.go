package census

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"
)

// An exact is an exact count, to compare with a sample.
type exact map[uint64]bool

func (e exact) add(hash uint64, person bool) { e[hash&^flagBits] = e[hash&^flagBits] || person }

func (e exact) amount() (a amount) {
	for _, person := range e {
		a.clients++
		if person {
			a.people++
		}
	}
	return a
}

// near reports whether got is within five standard errors of want; a standard error is
// that many percent.
func near(got, want int64, percent float64) bool {
	return math.Abs(float64(got-want)) <= 5*percent/100*float64(want)
}

func TestSampleIsExactThenEstimates(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, clients := range []int{0, 1, 2, 15, 16, 17, 37, 1000, mostSampled - 1, mostSampled, mostSampled + 1,
		10_000, 100_000, 1_000_000} {
		var s, first, second, joined sample
		model := exact{}
		hashes := make([]uint64, clients)
		for i := range hashes {
			hashes[i] = rnd.Uint64()
		}
		add := func(hash uint64) {
			person := rnd.IntN(4) == 0
			model.add(hash, person)
			s.add(hash, person)
			if rnd.IntN(3) == 0 {
				first.add(hash, person)
			} else {
				second.add(hash, person)
			}
		}
		for _, hash := range hashes {
			add(hash)
		}
		for range min(clients, 10_000) { // some return, perhaps as people
			add(hashes[rnd.IntN(clients)])
		}
		joined.join(&first)
		joined.join(&second)
		joined.join(&second) // without new clients
		want := model.amount()
		for name, got := range map[string]amount{"sample": s.amount(), "joined": joined.amount()} {
			if want.about = clients > mostSampled; !want.about {
				if got != want {
					t.Errorf("%s of %d clients: %+v, want %+v", name, clients, got, want)
				}
				continue
			}
			// A sample holds 2048 to 4096 clients, a quarter of them people.
			if !got.about || !near(got.clients, want.clients, 2) || !near(got.people, want.people, 4) {
				t.Errorf("%s of %d clients: %+v, want about %+v", name, clients, got, want)
			}
		}
		if slots := s.slots.Load(); slots != nil && (len(*slots) > 2*mostSampled || s.n > mostSampled) {
			t.Errorf("%d clients: %d of %d slots", clients, s.n, len(*slots))
		}
	}
}

func TestKnowsReportsUnneededCalls(t *testing.T) {
	var s sample
	const hash = 1 << 63
	for _, step := range []struct{ person, before, asPerson bool }{
		{false, false, false},
		{true, true, false},
		{false, true, true}, // still a person
	} {
		if got := s.knows(hash, false); got != step.before {
			t.Errorf("known as a client: %v, want %v", got, step.before)
		}
		if got := s.knows(hash, true); got != step.asPerson {
			t.Errorf("known as a person: %v, want %v", got, step.asPerson)
		}
		s.add(hash, step.person)
	}
	if got := s.amount(); got != (amount{clients: 1, people: 1}) {
		t.Errorf("%+v", got)
	}
}

// The seed is fixed, so the figures are, too. They are within four standard errors of
// linear counting.
func TestSeenEstimates(t *testing.T) {
	for _, test := range []struct {
		clients int
		percent float64
	}{
		{0, 0}, {1, 0}, {20, 0}, {300, 0.4}, {1280, 0.3}, {10_000, 0.2}, {100_000, 0.2}, {1_000_000, 0.4},
		{3_000_000, 5},
	} {
		if raceDetector && test.clients > 100_000 {
			continue
		}
		for _, family := range []struct {
			name string
			addr func(n int) netip.Addr
		}{{"IPv4", addr}, {"IPv6", addr6}} {
			c := newTraffic(policyOf(false))
			for n := range test.clients {
				c.Saw(family.addr(n), netip.Addr{})
				if n < 100_000 {
					c.Saw(family.addr(n/2), netip.Addr{})
				}
			}
			got := estimate(&c.state.Load().seen)
			if !near(got, int64(test.clients), test.percent*4/5) {
				t.Errorf("%d clients by %s: %d counted", test.clients, family.name, got)
			}
		}
	}
	var full, half seen
	for i := range full {
		full[i].Store(math.MaxUint64)
		if i%2 == 0 {
			half[i].Store(math.MaxUint64)
		}
	}
	if got := estimate(&full); got != 3_270_679 {
		t.Errorf("no bit is left: %d", got)
	}
	if got := estimate(&half, &half, &seen{}); got != 181_704 { // ln 2 of the bits
		t.Errorf("half of the bits: %d", got)
	}
	half.join(&full)
	if got := estimate(&half); got != 3_270_679 {
		t.Errorf("joined: %d", got)
	}
}

// addr6 returns the n-th client; each has its own network.
func addr6(n int) netip.Addr {
	return netip.AddrFrom16([16]byte{0x20, 1, 0xD, 0xB8, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n),
		15: byte(n)})
}
