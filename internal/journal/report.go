package journal

import (
	"cmp"
	"slices"
	"sync"
	"time"
	"unicode/utf8"
)

// Bounds of the lines for sums at a time.
const (
	reportedNetworks = 40
	reportedRules    = 10 // the last is for all further rules
)

// births are the slots in use, the oldest first.
type births struct {
	mu    sync.Mutex
	slots [shards * slotSets * setSize]struct {
		index  int32
		second int64
	}
	first, n int
}

func (b *births) push(index int, second int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	last := &b.slots[(b.first+b.n)%len(b.slots)]
	last.index, last.second = int32(index), second
	b.n++
}

// pop returns the oldest slot if it began at second or before.
func (b *births) pop(second int64) (index int, found bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	oldest := &b.slots[b.first]
	if b.n == 0 || oldest.second > second {
		return 0, false
	}
	b.first = (b.first + 1) % len(b.slots)
	b.n--
	return int(oldest.index), true
}

// writeLine writes a line for n entries.
func (j *Journal) writeLine(s *settings, line []byte, n int64) {
	if !s.out.add(line, n) {
		j.lost.Add(n)
	}
}

// writeRepeats ends the slots that began at second or before, and writes at most that
// many lines for those with repeats. It returns how many it wrote.
func (j *Journal) writeRepeats(s *settings, second int64, lines int) (written int) {
	var b []byte
	for written < lines {
		i, found := j.births.pop(second)
		if !found {
			break
		}
		const perShard = slotSets * setSize
		if sl := j.shards[i/perShard].end(i % perShard); sl.n > 0 {
			b = s.layout.repeated(b[:0], &j.stamps, &sl)
			j.writeLine(s, b, sl.n)
			written++
		}
	}
	return written
}

// writeSums writes and empties all sums, and returns how many lines it wrote.
func (j *Journal) writeSums(s *settings) (written int) {
	var cells []cell
	var sums []sum
	for i := range j.shards {
		cells, sums = j.shards[i].take(cells, sums)
	}
	return j.writeTaken(s, cells, sums)
}

func (j *Journal) writeTaken(s *settings, cells []cell, sums []sum) (written int) {
	slices.SortFunc(cells, func(a, b cell) int {
		return cmp.Or(cmp.Compare(b.n, a.n), a.network.Compare(b.network), cmp.Compare(a.rule, b.rule))
	})
	var b []byte
	for i := range cells {
		c := &cells[i]
		if i >= reportedNetworks {
			sums = append(sums, c.sum)
			continue
		}
		b = s.layout.summed(b[:0], &j.stamps, &c.sum, c)
		j.writeLine(s, b, c.n)
		written++
	}
	for _, t := range byRule(sums) {
		b = s.layout.summed(b[:0], &j.stamps, &t, nil)
		j.writeLine(s, b, t.n)
		written++
	}
	return written
}

// byRule returns one sum for each of the largest rules, and one for all others.
func byRule(sums []sum) []sum {
	slices.SortFunc(sums, func(a, b sum) int {
		return cmp.Or(cmp.Compare(a.rule, b.rule), cmp.Compare(a.action, b.action), compareBools(a.dryRun, b.dryRun))
	})
	rules := sums[:0]
	for i := range sums {
		if last := len(rules) - 1; last >= 0 && rules[last].same(&sums[i]) {
			rules[last].merge(&sums[i])
		} else {
			rules = append(rules, sums[i])
		}
	}
	slices.SortStableFunc(rules, func(a, b sum) int { return cmp.Compare(b.n, a.n) })
	if len(rules) > reportedRules {
		rest := &rules[reportedRules-1]
		for i := reportedRules; i < len(rules); i++ {
			rest.merge(&rules[i])
		}
		rest.rule, rest.action, rest.dryRun = "", "", false
		rules = rules[:reportedRules]
	}
	return rules
}

func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// writeLost writes how many entries were lost, if there are any.
func (j *Journal) writeLost(s *settings) (written int) {
	n := j.lost.Swap(0)
	if n == 0 {
		return 0
	}
	j.writeLine(s, s.layout.lost(nil, &j.stamps, time.Now(), n), n)
	return 1
}

// writeAll writes all counted entries. Afterwards nothing more is counted.
func (j *Journal) writeAll() {
	s := j.settings.Load()
	var cells []cell
	var sums []sum
	for i := range j.shards {
		sh := &j.shards[i]
		sh.mu.Lock()
		sh.closed = true
		sh.mu.Unlock()
		cells, sums = sh.take(cells, sums)
	}
	j.writeRepeats(s, j.second.Load(), maxLines)
	const perShard = slotSets * setSize
	for {
		i, found := j.births.pop(j.second.Load())
		if !found {
			break
		}
		if sl := j.shards[i/perShard].end(i % perShard); sl.n > 0 {
			sums = append(sums, sum{rule: sl.rule, action: sl.action, dryRun: sl.dryRun, n: sl.n, firstMs: sl.firstMs,
				latestMs: sl.latestMs})
		}
	}
	j.writeTaken(s, cells, sums)
	j.writeLost(s)
}

// repeated appends the line of a slot.
func (l layout) repeated(b []byte, st *stamps, sl *slot) []byte {
	b = l.begin(b, st, fromMs(sl.latestMs))
	b = l.time(b, "since", st, fromMs(sl.firstMs))
	b = l.addr(b, "client", sl.client)
	b = l.through(b, sl.through)
	b = l.string(b, "path", sl.lastPath())
	b = l.string(b, "rule", sl.rule)
	b = l.string(b, "action", sl.action)
	b = l.bool(b, "dry_run", sl.dryRun)
	if sl.ban != "" {
		b = l.string(b, "ban", string(sl.ban))
	}
	b = l.int(b, "repeated", sl.n)
	b = l.string(b, "id", sl.id)
	return l.end(b)
}

// lastPath returns the path of the last repeat, cut to pathRoom bytes.
func (sl *slot) lastPath() string {
	if sl.pathLen <= pathRoom {
		return string(sl.path[:sl.pathLen])
	}
	path := string(sl.path[:])
	for i := len(path) - 1; i > len(path)-utf8.UTFMax; i-- { // not in the middle of a character
		if utf8.RuneStart(path[i]) {
			if !utf8.FullRuneInString(path[i:]) {
				path = path[:i]
			}
			break
		}
	}
	return path + "…"
}

// summed appends the line of a sum, of a network if there is one.
func (l layout) summed(b []byte, st *stamps, t *sum, c *cell) []byte {
	b = l.begin(b, st, fromMs(t.latestMs))
	b = l.time(b, "since", st, fromMs(t.firstMs))
	if c != nil {
		network := ""
		if c.network.IsValid() {
			network = c.network.String()
		}
		b = l.string(b, "network", network)
	}
	if t.action != "" {
		b = l.string(b, "rule", t.rule)
		b = l.string(b, "action", t.action)
		b = l.bool(b, "dry_run", t.dryRun)
	}
	b = l.int(b, "summed", t.n)
	if c != nil {
		b = l.int(b, "clients", c.clients())
	}
	return l.end(b)
}

// lost appends a line with the number of entries without a line.
func (l layout) lost(b []byte, st *stamps, now time.Time, n int64) []byte {
	b = l.begin(b, st, now)
	b = l.int(b, "lost", n)
	return l.end(l.string(b, "why", "they could not be written in time"))
}
