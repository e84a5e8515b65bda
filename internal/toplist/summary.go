package toplist

import (
	"cmp"
	"slices"
	"time"
)

// keptKeys is how many keys a finished period keeps for each measure.
const keptKeys = 160

// A summary is what a table has counted, or several.
type summary struct {
	total   int64
	entries []entry
	// rest is an upper bound of the sum of each key that is not among entries, by its set.
	rest [sets]int64
}

// An entry is a key with the bounds of its sum.
type entry struct {
	hash      uint64
	low, high int64
	key       string
}

type sums [Measures]*summary // of one dimension

// A period is what all dimensions have counted from a time to another.
type period struct {
	from, to time.Time
	lists    []sums
}

// summary returns what the table has counted; nothing if it is nil.
func (t *table) summary() *summary {
	s := new(summary)
	if t == nil {
		return s
	}
	for set := range t.tags {
		least := t.sums[set][0]
		for i, tag := range t.tags[set] {
			sum, over := t.sums[set][i], t.over[set][i]
			least = min(least, sum)
			if tag == 0 {
				continue
			}
			s.total += sum // a key's sum is what was there, and what came: all sums of a set are what it has counted
			c := &t.keys[set][i]
			s.entries = append(s.entries, entry{hash: tag, low: sum - over, high: sum, key: string(c.text[:c.n])})
		}
		s.rest[set] = least
	}
	return s
}

// compare orders entries, those that surely have the greatest sums first.
func compare(a, b entry) int {
	return cmp.Or(cmp.Compare(b.low, a.low), cmp.Compare(b.high, a.high), cmp.Compare(a.hash, b.hash))
}

// cut sorts the entries and removes all but the first n.
func (s *summary) cut(n int) *summary {
	slices.SortFunc(s.entries, compare)
	if len(s.entries) <= n {
		return s
	}
	for _, e := range s.entries[n:] {
		rest := &s.rest[e.hash&setBits]
		*rest = max(*rest, e.high)
	}
	s.entries = slices.Clone(s.entries[:n])
	return s
}

// join returns the sum of summaries, with all of their entries.
func join(all []*summary) *summary {
	s := new(summary)
	index := map[uint64]int{}
	var absent []int64 // for each entry: rest of the summaries that have it
	for _, part := range all {
		s.total += part.total
		for set := range s.rest {
			s.rest[set] += part.rest[set]
		}
		for _, e := range part.entries {
			i, found := index[e.hash]
			if !found {
				i = len(s.entries)
				index[e.hash] = i
				s.entries = append(s.entries, entry{hash: e.hash, key: e.key})
				absent = append(absent, 0)
			}
			known := &s.entries[i]
			known.low, known.high = known.low+e.low, known.high+e.high
			absent[i] += part.rest[e.hash&setBits]
		}
	}
	for i := range s.entries {
		e := &s.entries[i]
		e.high += s.rest[e.hash&setBits] - absent[i]
	}
	return s
}

func joinPeriods(all []period) period {
	p := period{from: all[0].from, to: all[len(all)-1].to, lists: make([]sums, len(all[0].lists))}
	for i := range p.lists {
		for m := range p.lists[i] {
			p.lists[i][m] = joined(all, i, m).cut(keptKeys)
		}
	}
	return p
}

func joined(all []period, dimension, measure int) *summary {
	parts := make([]*summary, len(all))
	for i := range all {
		parts[i] = all[i].lists[dimension][measure]
	}
	return join(parts)
}

// A Window is what one dimension has counted in a time. It does not change.
type Window struct {
	From, To time.Time
	lists    sums
	index    [Measures]map[uint64]int
}

// A Row is a key with its sums. The true sum of each measure is at least Low and at most High.
type Row struct {
	Key       string // its first 96 bytes
	Hash      uint64 // of the whole key
	Low, High Amounts
}

// Window returns what a dimension has counted in a time until now. It is a little longer than
// length, by at most a period. It takes some milliseconds.
func (l *Lists) Window(dimension int, length time.Duration, now time.Time) *Window {
	l.reading.Lock()
	defer l.reading.Unlock()
	w := &Window{From: l.since, To: now}
	var tables [Measures]*table
	l.mu.Lock()
	for m := range tables {
		if t := l.live[dimension][m]; t != nil {
			copied := *t
			tables[m] = &copied
		}
	}
	l.mu.Unlock()
	periods := l.before(now.Add(-length))
	if len(periods) > 0 {
		w.From = periods[0].from
	}
	for m := range tables {
		parts := []*summary{tables[m].summary()}
		for i := range periods {
			parts = append(parts, periods[i].lists[dimension][m])
		}
		w.lists[m] = join(parts)
	}
	w.sort()
	return w
}

// sort orders the entries, and fills the index.
func (w *Window) sort() {
	for m, s := range w.lists {
		slices.SortFunc(s.entries, compare)
		w.index[m] = make(map[uint64]int, len(s.entries))
		for i := range s.entries {
			w.index[m][s.entries[i].hash] = i
		}
	}
}

// before returns the finished periods that cover the time since begin, in order: the longest ones
// that begin then or later, and at last the shortest one that reaches over it.
func (l *Lists) before(begin time.Time) (all []period) {
	end := l.since
	for end.After(begin) {
		var found *period
		for level := range l.levels {
			for i := range l.levels[level] {
				if p := &l.levels[level][i]; p.to.Equal(end) && (found == nil || !p.from.Before(begin)) {
					found = p
				}
			}
		}
		if found == nil {
			break
		}
		all = append(all, *found)
		end = found.from
	}
	slices.Reverse(all)
	return all
}

// Total returns the exact sum of all keys.
func (w *Window) Total(measure int) int64 { return w.lists[measure].total }

// Error returns an upper bound of the sum of each key that Top with a large n does not return.
func (w *Window) Error(measure int) int64 { return slices.Max(w.lists[measure].rest[:]) }

// Top returns the n keys whose sums of a measure are surely the greatest, in order. A key that is
// not listed has less than the last listed one, or at most Error.
func (w *Window) Top(measure, n int) []Row {
	entries := w.lists[measure].entries
	rows := make([]Row, 0, min(n, len(entries)))
	for i := range min(n, len(entries)) {
		rows = append(rows, w.row(entries[i].hash, entries[i].key))
	}
	return rows
}

// Find returns the sums of the key with a hash. A key that was not seen has a Low of 0.
func (w *Window) Find(hash uint64) Row { return w.row(hash, "") }

func (w *Window) row(hash uint64, key string) Row {
	r := Row{Key: key, Hash: hash}
	for m := range w.lists {
		if i, ok := w.index[m][hash]; ok {
			e := &w.lists[m].entries[i]
			r.Low[m], r.High[m] = e.low, e.high
		} else {
			r.High[m] = w.lists[m].rest[hash&setBits]
		}
	}
	return r
}
