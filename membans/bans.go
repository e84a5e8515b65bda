// Package membans keeps bans in memory.
//
// Start with [New], and pass the result to [fairshare.NewGuard].
//
// Two structures are read before the map of bans. They are worth their cost even
// compared with a map in 256 parts, each with its own lock. As soon as there is a ban, the filter makes a
// decision about a client without one 4 to 7 % faster (50 ns). The cache makes
// a decision about a banned client 13 to 15 % faster (30 ns) with 1,000
// bans, and 2 % with 1,000,000.
package membans

import (
	"container/heap"
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"fairshare"
)

// Bans holds bans in force and former bans: the client, the rule and the end of
// each. The next ban of a former offender is longer. The number is bounded: when
// it is reached, a new ban replaces the one that ends first. It is safe for
// concurrent use.
//
// It is a [fairshare.BanFilter]. A type that embeds it and whose own Find returns more bans also
// needs its own MayBan. That of Bans knows only the bans in it, and a guard misses the others.
type Bans struct {
	most     int
	n        atomic.Int64 // entries
	seed     maphash.Seed
	filter   atomic.Pointer[filter] // nil until the first ban
	cache    atomic.Pointer[cache]  // of bans in force; set before filter
	rules    atomic.Pointer[cache]  // by the hash of a key: those of banning; set before filter
	networks atomic.Bool            // a network was banned for its clients
	limiting atomic.Bool            // newcomers of some network were limited for its clients

	mu      sync.RWMutex
	report  func(fairshare.BanRecord)   // see Observe; may be nil
	names   []string                    // of rules, by rule number
	numbers map[string]uint32           // of rules, by name
	bots    map[fairshare.BanKey]string // names of bots that were banned, at most mostBots
	index   map[uint64]uint32           // hash of a banID → number of its entry
	banning map[uint64]banning          // by the hash of a key
	chunks  [][]entry                   // entries in pieces, so growing moves nothing; no pointers for the collector
	ends    endHeap
	members map[networkID]*members
	limited map[uint64]limitedNetwork // by the first 48 bits of the address
}

var _ interface {
	fairshare.Bans
	fairshare.BanFilter
} = (*Bans)(nil)

const chunkBits = 12

// entryAt returns the entry with a number, from 0.
func (b *Bans) entryAt(number uint32) *entry {
	return &b.chunks[number>>chunkBits][number&(1<<chunkBits-1)]
}

// A banID identifies a ban: a client can be banned by several rules.
type banID struct {
	key  fairshare.BanKey
	rule uint32
}

// An entry is a ban in force or a former ban.
type entry struct {
	began     int64 // Unix ns
	until     int64 // Unix ns
	since     int64 // Unix ns; from when forgiveness counts
	id        banID
	count     int32 // bans so far, less those forgiven
	heapIndex int32 // in ends
	dryRun    bool
}

// A banning holds the rules with entries of one key.
type banning struct {
	rules   uint64 // their numbers modulo 64, and those of entries replaced since the first
	entries uint32 // at least 1
}

// New returns an empty Bans that holds at most that many bans and former bans;
// 0 means 1,048,576. Each takes about 180 bytes.
func New(most int) *Bans {
	if most <= 0 {
		most = 1 << 20
	}
	b := &Bans{most: most, seed: maphash.MakeSeed(), numbers: map[string]uint32{}, index: map[uint64]uint32{},
		banning: map[uint64]banning{}, members: map[networkID]*members{}, limited: map[uint64]limitedNetwork{},
		bots: map[fairshare.BanKey]string{}}
	b.ends.bans = b
	return b
}

// Observe sets a function that is called for each ban that begins, and at most
// once a minute for each former ban that is kept longer because of another
// refusal. It is called with a lock held, before the request is answered: it
// must not block, and must not use b. nil removes the function.
func (b *Bans) Observe(report func(fairshare.BanRecord)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.report = report
}

// Len returns the number of bans in force and former bans.
func (b *Bans) Len() int { return int(b.n.Load()) }

// RuleNumber returns the number that stands for the name of a rule.
func (b *Bans) RuleNumber(name string) uint32 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ruleNumber(name)
}

func (b *Bans) ruleNumber(name string) uint32 {
	number, known := b.numbers[name]
	if !known {
		number = uint32(len(b.names))
		b.numbers[name], b.names = number, append(b.names, name)
	}
	return number
}

// Find returns how much longer a ban of rule q.Rule holds for the client, 0 if
// there is none. q.DryRun selects the bans of a dry run.
// The ban of an address holds for provisional clients with that address too,
// and the ban of an IPv6 network for its newcomers.
func (b *Bans) Find(q *fairshare.BanQuery, now time.Time) time.Duration {
	filter := b.filter.Load()
	if filter == nil {
		return 0
	}
	until := b.find(filter, &q.Key, q)
	key := q.Key
	if q.Key.Via().IsValid() {
		key = q.Key.WithoutVia()
		until = max(until, b.find(filter, &key, q))
	}
	if q.Newcomer && b.networks.Load() && key.IsIPv6Client() {
		key = key.Network()
		until = max(until, b.find(filter, &key, q))
	}
	return time.Duration(max(0, until-now.UnixNano()))
}

// MayBan implements [fairshare.BanFilter].
func (b *Bans) MayBan(key *fairshare.BanKey, newcomer bool) (rules uint64) {
	filter := b.filter.Load()
	if filter == nil {
		return 0
	}
	rules = b.rulesOf(filter, key)
	named := *key
	if key.Via().IsValid() {
		named = key.WithoutVia()
		rules |= b.rulesOf(filter, &named)
	}
	if newcomer && b.networks.Load() && named.IsIPv6Client() {
		named = named.Network()
		rules |= b.rulesOf(filter, &named)
	}
	return rules
}

// rulesOf returns the rules that have an entry of one key, and perhaps more, modulo 64.
func (b *Bans) rulesOf(filter *filter, key *fairshare.BanKey) (rules uint64) {
	hash := maphash.Bytes(b.seed, key[:])
	if !filter.has(hash) {
		return 0
	}
	cache := b.rules.Load()
	if known, found := cache.get(hash); found {
		return uint64(known)
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	rules = b.banning[hash].rules
	cache.put(hash, int64(rules))
	return rules
}

// find returns the end of the ban of one key, Unix ns; 0 if there is none.
func (b *Bans) find(filter *filter, key *fairshare.BanKey, q *fairshare.BanQuery) int64 {
	hash := maphash.Bytes(b.seed, key[:])
	if !filter.has(hash) {
		return 0
	}
	id := banID{*key, q.Rule}
	cache, idHash := b.cache.Load(), id.hash(hash)
	until, known := cache.get(idHash) // holds no bans in dry run
	switch {
	case known && q.DryRun:
		return 0
	case known:
		return until
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	e := b.entry(hash, id)
	if e == nil || e.dryRun != q.DryRun {
		return 0
	}
	if !q.DryRun {
		cache.put(idHash, e.until)
	}
	return e.until
}

// entry returns the entry of id, or nil. hash is that of the key alone.
func (b *Bans) entry(hash uint64, id banID) *entry {
	number, found := b.index[id.hash(hash)]
	if !found || b.entryAt(number).id != id {
		return nil
	}
	return b.entryAt(number)
}

// hash returns the hash of id. ofKey is the hash of the key alone.
func (id *banID) hash(ofKey uint64) uint64 { return ofKey + uint64(id.rule)*0x9E3779B97F4A7C15 }

// CountRefusal counts a refusal. If reached is set and no ban is in force, it
// starts a ban, and returns how long the client is banned from now on;
// otherwise it returns 0.
//
// When one rule bans 128 clients of an IPv6 /48, it also bans the newcomers of
// that /48.
func (b *Bans) CountRefusal(r *fairshare.Refusal, reached bool) time.Duration {
	if !reached && b.Len() == 0 {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	length := b.count(r, reached)
	if length == 0 || r.Bits6 <= networkBits || !r.Key.IsIPv6Client() {
		return length
	}
	began := r.At.UnixNano()
	if b.addMember(networkOf(&r.Key, r.Rule, r.DryRun), began, began+int64(length)) < clientsThatBan {
		return length
	}
	ofNetwork := *r
	ofNetwork.Key = r.Key.Network()
	b.networks.Store(true)
	return max(length, b.count(&ofNetwork, true))
}

// count does what CountRefusal says, for the key of r alone.
func (b *Bans) count(r *fairshare.Refusal, reached bool) time.Duration {
	id, hash, at := banID{r.Key, r.Rule}, maphash.Bytes(b.seed, r.Key[:]), r.At.UnixNano()
	e := b.entry(hash, id)
	switch {
	case e == nil && !reached:
		return 0
	case e == nil:
		e = b.add(hash, id)
	case e.dryRun == r.DryRun && e.until > at: // another request was faster
		return 0
	default:
		if forgiven := (at - e.since) / int64(r.Terms.ForgiveAfter()); forgiven > 0 {
			e.count -= int32(min(forgiven, int64(e.count)))
		}
	}
	b.cache.Load().drop(id.hash(hash))
	if e.dryRun != r.DryRun { // bans in dry run have no effect on enforced ones
		b.removeMember(e)
		e.count, e.dryRun, e.until, e.since = 0, r.DryRun, min(e.until, at), at
		heap.Fix(&b.ends, int(e.heapIndex))
	}
	before := e.since
	e.since = max(at, e.since)
	if !reached {
		if e.count > 0 && e.since/int64(time.Minute) != before/int64(time.Minute) {
			b.reportBan(e, r)
		}
		return 0
	}
	b.nameBot(r.Key, r.Bot)
	length := r.Terms.Length(r.Key, b.names[r.Rule], int(e.count))
	e.count++
	e.began, e.until = at, at+int64(length)
	e.since = e.until
	heap.Fix(&b.ends, int(e.heapIndex))
	b.reportBan(e, r)
	return length
}

// reportBan calls the function of Observe for an entry.
func (b *Bans) reportBan(e *entry, r *fairshare.Refusal) {
	if b.report == nil {
		return
	}
	b.report(fairshare.BanRecord{
		Client: e.id.key.Client(r.Bot, r.Bits4, r.Bits6), Kind: e.id.key.Kind(), Rule: b.names[e.id.rule],
		Number: int(e.count), DryRun: e.dryRun,
		Began: time.Unix(0, e.began), Until: time.Unix(0, e.until), Since: time.Unix(0, e.since),
	})
}

// Restore adds a ban that was reported to the function of Observe, here or by another
// server. Of two bans of a client by one rule that overlap, the longer one is kept, else
// the later one. A record of a client that cannot be banned is ignored.
func (b *Bans) Restore(was fairshare.BanRecord) {
	key, ok := fairshare.NewBanKey(was.Kind, was.Client)
	if !ok {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	id, hash := banID{key, b.ruleNumber(was.Rule)}, maphash.Bytes(b.seed, key[:])
	e := b.entry(hash, id)
	if e == nil {
		e = b.add(hash, id)
	} else if until := was.Until.UnixNano(); e.until >= until && e.began >= was.Began.UnixNano() ||
		e.until > until && e.until > was.Began.UnixNano() {
		return
	} else {
		b.removeMember(e) // its client counts once
	}
	b.cache.Load().drop(id.hash(hash))
	e.began, e.until, e.since = was.Began.UnixNano(), was.Until.UnixNano(), was.Since.UnixNano()
	e.count, e.dryRun = int32(min(max(was.Number, 0), math.MaxInt32)), was.DryRun
	heap.Fix(&b.ends, int(e.heapIndex))
	b.nameBot(key, was.Client.Bot)
	if was.Kind == fairshare.ByNetwork {
		b.networks.Store(true)
	} else if key.IsIPv6Client() && was.Client.Prefix.Bits() > networkBits {
		b.addMember(networkOf(&key, id.rule, e.dryRun), e.began, e.until)
	}
}

// Lift ends all bans within a client that began at a time or before, and forgets
// that there were any. It returns how many enforced bans were in force at that
// time. It calls each, unless nil, for every ban and former ban that it ends, with
// a lock held. each must not use b.
//
// [fairshare.Guard.Lift] also forgets the refusals that led to the bans.
func (b *Bans) Lift(client fairshare.ClientID, at time.Time,
	each func(key fairshare.BanKey, rule string)) (lifted int) {
	ns := at.UnixNano()
	for begin := 0; begin < b.Len(); begin += 1 << chunkBits { // the lock is held for one chunk at a time
		b.mu.Lock()
		for number := begin; number < min(b.Len(), begin+1<<chunkBits); number++ {
			e := b.entryAt(uint32(number))
			if e.began > ns || e.count == 0 && e.until <= ns || !e.id.key.Within(client) {
				continue
			}
			if e.until > ns {
				if !e.dryRun {
					lifted++
				}
				b.removeMember(e)
			}
			if each != nil {
				each(e.id.key, b.names[e.id.rule])
			}
			b.cache.Load().drop(e.id.hash(maphash.Bytes(b.seed, e.id.key[:])))
			e.count, e.until, e.since = 0, 0, ns // at may be ahead of the time of requests
			heap.Fix(&b.ends, int(e.heapIndex))
		}
		b.mu.Unlock()
	}
	return lifted
}

// mostBots is how many names of bots are remembered. Far fewer are known.
const mostBots = 10_000

// nameBot remembers the name of a bot, for InForce.
func (b *Bans) nameBot(key fairshare.BanKey, name string) {
	if key.Kind() == fairshare.ByBot && len(b.bots) < mostBots {
		b.bots[key] = name
	}
}

// InForce calls yield with each enforced ban that is in force at a time, in no order. The
// arguments bits4 and bits6 are the bits of an address that make one client. A lock is held
// while yield is called, so it must not use b. The name of a bot is empty if more than mostBots
// were banned.
func (b *Bans) InForce(now time.Time, bits4, bits6 int, yield func(fairshare.BanRecord)) {
	ns := now.UnixNano()
	for begin := 0; begin < b.Len(); begin += 1 << chunkBits { // the lock is held for one chunk at a time
		b.mu.RLock()
		for number := begin; number < min(b.Len(), begin+1<<chunkBits); number++ {
			e := b.entryAt(uint32(number))
			if e.dryRun || e.count == 0 || e.until <= ns {
				continue
			}
			yield(fairshare.BanRecord{Client: e.id.key.Client(b.bots[e.id.key], bits4, bits6), Kind: e.id.key.Kind(),
				Rule: b.names[e.id.rule], Number: int(e.count), Began: time.Unix(0, e.began),
				Until: time.Unix(0, e.until), Since: time.Unix(0, e.since)})
		}
		b.mu.RUnlock()
	}
}

// add adds an entry. If there is no room, it replaces the entry that ends first.
func (b *Bans) add(hash uint64, id banID) *entry {
	filter := b.filter.Load()
	if filter == nil {
		filter = newFilter(b.most)
		b.cache.Store(new(cache))
		b.rules.Store(new(cache))
		b.filter.Store(filter)
	}
	number := uint32(b.Len())
	if int(number) < b.most {
		if number>>chunkBits == uint32(len(b.chunks)) {
			b.chunks = append(b.chunks, make([]entry, 1<<chunkBits))
		}
		b.n.Add(1)
	} else {
		number = heap.Pop(&b.ends).(uint32)
		old := b.entryAt(number).id
		oldHash := maphash.Bytes(b.seed, old.key[:])
		delete(b.index, old.hash(oldHash))
		b.cache.Load().drop(old.hash(oldHash))
		b.rules.Load().drop(oldHash)
		if of := b.banning[oldHash]; of.entries > 1 {
			of.entries--
			b.banning[oldHash] = of
		} else {
			delete(b.banning, oldHash)
		}
		filter.remove(oldHash)
	}
	// If two IDs have the same 64-bit hash, the later entry hides the earlier one,
	// which is removed when its time comes.
	b.index[id.hash(hash)] = number
	e := b.entryAt(number)
	*e = entry{id: id, until: math.MaxInt64}
	heap.Push(&b.ends, number)
	b.rules.Load().drop(hash)
	of := b.banning[hash]
	b.banning[hash] = banning{of.rules | 1<<(id.rule%64), of.entries + 1}
	filter.add(hash)
	return e
}

// An endHeap has the number of the entry that ends first on top.
type endHeap struct {
	bans    *Bans
	numbers []uint32
}

func (h *endHeap) at(i int) *entry { return h.bans.entryAt(h.numbers[i]) }

func (h *endHeap) Len() int           { return len(h.numbers) }
func (h *endHeap) Less(i, j int) bool { return h.at(i).until < h.at(j).until }
func (h *endHeap) Swap(i, j int) {
	h.numbers[i], h.numbers[j] = h.numbers[j], h.numbers[i]
	h.at(i).heapIndex, h.at(j).heapIndex = int32(i), int32(j)
}
func (h *endHeap) Push(number any) {
	h.numbers = append(h.numbers, number.(uint32))
	h.at(len(h.numbers) - 1).heapIndex = int32(len(h.numbers) - 1)
}
func (h *endHeap) Pop() any {
	last := h.numbers[len(h.numbers)-1]
	h.numbers = h.numbers[:len(h.numbers)-1]
	return last
}
