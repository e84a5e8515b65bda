package fairshare

import (
	"container/heap"
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Bans holds bans and former bans: the client, the rule and the end of each.
// The next ban of a former offender is longer. The size is bounded; when it is
// full, a new ban replaces the one that ends first. It is safe for concurrent use.
type Bans struct {
	most     int
	n        atomic.Int64 // entries
	seed     maphash.Seed
	filter   atomic.Pointer[banFilter] // nil until the first ban
	cache    atomic.Pointer[banCache]  // likewise, and made before it
	networks atomic.Bool               // a network was banned for its clients
	limiting atomic.Bool               // newcomers of some network were limited for its clients

	forgotten forgotten

	mu     sync.RWMutex
	report func(Banned)      // see Observe; may be nil
	names  []string          // of rules; a banID's rule is a place in it
	rules  map[string]uint32 // these places
	places map[uint64]uint32 // banID's hash → place in chunks
	chunks [][]banEntry      // in pieces: growing moves nothing; without pointers: the collector need not look
	ends   banHeap
	crowds map[crowdID]*crowd
	hot    map[uint64]limitedNetwork // by the first 48 bits of the address
}

const chunkBits = 12

// at returns the entry at a place.
func (b *Bans) at(place uint32) *banEntry {
	return &b.chunks[place>>chunkBits][place&(1<<chunkBits-1)]
}

type banID struct {
	key  banKey
	rule uint32
}

// A banEntry is a ban in force, or the memory of one.
type banEntry struct {
	began  int64 // Unix ns
	until  int64
	since  int64 // from when forgiveness counts
	id     banID
	number int32 // bans so far, less the steps forgiven
	end    int32 // place in ends
	dry    bool
}

// NewBans returns an empty Bans that holds at most that many bans and
// former bans; 0 means 1,048,576. Each takes about 130 bytes.
func NewBans(most int) *Bans {
	if most <= 0 {
		most = 1 << 20
	}
	b := &Bans{most: most, seed: maphash.MakeSeed(), rules: map[string]uint32{}, places: map[uint64]uint32{},
		crowds: map[crowdID]*crowd{}, hot: map[uint64]limitedNetwork{}}
	b.ends.bans = b
	return b
}

// Observe sets a function that is called for each ban that begins, and at most
// once a minute for each former ban that is kept longer because of another
// refusal. It is called with a lock held, before the request is answered: it
// must not block, and must not use b. nil removes the function.
func (b *Bans) Observe(report func(Banned)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.report = report
}

// Len returns the number of bans and former bans.
func (b *Bans) Len() int { return int(b.n.Load()) }

// ruleID returns the number that stands for a rule's name.
func (b *Bans) ruleID(name string) uint32 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.numberOf(name)
}

func (b *Bans) numberOf(name string) uint32 {
	id, known := b.rules[name]
	if !known {
		id = uint32(len(b.names))
		b.rules[name], b.names = id, append(b.names, name)
	}
	return id
}

// find returns how long a ban of rule still holds for key, 0 when there is
// none.
func (b *Bans) find(key *banKey, rule uint32, now time.Time, dry bool) time.Duration {
	filter := b.filter.Load()
	if filter == nil {
		return 0
	}
	hash := maphash.Bytes(b.seed, key[:])
	if !filter.has(hash) {
		return 0
	}
	id := banID{*key, rule}
	cache, idHash := b.cache.Load(), id.hash(hash)
	until, known := cache.get(idHash) // none of a dry run is in there
	if known && dry {
		return 0
	}
	if !known {
		until = 0
		b.mu.RLock()
		e := b.entry(hash, id)
		if e != nil && e.dry == dry {
			until = e.until
			if !dry {
				cache.put(idHash, until)
			}
		}
		b.mu.RUnlock()
	}
	return time.Duration(max(0, until-now.UnixNano()))
}

// entry returns the entry of id, whose key has that hash, or nil.
func (b *Bans) entry(hash uint64, id banID) *banEntry {
	place, found := b.places[id.hash(hash)]
	if !found || b.at(place).id != id {
		return nil
	}
	return b.at(place)
}

func (id *banID) hash(ofKey uint64) uint64 { return ofKey + uint64(id.rule)*0x9E3779B97F4A7C15 }

// A refused is a refusal that counts towards a ban.
type refused struct {
	key          banKey
	rule         uint32
	dry          bool
	terms        *BanTerms
	at           int64  // Unix ns
	bot          string // what the client is taken for
	bits4, bits6 int    // of an address that make one client
}

// refused notes a refusal. If reached is set and no ban is in force it starts
// one, and returns how long the client is banned from now on, else 0.
func (b *Bans) refused(r *refused, reached bool) time.Duration {
	if !reached && b.Len() == 0 {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	length := b.count(r, reached)
	if length == 0 || r.bits6 <= crowdBits || !r.key.crowds() || b.joins(r, r.at+int64(length)) < crowdBan {
		return length
	}
	network := *r
	network.key = r.key.network()
	b.networks.Store(true)
	return max(length, b.count(&network, true))
}

func (b *Bans) count(r *refused, reached bool) time.Duration {
	id, hash := banID{r.key, r.rule}, maphash.Bytes(b.seed, r.key[:])
	e := b.entry(hash, id)
	switch {
	case e == nil && !reached:
		return 0
	case e == nil:
		e = b.add(hash, id)
	case e.dry == r.dry && e.until > r.at: // another request was faster
		return 0
	default:
		if steps := (r.at - e.since) / int64(r.terms.forgive()); steps > 0 {
			e.number -= int32(min(steps, int64(e.number)))
		}
	}
	b.cache.Load().drop(id.hash(hash))
	if e.dry != r.dry { // a dry run has no effect on later bans
		e.number, e.dry, e.until, e.since = 0, r.dry, min(e.until, r.at), r.at
		heap.Fix(&b.ends, int(e.end))
	}
	before := e.since
	e.since = max(r.at, e.since)
	if !reached {
		if e.number > 0 && e.since/int64(time.Minute) != before/int64(time.Minute) {
			b.reportBan(e, r)
		}
		return 0
	}
	length := r.terms.length(r.key, b.names[r.rule], int(e.number))
	e.number++
	e.began, e.until = r.at, r.at+int64(length)
	e.since = e.until
	heap.Fix(&b.ends, int(e.end))
	b.reportBan(e, r)
	return length
}

// reportBan calls the function of Observe for an entry.
func (b *Bans) reportBan(e *banEntry, r *refused) {
	if b.report == nil {
		return
	}
	b.report(Banned{
		Client: e.id.key.client(r.bot, r.bits4, r.bits6), Kind: e.id.key.kind(), Rule: b.names[e.id.rule],
		Number: int(e.number), DryRun: e.dry,
		Began: time.Unix(0, e.began), Until: time.Unix(0, e.until), Since: time.Unix(0, e.since),
	})
}

// Restore adds a ban that was reported to the function of Observe, unless a later
// ban of the client and rule is known. Call it before the first request.
func (b *Bans) Restore(was Banned) {
	key, ok := keyOf(was.Kind, was.Client)
	if !ok {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	id, hash := banID{key, b.numberOf(was.Rule)}, maphash.Bytes(b.seed, key[:])
	e := b.entry(hash, id)
	if e == nil {
		e = b.add(hash, id)
	} else if e.began >= was.Began.UnixNano() {
		return
	}
	b.cache.Load().drop(id.hash(hash))
	e.began, e.until, e.since = was.Began.UnixNano(), was.Until.UnixNano(), was.Since.UnixNano()
	e.number, e.dry = int32(min(max(was.Number, 0), math.MaxInt32)), was.DryRun
	heap.Fix(&b.ends, int(e.end))
	if was.Kind == ByNetwork {
		b.networks.Store(true)
	} else if key.crowds() && was.Client.Prefix.Bits() > crowdBits {
		b.joins(&refused{key: key, rule: id.rule, dry: e.dry, at: e.began}, e.until)
	}
}

// Lift ends the bans of all addresses within a client's prefix, or of a bot,
// that began at a time or before, and forgets that there were any. It returns
// how many were in force at that time.
//
// [Guard.Lift] also forgets the refusals that led to them.
func (b *Bans) Lift(client ClientID, at time.Time) (lifted int) {
	return b.lift(client, at, func(banKey, string) {})
}

// lift does what Lift says, and names each ban, with a lock held.
func (b *Bans) lift(client ClientID, at time.Time, each func(key banKey, rule string)) (lifted int) {
	ns := at.UnixNano()
	for begin := 0; begin < b.Len(); begin += 1 << chunkBits { // others wait for one chunk
		b.mu.Lock()
		for place := begin; place < min(b.Len(), begin+1<<chunkBits); place++ {
			e := b.at(uint32(place))
			if e.began > ns || e.number == 0 && e.until <= ns || !e.id.key.within(client) {
				continue
			}
			if e.until > ns {
				if !e.dry {
					lifted++
				}
				b.leaves(e, ns)
			}
			each(e.id.key, b.names[e.id.rule])
			b.cache.Load().drop(e.id.hash(maphash.Bytes(b.seed, e.id.key[:])))
			e.number, e.until, e.since = 0, 0, ns // at may be ahead of the clock by which requests are judged
			heap.Fix(&b.ends, int(e.end))
		}
		b.mu.Unlock()
	}
	return lifted
}

// add makes an entry; when there are too many, the one that ends soonest
// makes place.
func (b *Bans) add(hash uint64, id banID) *banEntry {
	filter := b.filter.Load()
	if filter == nil {
		filter = newBanFilter(b.most)
		b.cache.Store(new(banCache))
		b.filter.Store(filter)
	}
	place := uint32(b.Len())
	if int(place) < b.most {
		if place>>chunkBits == uint32(len(b.chunks)) {
			b.chunks = append(b.chunks, make([]banEntry, 1<<chunkBits))
		}
		b.n.Add(1)
	} else {
		place = heap.Pop(&b.ends).(uint32)
		old := b.at(place).id
		oldHash := maphash.Bytes(b.seed, old.key[:])
		delete(b.places, old.hash(oldHash))
		b.cache.Load().drop(old.hash(oldHash))
		filter.remove(oldHash)
	}
	// Two ids with one 64-bit hash: the later takes the place of the earlier,
	// which is not found any more and goes when its time comes.
	b.places[id.hash(hash)] = place
	e := b.at(place)
	*e = banEntry{id: id, until: math.MaxInt64}
	heap.Push(&b.ends, place)
	filter.add(hash)
	return e
}

// A banHeap has the entry that ends soonest on top.
type banHeap struct {
	bans   *Bans
	places []uint32
}

func (h *banHeap) at(i int) *banEntry { return h.bans.at(h.places[i]) }

func (h *banHeap) Len() int           { return len(h.places) }
func (h *banHeap) Less(i, j int) bool { return h.at(i).until < h.at(j).until }
func (h *banHeap) Swap(i, j int) {
	h.places[i], h.places[j] = h.places[j], h.places[i]
	h.at(i).end, h.at(j).end = int32(i), int32(j)
}
func (h *banHeap) Push(place any) {
	h.places = append(h.places, place.(uint32))
	h.at(len(h.places) - 1).end = int32(len(h.places) - 1)
}
func (h *banHeap) Pop() any {
	last := h.places[len(h.places)-1]
	h.places = h.places[:len(h.places)-1]
	return last
}
