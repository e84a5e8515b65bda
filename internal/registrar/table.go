package registrar

import (
	"sync"

	"fairshare"
)

// A table holds a bounded number of records: those not written yet, and written ones
// that may change again. It is divided into shards by a seeded hash, each with its
// part of the bounds, so that clients rarely wait for the same lock.
type table[R any] struct {
	shards []shard[R]
	most   int // records of a shard
	share  int // records of one network in a shard
	part   int // one network has at most this part of the free places unwritten
	cursor int // the shard to take from next; used by the writer only
}

type shard[R any] struct {
	mu       sync.Mutex
	entries  map[uint64]*entry[R] // by hash
	networks map[uint64]*network
	lists    [taken]list[R]
	round    uint32 // number of the present round
	dropped  int64  // requests for which there was no place

	_ [64]byte // no two locks in one cache line
}

// A network counts the entries of one network in a shard.
type network struct{ n, idle int }

// An entry is a record with its state. The lock of its shard guards it.
type entry[R any] struct {
	// The fields that a request uses come first, in few cache lines.
	state   entryState
	changed bool // while it is being written
	removed bool // while it is being written
	round   uint32
	record  R

	network    *network
	prev, next *entry[R]
	key        key
}

// A key identifies the record of a client, or of one of its stories.
type key struct {
	hash    uint64
	network uint64 // 0 for a bot, which belongs to no network: no share bounds it
	id      fairshare.ClientID
	rule    string // of a story
}

// An entryState is also the index of the list that holds the entry.
type entryState uint8

const (
	idle   entryState = iota // written; the first in the list is removed first
	fresh                    // changed in the present round
	due                      // changed before: to be written
	urgent                   // to be written at once
	taken                    // being written; in no list
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

// find returns the entry of k. If there is none it creates one and sets isNew, or
// returns nil and drops n requests if there is no place. Clients of requests that passed cannot use the
// last eighth of the places. The shard is locked.
func (t *table[R]) find(s *shard[R], k *key, passes bool, n int64) (e *entry[R], isNew bool) {
	if e := s.entries[k.hash]; e != nil { // 64 seeded bits: it is equal to one of 65,536 others with chance 2^-48
		return e, false
	}
	most, share := t.most, t.share
	if passes {
		most, share = most-most/8, share-share/8
	}
	if !s.makePlace(k.network, most, share, t.part) {
		s.dropped += n
		return nil, false
	}
	of := s.networks[k.network]
	if of == nil {
		of = new(network)
		s.networks[k.network] = of
	}
	of.n++
	e = &entry[R]{key: *k, network: of, state: fresh}
	s.entries[k.hash] = e
	s.lists[fresh].push(e)
	return e, true
}

// makePlace reports whether a network can have one more entry. It may remove an idle
// one. The fewer places are free, the fewer unwritten entries one network may have: a
// part of the free places. So a flood from many networks leaves places for others
// (dynamic thresholds: Choudhury and Hahne, 1998).
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
		for oldest.network != n { // rare: a network with many entries has few idle ones, see written
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

// touch marks an entry as changed.
func (s *shard[R]) touch(e *entry[R]) {
	switch e.state {
	case idle:
		s.move(e, fresh)
	case taken:
		e.changed = true
	}
}

func (s *shard[R]) move(e *entry[R], to entryState) {
	switch e.state {
	case taken:
	case idle:
		e.network.idle--
		fallthrough
	default:
		s.lists[e.state].remove(e)
	}
	switch e.state = to; to {
	case taken:
	case idle:
		e.network.idle++
		e.round = s.round
		fallthrough
	default:
		s.lists[to].push(e)
	}
}

// remove removes an entry from the table.
func (s *shard[R]) remove(e *entry[R]) {
	e.removed = e.state == taken
	s.move(e, taken)
	delete(s.entries, e.key.hash)
	if e.network.n--; e.network.n == 0 {
		delete(s.networks, e.key.network)
	}
}

// startRound makes all changes so far due, and removes entries that were written more
// than maxIdle rounds ago and have not changed since.
func (t *table[R]) startRound(maxIdle uint32) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		s.round++
		for e := s.lists[idle].first; e != nil && s.round-e.round > maxIdle; e = s.lists[idle].first {
			s.remove(e)
		}
		s.lists[fresh].each(func(e *entry[R]) { e.state = due })
		s.lists[due].append(&s.lists[fresh])
		s.mu.Unlock()
	}
}

// take takes at most n entries of a list for writing, those of a shard in the order
// of the list, and appends them to entries. It calls collect for each, with its shard
// locked.
func (t *table[R]) take(entries []*entry[R], from entryState, n int, collect func(*entry[R])) []*entry[R] {
	for range t.shards {
		s := &t.shards[t.cursor]
		s.mu.Lock()
		for ; n > 0 && s.lists[from].first != nil; n-- {
			e := s.lists[from].first
			s.move(e, taken)
			e.changed = false
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

// written returns entries to the table after they were written.
func (t *table[R]) written(entries []*entry[R]) {
	for _, e := range entries {
		s := t.lock(e.key.hash)
		switch {
		case e.removed:
		case e.changed:
			s.move(e, fresh)
		case e.key.network != 0 && e.network.n > t.share/2: // make place for others of its network
			s.remove(e)
		default:
			s.move(e, idle)
		}
		s.mu.Unlock()
	}
}

// failed returns entries to the table after an error, as the next ones to take. It
// calls restore for each, with its index in entries and its shard locked.
func (t *table[R]) failed(entries []*entry[R], restore func(int, *entry[R])) {
	for i := len(entries) - 1; i >= 0; i-- {
		e := entries[i]
		s := t.lock(e.key.hash)
		if !e.removed {
			restore(i, e)
			e.state = due
			s.lists[due].pushFirst(e)
		}
		s.mu.Unlock()
	}
}

// forget removes the entries of the clients that match.
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

// count returns the number of records, of those not written yet, and of dropped
// requests.
func (t *table[R]) count() (n, dirty int, dropped int64) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		n += len(s.entries)
		dirty += len(s.entries) - s.lists[idle].n
		dropped += s.dropped
		s.mu.Unlock()
	}
	return n, dirty, dropped
}

// A list is a doubly linked list of entries.
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

// append moves all entries of other to the end.
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
