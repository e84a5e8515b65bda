package registrar

import (
	"sync"

	"fairshare"
)

// A table holds a bounded number of records that wait to be written, and those
// that were written and may come again. It is cut in shards by a secret hash,
// each with its part of all bounds, so that clients share no lock.
type table[R any] struct {
	shards []shard[R]
	most   int // records of a shard
	share  int // of these, of one network
	part   int // what is left, divided by it, is what may wait of one network
	cursor int // the shard to take from next; the writer's
}

type shard[R any] struct {
	mu       sync.Mutex
	entries  map[uint64]*entry[R] // by hash
	networks map[uint64]*network
	lists    [taken]list[R]
	round    uint32 // cuts so far
	leftOut  int64  // requests of clients that found no place

	_ [64]byte // no two locks in one cache line
}

// A network is what of a shard's entries are one network's.
type network struct{ n, idle int }

// An entry is a record and its place. Its shard's lock guards it.
type entry[R any] struct {
	// What a request touches stands together: it is rarely in the cache.
	where  where
	again  bool // it was changed while it is being written
	gone   bool // it was forgotten while it is being written
	round  uint32
	record R

	network    *network
	prev, next *entry[R]
	key        key
}

// A key names a record: of a client, or of one of its stories.
type key struct {
	hash    uint64
	network uint64 // 0: of none, and not bounded by its share
	id      fairshare.ClientID
	rule    string // of a story
}

// where tells in which list an entry stands.
type where uint8

const (
	idle   where = iota // written; the one that was so first goes first
	fresh               // changed since the last cut
	due                 // changed before it: to be written
	urgent              // to be written at once
	taken               // being written; in no list
)

const maxShards = 64

// newTable returns a table for that many records.
func newTable[R any](most, part int) *table[R] {
	n := 1
	for n < maxShards && most/n >= 512 {
		n *= 2
	}
	t := &table[R]{shards: make([]shard[R], n), most: max(most/n, 1), part: part}
	t.share = max(t.most/10, 1)
	for i := range t.shards {
		t.shards[i].entries = map[uint64]*entry[R]{}
		t.shards[i].networks = map[uint64]*network{}
	}
	return t
}

// lock locks the shard of a hash.
func (t *table[R]) lock(hash uint64) *shard[R] {
	s := &t.shards[hash>>32&uint64(len(t.shards)-1)]
	s.mu.Lock()
	return s
}

// find returns the entry of k, a new one with isNew set if there was none, or
// nil when there is no place. Those that merely pass leave an eighth of it to
// others. The shard is locked.
func (t *table[R]) find(s *shard[R], k *key, passes bool) (e *entry[R], isNew bool) {
	if e := s.entries[k.hash]; e != nil { // of 64 secret bits: with 65,536 others one shares it by a chance of 2^-48
		return e, false
	}
	most, share := t.most, t.share
	if passes {
		most, share = most-most/8, share-share/8
	}
	if !s.makePlace(k.network, most, share, t.part) {
		s.leftOut++
		return nil, false
	}
	of := s.networks[k.network]
	if of == nil {
		of = new(network)
		s.networks[k.network] = of
	}
	of.n++
	e = &entry[R]{key: *k, network: of, where: fresh}
	s.entries[k.hash] = e
	s.lists[fresh].push(e)
	return e, true
}

// makePlace reports whether there is a place for one more of a network; one
// that is idle may have to go. The fewer places are left, the fewer may wait
// of one network: a part of those left. A flood from many of them leaves some to
// others (dynamic thresholds: Choudhury and Hahne, 1998).
func (s *shard[R]) makePlace(of uint64, most, share, part int) bool {
	oldest := s.lists[idle].first
	left := most - len(s.entries) + s.lists[idle].n
	switch n := s.networks[of]; {
	case of != 0 && n != nil && n.n-n.idle > left/part:
		return false
	case of != 0 && n != nil && n.n >= share:
		if n.idle == 0 {
			return false
		}
		for oldest.network != n { // rare: of a crowded network few are idle, see written
			oldest = oldest.next
		}
	case len(s.entries) < most:
		return true
	case oldest == nil:
		return false
	}
	s.remove(oldest)
	return true
}

// touch notes that an entry was changed.
func (s *shard[R]) touch(e *entry[R]) {
	switch e.where {
	case idle:
		s.move(e, fresh)
	case taken:
		e.again = true
	}
}

func (s *shard[R]) move(e *entry[R], to where) {
	switch e.where {
	case taken:
	case idle:
		e.network.idle--
		fallthrough
	default:
		s.lists[e.where].remove(e)
	}
	switch e.where = to; to {
	case taken:
	case idle:
		e.network.idle++
		e.round = s.round
		fallthrough
	default:
		s.lists[to].push(e)
	}
}

// remove takes an entry out of the table.
func (s *shard[R]) remove(e *entry[R]) {
	e.gone = e.where == taken
	s.move(e, taken)
	delete(s.entries, e.key.hash)
	if e.network.n--; e.network.n == 0 {
		delete(s.networks, e.key.network)
	}
}

// cut has all that was changed so far written, and lets go of what was not
// touched for kept cuts since it was written.
func (t *table[R]) cut(kept uint32) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		s.round++
		for e := s.lists[idle].first; e != nil && s.round-e.round > kept; e = s.lists[idle].first {
			s.remove(e)
		}
		s.lists[fresh].each(func(e *entry[R]) { e.where = due })
		s.lists[due].append(&s.lists[fresh])
		s.mu.Unlock()
	}
}

// take takes at most n entries of a list to be written, those of a shard in
// the order in which they came, and appends them to entries. It calls collect
// for each, under the lock of its shard.
func (t *table[R]) take(entries []*entry[R], from where, n int, collect func(*entry[R])) []*entry[R] {
	for range t.shards {
		s := &t.shards[t.cursor]
		s.mu.Lock()
		for ; n > 0 && s.lists[from].first != nil; n-- {
			e := s.lists[from].first
			s.move(e, taken)
			e.again = false
			collect(e)
			entries = append(entries, e)
		}
		s.mu.Unlock()
		if n == 0 {
			break
		}
		t.cursor = (t.cursor + 1) % len(t.shards)
	}
	return entries
}

// written gives back entries that were written.
func (t *table[R]) written(entries []*entry[R]) {
	for _, e := range entries {
		s := t.lock(e.key.hash)
		switch {
		case e.gone:
		case e.again:
			s.move(e, fresh)
		case e.key.network != 0 && e.network.n > t.share/2: // others of it wait for a place
			s.remove(e)
		default:
			s.move(e, idle)
		}
		s.mu.Unlock()
	}
}

// failed gives back entries that were not written, as the next ones to be
// taken. It calls restore for each with its place, under the lock of its
// shard.
func (t *table[R]) failed(entries []*entry[R], restore func(int, *entry[R])) {
	for i := len(entries) - 1; i >= 0; i-- {
		e := entries[i]
		s := t.lock(e.key.hash)
		if !e.gone {
			restore(i, e)
			e.where = due
			s.lists[due].pushFirst(e)
		}
		s.mu.Unlock()
	}
}

// forget removes the entries of the clients that which names.
func (t *table[R]) forget(which func(fairshare.ClientID) bool) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		for _, e := range s.entries {
			if which(e.key.id) {
				s.remove(e)
			}
		}
		s.mu.Unlock()
	}
}

// count returns how many records there are, how many of them are not written,
// and how many requests found no place.
func (t *table[R]) count() (n, dirty int, leftOut int64) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		n += len(s.entries)
		dirty += len(s.entries) - s.lists[idle].n
		leftOut += s.leftOut
		s.mu.Unlock()
	}
	return n, dirty, leftOut
}

// A list is of entries in the order in which they came.
type list[R any] struct {
	first, last *entry[R]
	n           int
}

func (l *list[R]) push(e *entry[R]) {
	e.prev, e.next = l.last, nil
	if l.last == nil {
		l.first = e
	} else {
		l.last.next = e
	}
	l.last = e
	l.n++
}

func (l *list[R]) pushFirst(e *entry[R]) {
	e.prev, e.next = nil, l.first
	if l.first == nil {
		l.last = e
	} else {
		l.first.prev = e
	}
	l.first = e
	l.n++
}

func (l *list[R]) remove(e *entry[R]) {
	if e.prev == nil {
		l.first = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		l.last = e.prev
	} else {
		e.next.prev = e.prev
	}
	e.prev, e.next = nil, nil
	l.n--
}

// append moves all of other to the end.
func (l *list[R]) append(other *list[R]) {
	switch {
	case other.first == nil:
		return
	case l.last == nil:
		*l = *other
	default:
		l.last.next, other.first.prev = other.first, l.last
		l.last = other.last
		l.n += other.n
	}
	*other = list[R]{}
}

func (l *list[R]) each(do func(*entry[R])) {
	for e := l.first; e != nil; e = e.next {
		do(e)
	}
}
