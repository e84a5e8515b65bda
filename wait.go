package fairshare

import (
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"
)

// How many requests may wait: in all, and in one line. When so many wait, a
// newcomer takes the last place of the longest of some lines, if that is longer
// than its own: no client can keep others from waiting.
const (
	mostWaiting = 4096
	longestLine = 128
	linesSeen   = 32
)

// waiting are the requests that wait until earlier ones of their key settle, in
// a line for each limit and key.
type waiting struct {
	count atomic.Int64
	mu    sync.Mutex
	lines map[string][]*Place
}

// A Place is where a request waits. See [Guard.Wait].
type Place struct {
	line  string
	turns chan struct{} // room for one
	taken atomic.Bool   // by a newcomer
}

// Turn returns the channel that receives something when an earlier request of
// the same key has settled.
func (p *Place) Turn() <-chan struct{} { return p.turns }

// Wait gives the request of v a place in a line if nothing keeps it out but
// requests in progress, whose costs are not known yet: when one of them settles
// it may pass. The request is then to be decided again: once at a new place,
// since one may have settled meanwhile, and each time that its turn comes. The
// next verdict is handed to Wait with the place; that moves the request to
// another line, or out of any, as it needs. Each turn lets one request try, and
// each that leaves a line hands its turn on.
//
// Wait returns nil when the request has nothing to wait for, or when too many
// wait. It takes v before it is settled.
func (g *Guard) Wait(v *Verdict, place *Place) *Place {
	line := g.lineOf(v, place)
	if place != nil {
		if line == place.line && !place.taken.Load() {
			return place
		}
		g.waiting.leave(place)
	}
	if line == "" || place != nil && place.taken.Load() {
		return nil
	}
	return g.waiting.join(line)
}

// Retry gives a place its turn if it is the first in its line. Call it from time
// to time: the requests in progress may have been judged by another Guard with
// the same counters, and a Guard does not notice when those settle.
func (g *Guard) Retry(place *Place) { g.waiting.retry(place) }

// Leave takes a request that does not wait any longer out of its line.
func (g *Guard) Leave(place *Place) { g.waiting.leave(place) }

// lineOf returns the line in which v's request is to wait: that of its place if
// it still has to, else that of the first limit in its way; "" if it has
// nothing to wait for.
func (g *Guard) lineOf(v *Verdict, place *Place) string {
	if v.Enforced() != Refuse || v.d == nil || v.d.gen.Load() != v.gen || v.Ban != NotBanned {
		return ""
	}
	var space [lineSpace]byte
	first := -1
	for i := range v.d.takes {
		take, tally := &v.d.takes[i], &v.d.tallies[i]
		switch {
		case take.DryRun || !tally.Over:
		case tally.Wait > 0 || tally.Held == 0:
			return ""
		case place != nil && place.line == string(appendLine(space[:0], take.Limit, take.Key)):
			return place.line
		case first < 0:
			first = i
		}
	}
	if first < 0 {
		return ""
	}
	return string(appendLine(space[:0], v.d.takes[first].Limit, v.d.takes[first].Key))
}

// lineSpace is enough for the keys of most limits.
const lineSpace = 96

// appendLine appends the name of the line for a limit and key.
func appendLine(b []byte, limit int, key []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(limit)), key...)
}

// join returns a new place at the end of a line, or nil if too many wait.
func (w *waiting) join(line string) *Place {
	w.mu.Lock()
	defer w.mu.Unlock()
	length := len(w.lines[line])
	if length >= longestLine || w.count.Load() >= mostWaiting && !w.makeRoom(length+1) {
		return nil
	}
	p := &Place{line: line, turns: make(chan struct{}, 1)}
	if w.lines == nil {
		w.lines = map[string][]*Place{}
	}
	w.lines[line] = append(w.lines[line], p)
	w.count.Add(1)
	return p
}

// leave takes p out of its line and hands on its turn.
func (w *waiting) leave(p *Place) {
	w.mu.Lock()
	defer w.mu.Unlock()
	line := w.lines[p.line]
	if i := slices.Index(line, p); i >= 0 {
		w.lines[p.line] = slices.Delete(line, i, i+1)
		w.count.Add(-1)
	}
	if wake(w.lines[p.line]); len(w.lines[p.line]) == 0 {
		delete(w.lines, p.line)
	}
}

// retry gives p a turn if it is the first in its line.
func (w *waiting) retry(p *Place) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if line := w.lines[p.line]; len(line) > 0 && line[0] == p {
		wake(line[:1])
	}
}

// makeRoom takes the last place of the longest of some lines, and reports
// whether there is one longer than that.
func (w *waiting) makeRoom(longerThan int) bool {
	var longest []*Place
	seen := 0
	for _, line := range w.lines { // in random order
		if len(line) > len(longest) {
			longest = line
		}
		if seen++; seen == linesSeen {
			break
		}
	}
	if len(longest) <= longerThan {
		return false
	}
	p := longest[len(longest)-1]
	w.lines[p.line] = longest[:len(longest)-1]
	w.count.Add(-1)
	p.taken.Store(true)
	wake([]*Place{p})
	return true
}

// wake gives a turn to the first in line that has none yet.
func wake(line []*Place) {
	for _, p := range line {
		select {
		case p.turns <- struct{}{}:
			return
		default:
		}
	}
}

// settled gives a turn in the line of each charge that gives something back.
func (w *waiting) settled(charges []Charge) {
	if w.count.Load() == 0 {
		return
	}
	var space [lineSpace]byte
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range charges {
		if c := &charges[i]; c.Held > 0 {
			wake(w.lines[string(appendLine(space[:0], c.Limit, c.Key))])
		}
	}
}
