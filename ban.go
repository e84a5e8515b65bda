package fairshare

import (
	"container/heap"
	"context"
	"fmt"
	"hash/fnv"
	"hash/maphash"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// findBan looks for a ban in force that holds for the request; it fills v and
// returns true if an enforced one does. Of several the longest speaks.
func (g *Guard) findBan(d *decision, v *Verdict) bool {
	if g.bans.Len() == 0 || d.req.Proxy {
		return false
	}
	var longest, trial Finding
	for _, i := range g.banning {
		r := &g.rules[i]
		until, dry, found := g.bans.find(d.banKey(r), r.Name, d.now)
		if !found || dry != g.dry(r) || !r.Ban.All && !r.match.holds(d) || g.spared(d, r) {
			continue
		}
		f := Finding{Action: Refuse, Rule: r.Rule, Wait: until.Sub(d.now), Ban: BanInForce}
		most := &longest
		if r.DryRun {
			most = &trial
		}
		if f.Wait > most.Wait {
			*most = f
		}
	}
	v.Trial = trial
	if longest.Rule == nil {
		return false
	}
	v.Finding = longest
	return true
}

// dry reports whether a ban of the rule is a trial.
func (g *Guard) dry(r *compiledRule) bool { return r.DryRun || g.policy.DryRun }

// spared reports whether a ban of rule r leaves the request alone.
func (g *Guard) spared(d *decision, r *compiledRule) bool {
	if r.unless != nil && r.unless.holds(d) {
		return true
	}
	return slices.ContainsFunc(g.spares, func(m matcher) bool { return m.holds(d) })
}

// banKey returns the key that r bans.
func (d *decision) banKey(r *compiledRule) (key banKey) {
	copy(key.addr[:], d.appendKey(key.addr[:0], d.guard.limits[r.limit].By))
	return key
}

// countRefusal counts a refusal towards the ban of the rule that spoke. The
// one that reaches After starts the ban and carries its wait.
func (g *Guard) countRefusal(ctx context.Context, d *decision, take int, f *Finding) error {
	r := &g.rules[d.takers[take]]
	if r.Ban == nil || d.req.Proxy || d.elsewhere() {
		return nil
	}
	c := &d.count
	c.charge[0] = Charge{Limit: r.banLimit, Key: d.takes[take].Key, Cost: 1}
	c.take[0], c.tally[0] = Take{Limit: r.banLimit, Key: d.takes[take].Key}, Tally{}
	err := g.limiter.Settle(ctx, d.now, c.charge[:])
	if err == nil {
		err = g.limiter.Take(ctx, d.now, c.take[:], c.tally[:])
	}
	if err != nil {
		return fmt.Errorf("refusals of client %s: %w", d.req.Addr, err)
	}
	length := g.bans.refused(d.banKey(r), r.Name, g.dry(r), r.Ban, d.now, c.tally[0].Over)
	if length > 0 {
		f.Ban, f.Wait = BanStarted, length
	}
	return nil
}

// elsewhere reports whether a page of another site may have caused the
// request: such refusals do not count towards a ban, else any page could get
// its readers banned here (W3C Fetch Metadata).
func (d *decision) elsewhere() bool {
	if d.req.Header == nil {
		return false
	}
	site, mode := d.req.Header.Values("Sec-Fetch-Site"), d.req.Header.Values("Sec-Fetch-Mode")
	return slices.Contains(site, "cross-site") && !slices.Contains(mode, "navigate")
}

// Bans remembers who is banned, by which rule and until when, and who was: a
// repeat offender's next ban is longer. Its size is bounded; when it is full,
// what ends soonest is forgotten first. It is safe for concurrent use.
type Bans struct {
	most   int
	active atomic.Int64 // entries in all
	seed   maphash.Seed
	filter atomic.Pointer[banFilter] // nil until the first ban

	mu      sync.RWMutex
	entries map[banID]*banEntry
	ends    banHeap
}

// A banKey is an appendAddr key.
type banKey struct{ addr [addrKey]byte }

type banID struct {
	key  banKey
	rule string
}

// A banEntry is a ban in force, or the memory of one.
type banEntry struct {
	id     banID
	until  int64 // Unix ns
	since  int64 // from when forgiveness counts
	number int   // bans so far, less the steps forgiven
	dry    bool
	place  int // in the heap
}

// NewBans returns an empty Bans that remembers at most that many bans and
// former bans; 0 means 1,048,576, about 200 MB when full.
func NewBans(most int) *Bans {
	if most <= 0 {
		most = 1 << 20
	}
	return &Bans{most: most, seed: maphash.MakeSeed(), entries: map[banID]*banEntry{}}
}

// Len returns how many bans and former bans are remembered.
func (b *Bans) Len() int { return int(b.active.Load()) }

// find returns until when a ban of rule holds for key.
func (b *Bans) find(key banKey, rule string, now time.Time) (until time.Time, dry, found bool) {
	filter := b.filter.Load()
	if filter == nil || !filter.has(maphash.Comparable(b.seed, key)) {
		return time.Time{}, false, false
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	e := b.entries[banID{key, rule}]
	if e == nil || e.until <= now.UnixNano() {
		return time.Time{}, false, false
	}
	return time.Unix(0, e.until), e.dry, true
}

// refused notes a refusal of key by rule at time now. If reached is set and
// no ban is in force it starts one and returns its length, else 0.
func (b *Bans) refused(key banKey, rule string, dry bool, terms *BanTerms, now time.Time, reached bool) time.Duration {
	if !reached && b.Len() == 0 {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	id := banID{key, rule}
	e := b.entries[id]
	if e == nil && !reached {
		return 0
	}
	t := now.UnixNano()
	if e == nil {
		e = b.add(id)
	} else if e.dry == dry && e.until > t { // another request was faster
		return 0
	} else if steps := (t - e.since) / int64(terms.forgive()); steps > 0 {
		e.number -= int(min(steps, int64(e.number)))
	}
	if e.dry != dry { // a trial teaches nothing
		e.number, e.dry = 0, dry
	}
	e.since = max(t, e.since)
	if !reached {
		return 0
	}
	length := terms.length(id, e.number)
	e.number++
	e.until = t + int64(length)
	e.since = e.until
	heap.Fix(&b.ends, e.place)
	return length
}

// add makes an entry; when there are too many, the one that ends soonest goes.
func (b *Bans) add(id banID) *banEntry {
	filter := b.filter.Load()
	if filter == nil {
		filter = newBanFilter(b.most)
		b.filter.Store(filter)
	}
	if len(b.entries) >= b.most {
		old := heap.Pop(&b.ends).(*banEntry)
		delete(b.entries, old.id)
		filter.remove(maphash.Comparable(b.seed, old.id.key))
	}
	e := &banEntry{id: id, until: math.MaxInt64}
	b.entries[id] = e
	heap.Push(&b.ends, e)
	filter.add(maphash.Comparable(b.seed, id.key))
	b.active.Store(int64(len(b.entries)))
	return e
}

// length returns how long ban number n (from 0) of a key is: Growth times the
// one before, up to Max, and up to a tenth more, so that many banned at once
// do not return at once. The same ban is as long in a replay.
func (t *BanTerms) length(id banID, n int) time.Duration {
	growth, most := max(t.Growth, 1), t.Max
	if most == 0 {
		most = max(24*time.Hour, t.For)
	}
	length := min(float64(t.For)*math.Pow(growth, float64(n)), float64(max(most, t.For)))
	h := fnv.New64a()
	h.Write(id.key.addr[:])
	h.Write([]byte(id.rule))
	h.Write([]byte{byte(n), byte(n >> 8)})
	tenth := float64(h.Sum64()>>11) / (1 << 53) / 10
	return time.Duration(min(length*(1+tenth), float64(banForever)))
}

// banForever bounds a ban, so that its end is a time that can be told.
const banForever = 100 * 365 * 24 * time.Hour

// A banHeap has the entry that ends soonest on top.
type banHeap []*banEntry

func (h banHeap) Len() int           { return len(h) }
func (h banHeap) Less(i, j int) bool { return h[i].until < h[j].until }
func (h banHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}
func (h *banHeap) Push(x any) {
	e := x.(*banEntry)
	e.place = len(*h)
	*h = append(*h, e)
}
func (h *banHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return e
}
