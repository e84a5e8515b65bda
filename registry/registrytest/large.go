package registrytest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"fairshare"
	"fairshare/registry"
)

// A Load is a large registry to measure. Its methods are called one at a time. Set Open, and call
// Fill first.
type Load struct {
	// Open opens the registry with some bounds; the former one stays open.
	Open func(registry.Bounds) (registry.Registry, error)

	r    registry.Registry
	at   time.Time // of the latest records
	have int       // clients of Many, from 0
	more int       // clients that the steps have added, from Orderly
	took map[string][]time.Duration
	all  []string // names in took, in their order
}

// A Step is one kind of call that a Load measures.
type Step struct {
	Name  string
	Times int // how often it is measured; the median counts
	Do    func() error
}

// fillEvery is the time in which 10,000 new clients come.
const fillEvery = time.Minute

// Fill writes clients until there are so many.
func (l *Load) Fill(clients int) (err error) {
	if l.r == nil {
		l.at = start
		if err := l.open(registry.Bounds{Clients: 1 << 30, Bans: 1 << 30}); err != nil {
			return err
		}
	}
	for l.have < clients && err == nil {
		n := min(10_000, clients-l.have)
		err = l.r.Write(ctx, registry.Batch{Clients: ManyDeltas(l.have, n, l.at)})
		l.have, l.at = l.have+n, l.at.Add(fillEvery)
	}
	return err
}

func (l *Load) open(b registry.Bounds) (err error) {
	l.r, err = l.Open(b)
	return err
}

func (l *Load) bans(n int, client func(i int) int) []fairshare.BanRecord {
	b := make([]fairshare.BanRecord, n)
	for i := range b {
		b[i] = fairshare.BanRecord{Client: Many(client(i)), Rule: "rapid requests", Kind: fairshare.ByAddr, Began: l.at,
			Until: l.at.Add(time.Hour), Since: l.at.Add(time.Hour)}
	}
	return b
}

func (l *Load) anyClient(int) int { return rand.IntN(l.have) }

// Steps returns what a server and its operators do all the time.
func (l *Load) Steps() []Step {
	write := func(b registry.Batch) error {
		l.at = l.at.Add(time.Second)
		return l.r.Write(ctx, b)
	}
	version := registry.Version{}
	steps := []Step{
		{"writing 250 new clients", 40, func() error {
			l.more += 250
			return write(registry.Batch{Clients: ManyDeltas(Orderly+l.more-250, 250, l.at)})
		}},
		{"writing 250 known clients, chosen at random", 40, func() error {
			b := ManyDeltas(0, 250, l.at)
			for i := range b {
				b[i].Client = Many(rand.IntN(l.have))
			}
			return write(registry.Batch{Clients: b})
		}},
		{"writing 250 known clients, always the same", 40, func() error {
			return write(registry.Batch{Clients: ManyDeltas(100, 250, l.at)})
		}},
		{"writing 250 bans", 20, func() error { return write(registry.Batch{Bans: l.bans(250, l.anyClient)}) }},
		{"writing a ban", 40, func() error { return write(registry.Batch{Bans: l.bans(1, l.anyClient)}) }},
		{"an operator's decision, synced to the disk", 20, func() error {
			return l.r.SetOverride(ctx, registry.OverrideRecord{Client: Many(rand.IntN(l.have)),
				Action: fairshare.Block, Since: l.at})
		}},
		{"reading all records of a client", 20, func() error {
			f, err := l.r.Client(ctx, Many(rand.IntN(l.have)))
			if err == nil && f == nil {
				err = fmt.Errorf("a client is not there")
			}
			return err
		}},
		{"asking for changes: none", 400, func() error {
			c, err := l.r.Changes(ctx, version)
			version = c.Version
			return err
		}},
	}
	for _, sort := range []string{"requests", "refused", "cpu", "last-seen"} {
		for _, q := range []registry.Query{{Sort: sort}, {Sort: sort, Bot: "bot3"}} {
			name := "the fifty clients first by " + sort
			if q.Bot != "" {
				name += ", of one bot"
			}
			steps = append(steps, Step{name, 5, func() error {
				found, err := l.r.Clients(ctx, q)
				if err == nil && len(found) == 0 {
					err = fmt.Errorf("no clients by %s", sort)
				}
				return err
			}})
		}
	}
	return append(steps, Step{"the time that all clients used", 2, func() error {
		_, err := l.r.TotalTime(ctx)
		return err
	}})
}

// LastSteps returns what a server does at its start and at its bounds.
func (l *Load) LastSteps() []Step {
	bans := min(1_000_000, l.have)
	written := 0
	steps := []Step{
		{"writing 5000 bans", bans / 5000, func() error {
			written += 5000
			return l.r.Write(ctx, registry.Batch{Bans: l.bans(5000, func(i int) int { return written - 5000 + i })})
		}},
		{fmt.Sprintf("reading %d bans", bans), 1, func() error {
			n := 0
			for _, err := range l.r.Bans(ctx, l.at, true) {
				if err != nil {
					return err
				}
				n++
			}
			if n < bans {
				return fmt.Errorf("%d bans, want %d", n, bans)
			}
			return nil
		}},
		{"when each client was first seen", 1, func() error {
			n := 0
			err := l.r.FirstSeen(ctx, func(fairshare.ClientID, time.Time) bool { n++; return true })
			if err == nil && n < l.have {
				err = fmt.Errorf("%d clients, want %d", n, l.have)
			}
			return err
		}},
		{"opening", 5, func() error { return l.open(registry.Bounds{Clients: max(l.have-100_000, 1), Bans: 1 << 30}) }},
	}
	prune := func() error {
		_, err := l.r.Prune(ctx, l.at, 250)
		return err
	}
	room := func() error { return l.open(registry.Bounds{Clients: 1 << 30, Bans: 1 << 30}) }
	return append(steps, Step{"pruning 250 clients", 40, prune}, Step{"opening with room for all", 1, room},
		Step{"finding nothing to prune", 20, prune})
}

// Measure does a step once. A step that was done so often is not done again; it reports whether it did it.
func (l *Load) Measure(s *Step) (bool, error) {
	if l.took == nil {
		l.took = map[string][]time.Duration{}
	}
	if len(l.took[s.Name]) == 0 {
		l.all = append(l.all, s.Name)
	}
	if len(l.took[s.Name]) == s.Times {
		return false, nil
	}
	begin := time.Now()
	err := s.Do()
	l.took[s.Name] = append(l.took[s.Name], time.Since(begin))
	if err != nil {
		err = fmt.Errorf("%s: %w", s.Name, err)
	}
	return true, err
}

// Took returns the names of all steps in the order in which they were first measured, and the
// median of each since the last call.
func (l *Load) Took() (names []string, medians map[string]time.Duration) {
	medians = map[string]time.Duration{}
	for name, all := range l.took {
		slices.Sort(all)
		medians[name] = all[len(all)/2]
	}
	names = l.all
	l.took, l.all = nil, nil
	return names, medians
}

// Large measures a registry with that many clients; it fails only if an answer is
// wrong.
func Large(t *testing.T, clients int, open Opener) {
	l := &Load{Open: func(b registry.Bounds) (registry.Registry, error) { return open(t, "large", b), nil }}
	measure := func(steps []Step) {
		t.Helper()
		for i := range steps {
			for more := true; more; {
				var err error
				more, err = l.Measure(&steps[i])
				Check(t, steps[i].Name, err)
			}
		}
		names, medians := l.Took()
		for _, name := range names {
			t.Logf("%d clients: %-44s median %s", l.have, name, medians[name].Round(time.Microsecond))
		}
	}
	for _, n := range []int{1000, clients} {
		begin := time.Now()
		Check(t, "Fill", l.Fill(n))
		s, err := l.r.Stats(ctx)
		Check(t, "Stats", err)
		t.Logf("%d clients after %s: %d MB, %d bytes for each", s.Clients, time.Since(begin).Round(time.Millisecond),
			s.Bytes>>20, s.Bytes/s.Clients)
		measure(l.Steps())
	}
	measure(l.LastSteps())
}
