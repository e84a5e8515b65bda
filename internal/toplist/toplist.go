// Package toplist finds the keys with the greatest sums of a stream of requests, such as the
// clients that send most requests. Its memory is bounded for any number of keys, and each sum
// comes with its error. Start with [New].
//
// It is Space Saving (Metwally, Agrawal, El Abbadi 2005), with small sets instead of one list: a
// seeded hash selects a set of eight keys. A new key takes the place of the set's smallest one and
// inherits its sum as a possible error. So the error of a key is less than an eighth of what its
// set has counted, about 1/512 of all. A key with more than that is never lost, whatever other keys
// are sent. Nobody knows which keys share a set, because nobody knows the seed.
package toplist

import (
	"hash/maphash"
	"sync"
	"time"
)

// Measures is how many sums each key has.
const Measures = 5

// Amounts are what one request adds to the sums of its keys. An amount of 0 or less adds nothing.
type Amounts [Measures]int64

const (
	ways    = 8  // keys of a set
	sets    = 64 // a power of two
	maxKey  = 96 // bytes of a key that are kept
	setBits = sets - 1
)

// A table finds the keys with the greatest sums of one measure. For each key, sum is at least the
// true sum, and sum-over at most. A free cell has a tag of 0 and a sum of 0.
type table struct {
	tags [sets][ways]uint64 // the hash of the key
	sums [sets][ways]int64
	over [sets][ways]int64
	keys [sets][ways]cell
}

type cell struct {
	n    uint8
	text [maxKey]byte
}

// add adds an amount to the sum of a key, which is head with tail.
func (t *table) add(hash uint64, head []byte, tail string, amount int64) {
	set := hash & setBits
	tags := &t.tags[set]
	for i := range tags {
		if tags[i] == hash {
			t.sums[set][i] += amount
			return
		}
	}
	sums, least := &t.sums[set], 0
	for i := range sums {
		if sums[i] < sums[least] {
			least = i
		}
	}
	tags[least] = hash
	t.over[set][least] = sums[least]
	sums[least] += amount
	c := &t.keys[set][least]
	n := copy(c.text[:], head)
	c.n = uint8(n + copy(c.text[n:], tail))
}

// Lists has the keys of several dimensions: clients, paths. Record, Top and Rotate may be called by
// several goroutines at once.
type Lists struct {
	seed maphash.Seed

	mu   sync.Mutex         // held by Lock, for some hundred ns
	live [][Measures]*table // a table is nil until something is added

	reading sync.Mutex           // held by Rotate and Window
	since   time.Time            // when live began
	spare   [Measures]*table     // empty: the next live ones of a dimension
	levels  [len(steps)][]period // finished periods, the latest last
}

// A step is the length of the periods of one level, in periods of the level before.
type step struct {
	of   int // periods that are joined into one of this level
	most int // periods that are kept
}

// steps are periods of 10 s, a minute and 5 minutes, if Rotate is called every [Period].
var steps = [...]step{{1, 12}, {6, 20}, {5, 13}}

// Period is how often Rotate should be called.
const Period = 10 * time.Second

// New returns empty lists for so many dimensions, from now on. Each measure of a dimension takes 64 KB when
// something is first added to it. A dimension takes at most 4 MB, when it has counted thousands of keys for
// an hour.
func New(dimensions int, now time.Time) *Lists {
	return &Lists{seed: maphash.MakeSeed(), since: now, live: make([][Measures]*table, dimensions)}
}

// HashBytes returns the hash of a key.
func (l *Lists) HashBytes(key []byte) uint64 { return maphash.Bytes(l.seed, key) | 1<<63 }

// HashString returns the hash of a key.
func (l *Lists) HashString(key string) uint64 { return maphash.String(l.seed, key) | 1<<63 }

// Lock begins a request; Unlock ends it.
func (l *Lists) Lock() { l.mu.Lock() }

// Unlock ends what Lock began.
func (l *Lists) Unlock() { l.mu.Unlock() }

// Add adds the amounts of a request to the sums of a key, which is head with tail. The key's
// identity is its hash; of the bytes at most 96 are kept. Call it between Lock and Unlock. It
// allocates nothing once a measure has its table, and keeps neither head nor tail.
func (l *Lists) Add(dimension int, hash uint64, head []byte, tail string, amounts *Amounts) {
	tables := &l.live[dimension]
	for m, amount := range amounts {
		if amount > 0 {
			if tables[m] == nil {
				tables[m] = new(table)
			}
			tables[m].add(hash, head, tail, amount)
		}
	}
}

// Rotate ends a period at now, and begins the next one. Call it every Period; other lengths make
// windows less exact. It calls ended, which may be nil, with what each dimension has counted in the period;
// the Window is valid only until ended returns.
func (l *Lists) Rotate(now time.Time, ended func(dimension int, w *Window)) {
	l.reading.Lock()
	defer l.reading.Unlock()
	if !now.After(l.since) {
		return
	}
	p := period{from: l.since, to: now, lists: make([]sums, len(l.live))}
	for i := range l.live {
		l.mu.Lock()
		l.live[i], l.spare = l.spare, l.live[i]
		l.mu.Unlock()
		for m, t := range l.spare {
			p.lists[i][m] = t.summary()
			if t != nil {
				*t = table{}
			}
		}
		if ended != nil {
			w := &Window{From: p.from, To: p.to, lists: p.lists[i]}
			w.sort()
			ended(i, w)
		}
		for _, s := range p.lists[i] {
			s.cut(keptKeys)
		}
	}
	l.since = now
	l.append(0, p)
}

// append appends a period to a level, and joins full ones into a period of the next level.
func (l *Lists) append(level int, p period) {
	all := append(l.levels[level], p)
	if extra := len(all) - steps[level].most; extra > 0 {
		all = append(all[:0:0], all[extra:]...)
	}
	l.levels[level] = all
	if level+1 == len(steps) {
		return
	}
	var from time.Time // where the next level ends
	if next := l.levels[level+1]; len(next) > 0 {
		from = next[len(next)-1].to
	}
	begun := len(all)
	for begun > 0 && !all[begun-1].from.Before(from) {
		begun--
	}
	if group := all[begun:]; len(group) >= steps[level+1].of {
		l.append(level+1, joinPeriods(group))
	}
}
