package fairshare

import (
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"
)

// Bounds of the requests that wait: in all, and in one line. When mostWaiting
// requests wait, a new one takes the last place of the longest of linesSeen
// lines, if that line is longer than its own. So no client can prevent others
// from waiting.
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
	lines map[string][]*QueuedRequest
}

// A QueuedRequest is the place of a request in a line. See [Guard.Wait].
type QueuedRequest struct {
	line  string
	turns chan struct{} // room for one
	taken atomic.Bool   // by a newer request
}

// Turn returns the channel that receives something when an earlier request of
// the same key has settled.
func (p *QueuedRequest) Turn() <-chan struct{} { return p.turns }

// Wait gives the request of v a place in a line if only requests in progress keep
// it out, whose costs are not known yet. When one of them settles, it may pass.
//
// Call Decide again for the request: once after it got a new place, since a
// request may have settled meanwhile, and each time that its turn comes. Pass the
// next verdict to Wait together with the place. Wait then moves the request to
// another line, or out of all lines, as necessary. Each turn lets one request
// try. A request that leaves a line passes its turn to the next one.
//
// Wait returns nil when the request has nothing to wait for, or when too many
// requests wait. Call it before v is settled.
func (g *Guard) Wait(v *Verdict, place *QueuedRequest) *QueuedRequest {
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
func (g *Guard) Retry(place *QueuedRequest) { g.waiting.retry(place) }

// Leave takes a request that no longer waits out of its line.
func (g *Guard) Leave(place *QueuedRequest) { g.waiting.leave(place) }

// lineOf returns the line in which v's request must wait. That is the line of its
// place if the same limit still keeps it out, else the line of the first limit
// that does. It returns "" if the request has nothing to wait for.
func (g *Guard) lineOf(v *Verdict, place *QueuedRequest) string {
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
func (w *waiting) join(line string) *QueuedRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	length := len(w.lines[line])
	if length >= longestLine || w.count.Load() >= mostWaiting && !w.makeRoom(length+1) {
		return nil
	}
	p := &QueuedRequest{line: line, turns: make(chan struct{}, 1)}
	if w.lines == nil {
		w.lines = map[string][]*QueuedRequest{}
	}
	w.lines[line] = append(w.lines[line], p)
	w.count.Add(1)
	return p
}

// leave takes p out of its line and passes its turn to the next request.
func (w *waiting) leave(p *QueuedRequest) {
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
func (w *waiting) retry(p *QueuedRequest) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if line := w.lines[p.line]; len(line) > 0 && line[0] == p {
		wake(line)
	}
}

// makeRoom takes the last place of the longest of some lines, and reports
// whether there is one longer than that.
func (w *waiting) makeRoom(longerThan int) bool {
	var longest []*QueuedRequest
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
	wake([]*QueuedRequest{p})
	return true
}

// wake gives a turn to the first in line, if it has none yet. When it leaves the line, it wakes the next one.
func wake(line []*QueuedRequest) {
	if len(line) == 0 {
		return
	}
	select {
	case line[0].turns <- struct{}{}:
	default:
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
