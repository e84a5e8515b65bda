package fairshare

import (
	"container/heap"
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Bans remembers who is banned, by which rule and until when, and who was: a
// repeat offender's next ban is longer. Its size is bounded; when it is full,
// what ends soonest is forgotten first. It is safe for concurrent use.
type Bans struct {
	most   int
	n      atomic.Int64 // entries
	seed   maphash.Seed
	filter atomic.Pointer[banFilter] // nil until the first ban
	cache  atomic.Pointer[banCache]  // likewise, and made before it

	mu     sync.RWMutex
	rules  []string          // names; a banID's rule is a place in it
	places map[uint64]uint32 // banID's hash → place in chunks
	chunks [][]banEntry      // in pieces: growing moves nothing; without pointers: the collector need not look
	ends   banHeap
}

const chunkBits = 12

// at returns the entry at a place.
func (b *Bans) at(place uint32) *banEntry {
	return &b.chunks[place>>chunkBits][place&(1<<chunkBits-1)]
}

// A banKey is an appendAddr key.
type banKey [addrKey]byte

type banID struct {
	key  banKey
	rule uint32
}

// A banEntry is a ban in force, or the memory of one.
type banEntry struct {
	until  int64 // Unix ns
	since  int64 // from when forgiveness counts
	id     banID
	number int32 // bans so far, less the steps forgiven
	end    int32 // place in ends
	dry    bool
}

// NewBans returns an empty Bans that remembers at most that many bans and
// former bans; 0 means 1,048,576. Each takes about 100 bytes.
func NewBans(most int) *Bans {
	if most <= 0 {
		most = 1 << 20
	}
	b := &Bans{most: most, seed: maphash.MakeSeed(), places: map[uint64]uint32{}}
	b.ends.bans = b
	return b
}

// Len returns how many bans and former bans are remembered.
func (b *Bans) Len() int { return int(b.n.Load()) }

// ruleID returns the number that stands for a rule's name.
func (b *Bans) ruleID(name string) uint32 {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, known := range b.rules {
		if known == name {
			return uint32(i)
		}
	}
	b.rules = append(b.rules, name)
	return uint32(len(b.rules) - 1)
}

// find returns until when a ban of rule holds for key; the zero time when
// there is none.
func (b *Bans) find(key banKey, rule uint32, now time.Time) (until time.Time, dry bool) {
	filter := b.filter.Load()
	if filter == nil {
		return time.Time{}, false
	}
	hash := maphash.Bytes(b.seed, key[:])
	if !filter.has(hash) {
		return time.Time{}, false
	}
	id := banID{key, rule}
	cache, idHash := b.cache.Load(), id.hash(hash)
	end, known := cache.get(idHash)
	if !known {
		b.mu.RLock()
		e := b.entry(hash, id)
		if e != nil {
			end, dry = e.until, e.dry
			if !dry {
				cache.put(idHash, end)
			}
		}
		b.mu.RUnlock()
		if e == nil {
			return time.Time{}, false
		}
	}
	if end <= now.UnixNano() {
		return time.Time{}, false
	}
	return time.Unix(0, end), dry
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

// refused notes a refusal of key by rule at time now. If reached is set and
// no ban is in force it starts one and returns its length, else 0.
func (b *Bans) refused(key banKey, rule uint32, dry bool, terms *BanTerms, now time.Time, reached bool) time.Duration {
	if !reached && b.Len() == 0 {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	id, hash, t := banID{key, rule}, maphash.Bytes(b.seed, key[:]), now.UnixNano()
	e := b.entry(hash, id)
	switch {
	case e == nil && !reached:
		return 0
	case e == nil:
		e = b.add(hash, id)
	case e.dry == dry && e.until > t: // another request was faster
		return 0
	default:
		if steps := (t - e.since) / int64(terms.forgive()); steps > 0 {
			e.number -= int32(min(steps, int64(e.number)))
		}
	}
	b.cache.Load().drop(id.hash(hash))
	if e.dry != dry { // a trial teaches nothing and bans nobody
		e.number, e.dry, e.until, e.since = 0, dry, min(e.until, t), t
		heap.Fix(&b.ends, int(e.end))
	}
	e.since = max(t, e.since)
	if !reached {
		return 0
	}
	length := terms.length(key, b.rules[rule], int(e.number))
	e.number++
	e.until = t + int64(length)
	e.since = e.until
	heap.Fix(&b.ends, int(e.end))
	return length
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
