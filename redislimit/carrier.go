package redislimit

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// Carriers take messages to a master. Each has one pipeline on its way and collects
// the next meanwhile: so the order per key stays, requests are batched without delay,
// and a key costs one state per trip whatever its rate. No request calls the client
// itself.
const (
	carriersEach = 2 // per master: fewer have larger batches
	batchAsks    = 256
	batchStates  = 1024
	scriptKeys   = 64 // of one script, where keys need not be in one slot
	mostWaiting  = 1024
	mostOfTag    = mostWaiting / 8 / carriersEach

	lazyDelay = int64(5 * time.Millisecond)
	noteDelay = int64(100 * time.Millisecond)

	// All members together send a master at most that many reports per second which no
	// request waits for, so that many new keys do not delay the questions of others. Only
	// slots and held amounts are sent besides: requests in progress are few.
	mostReports = 50_000
	// reportBurst is for how long a carrier may catch up.
	reportBurst = int64(20 * time.Millisecond)
)

// An inquiry is the part of a question whose keys have one tag.
type inquiry struct {
	q        *question
	from, to int
	tag      uint64
}

// A carrier is one goroutine for part of the tags of a master.
type carrier struct {
	core   *core
	master *master

	mu        sync.Mutex
	inquiries []inquiry
	urgent    []ref
	most      int // of urgent, see unique
	lazy      delays
	notes     delays
	held      delays // of tracked limits: without a rate, since others forget them after five seconds
	paid      int64  // monotonic ns: until then, the reports that were sent have used the rate

	busy bool // a batch is prepared or on its way

	wake chan struct{}

	// Of the goroutine alone, to use their memory again.
	batch batch
}

// unique keeps the first of the reports of each place if there are more than so many, and returns how many there may
// be until the next time. When entries go that wait to be reported, others wait in their places: so while the store is
// away, there would be ever more.
func unique[T any](list []T, most int, place func(*T) ref) ([]T, int) {
	if most = max(most, 2*batchStates); len(list) <= most {
		return list, most
	}
	seen := make(map[ref]struct{}, len(list)/2)
	list = slices.DeleteFunc(list, func(r T) bool {
		before := len(seen)
		seen[place(&r)] = struct{}{}
		return len(seen) == before
	})
	return list, 2 * len(list)
}

// A delayed report is due at a monotonic time.
type delayed struct {
	ref ref
	due int64
}

// delays are reports in the order of when they are due.
type delays struct {
	list []delayed
	from int // those before are gone
	most int // see unique
}

func (d *delays) waiting() []delayed { return d.list[d.from:] }

// next returns when the first one is due.
func (d *delays) next() int64 {
	if list := d.waiting(); len(list) > 0 {
		return list[0].due
	}
	return 1 << 62
}

// add adds a report, and reports whether it is the only one.
func (d *delays) add(r delayed) bool {
	d.list = append(d.list, r)
	if rest := d.waiting(); len(rest) > max(d.most, 2*batchStates) {
		d.list, d.from = append(d.list[:0], rest...), 0
		d.list, d.most = unique(d.list, d.most, func(r *delayed) ref { return r.ref })
	}
	return len(d.waiting()) == 1
}

// drop removes the first n.
func (d *delays) drop(n int) {
	d.from += n
	if rest := d.waiting(); d.from >= len(rest) { // copying costs as much as adding them did
		d.list, d.from = append(d.list[:0], rest...), 0
	}
}

// carrier returns the one of a tag.
func (c *core) carrier(tag uint64) *carrier { return c.master(tag).carriers[tag%carriersEach] }

// hand hands an ask to its carrier, or answers it at once if too many wait.
func (c *core) hand(a inquiry) {
	k := c.carrier(a.tag)
	k.mu.Lock()
	full := len(k.inquiries) >= mostWaiting/carriersEach
	if len(k.inquiries) >= mostOfTag && !full { // counting is rarely needed
		same := 0
		for i := range k.inquiries {
			if k.inquiries[i].tag == a.tag {
				same++
			}
		}
		full = same >= mostOfTag
	}
	if !full {
		k.inquiries = append(k.inquiries, a)
	}
	k.mu.Unlock()
	if full {
		c.stats.crowded.Add(1)
		c.unanswered(a, false)
		return
	}
	k.awake()
}

func (k *carrier) awake() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// queue has an entry reported, soon or at once. Its shard is locked.
func (c *core) queue(r ref, e *entry, urgent bool) {
	want := lazily
	if urgent {
		want = urgently
	}
	if e.queued >= want {
		return
	}
	k, wake := c.carrier(e.tag), true
	k.mu.Lock()
	if urgent {
		k.urgent, k.most = unique(append(k.urgent, r), k.most, func(r *ref) ref { return *r })
	} else {
		late := &k.lazy
		if e.tracked {
			late = &k.held
		}
		wake = late.add(delayed{r, c.mono() + lazyDelay})
	}
	k.mu.Unlock()
	e.queued = want
	if wake {
		k.awake()
	}
}

// queueNote has the time of a refused request reported within 100 ms.
func (c *core) queueNote(r ref, e *entry) {
	if e.queued != unqueued {
		return
	}
	k := c.carrier(e.tag)
	k.mu.Lock()
	wake := k.notes.add(delayed{r, c.mono() + noteDelay})
	k.mu.Unlock()
	e.queued = lazily
	if wake {
		k.awake()
	}
}

// run carries until the core stops.
func (k *carrier) run() {
	defer k.core.wg.Done()
	timer := time.NewTimer(time.Hour)
	for {
		for !k.master.breaker.silent() && k.collect() {
			k.send()
			k.rest()
		}
		k.failAsks()
		timer.Reset(k.pause())
		select {
		case <-k.wake:
		case <-timer.C:
		case <-k.core.ctx.Done():
			k.failAll()
			return
		}
	}
}

// pause returns the time until the next report is due.
func (k *carrier) pause() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.master.breaker.silent() {
		return time.Hour // the breaker wakes it
	}
	if len(k.inquiries) > 0 { // they wait for another carrier
		return time.Millisecond
	}
	rated, held := min(k.lazy.next(), k.notes.next()), k.held.next()
	due := min(held, max(rated, k.paid+k.reportEvery()-reportBurst))
	return time.Duration(max(0, min(due-k.core.mono(), int64(time.Hour))))
}

// reportEvery returns the ns that a report takes of the rate of a carrier.
func (k *carrier) reportEvery() int64 {
	return int64(time.Second) * carriersEach * max(1, k.core.members.Load()) / mostReports
}

// takeDue moves reports that are due to the batch, as many as the rate allows. mu is held.
func (k *carrier) takeDue(mono int64) {
	every := k.reportEvery()
	k.batch.take(&k.held, mono, batchStates)
	k.paid = max(k.paid, mono)
	room := int((mono + reportBurst - k.paid) / every)
	for _, d := range [2]*delays{&k.lazy, &k.notes} {
		n := k.batch.take(d, mono, room)
		room -= n
		k.paid += int64(n) * every
	}
}

// take moves reports that are due, at most so many and as many as there is room for.
func (b *batch) take(d *delays, mono int64, most int) (n int) {
	list := d.waiting()
	for most = min(most, batchStates-len(b.refs)); n < len(list) && n < most && list[n].due <= mono; n++ {
		b.refs = append(b.refs, list[n].ref)
	}
	d.drop(n)
	return n
}

// failAsks answers what waits while the breaker is open.
func (k *carrier) failAsks() {
	if k.master.breaker.silent() {
		k.failAll()
	}
}

func (k *carrier) failAll() {
	k.mu.Lock()
	inquiries := k.inquiries
	k.inquiries = nil
	k.mu.Unlock()
	for _, a := range inquiries {
		k.core.unanswered(a, false)
	}
}

// collect prepares the next batch, and reports whether there is one.
func (k *carrier) collect() bool {
	c, b := k.core, &k.batch
	b.inquiries, b.refs, b.deferred = b.inquiries[:0], b.refs[:0], b.deferred[:0]
	b.states, b.scripts = b.states[:0], b.scripts[:0]
	mono := c.mono()
	k.mu.Lock()
	k.busy = true
	n := min(len(k.inquiries), batchAsks)
	b.inquiries = append(b.inquiries, k.inquiries[:n]...)
	k.inquiries = append(k.inquiries[:0], k.inquiries[n:]...)
	n = min(len(k.urgent), batchStates)
	b.refs = append(b.refs, k.urgent[:n]...)
	k.urgent = append(k.urgent[:0], k.urgent[n:]...)
	k.takeDue(mono)
	k.mu.Unlock()
	seq := c.token.Add(1)
	b.token = [tokenBytes]byte{c.me[0], c.me[1], c.me[2], byte(seq >> 16), byte(seq >> 8), byte(seq)}
	b.floors = mono < k.master.breaker.floors.Load()
	b.second = k.master.second()

	slices.SortStableFunc(b.inquiries, func(x, y inquiry) int { return cmp.Compare(x.tag, y.tag) })
	kept := b.inquiries[:0]
	for _, a := range b.inquiries {
		if k.include(a) {
			kept = append(kept, a)
		}
	}
	b.inquiries = kept
	for _, r := range b.refs {
		sh := &c.book[r.shard()]
		sh.mu.Lock()
		if e := c.book.at(r); e.queued != unqueued {
			k.add(r, e, false)
		}
		sh.mu.Unlock()
	}
	if len(b.deferred) > 0 {
		k.mu.Lock()
		for _, r := range b.deferred {
			k.held.add(delayed{r, mono + lazyDelay}) // the rate has counted them already
		}
		k.mu.Unlock()
	}
	if len(b.states) == 0 {
		k.rest()
		return false
	}
	k.encode()
	return true
}

// rest notes that nothing is on its way.
func (k *carrier) rest() {
	k.mu.Lock()
	k.busy = false
	k.mu.Unlock()
}

// include adds the states of an ask. If another carrier has one of them on its
// way, because a slot of the cluster has moved, the ask waits.
func (k *carrier) include(a inquiry) bool {
	c := k.core
	for i := a.from; i < a.to; i++ {
		p := &a.q.parts[i]
		sh := &c.book[p.ref.shard()]
		sh.mu.Lock()
		e := c.book.at(p.ref)
		ok := k.add(p.ref, e, true)
		if ok && !p.reads {
			st := &k.batch.states[e.batch-1]
			st.provisional += p.amount
			st.test = st.test || p.views != e.views || c.opts.alwaysAsk
		}
		sh.mu.Unlock()
		if !ok { // its states go without it
			for j := a.from; j < i; j++ {
				p := &a.q.parts[j]
				sh := &c.book[p.ref.shard()]
				sh.mu.Lock()
				if !p.reads {
					k.batch.states[c.book.at(p.ref).batch-1].provisional -= p.amount
				}
				sh.mu.Unlock()
			}
			k.mu.Lock()
			k.inquiries = append(k.inquiries, a)
			k.mu.Unlock()
			return false
		}
	}
	return true
}

// add adds an entry to the batch, whose shard is locked.
func (k *carrier) add(r ref, e *entry, needed bool) bool {
	b := &k.batch
	if e.batch != 0 {
		if int(e.batch) <= len(b.states) && b.states[e.batch-1].ref == r {
			e.queued = unqueued
			return true
		}
		if !needed {
			b.deferred = append(b.deferred, r)
		}
		return false
	}
	e.queued = unqueued
	if !needed && !e.reports() {
		return true
	}
	s := k.core.spec(e.key.id).pacedBy(e.every)
	b.states = append(b.states, sent{ref: r, key: e.key, tag: e.tag, unacked: e.unacked, known: e.known,
		stored: e.stored, offset: e.offset, records: e.records, ends: e.ends, stated: stated{
			spec: s, base: e.base, at: e.at, delta: e.pend, noted: e.noted, floor: e.floor,
		}})
	st := &b.states[len(b.states)-1]
	if e.lost {
		st.base = [tokenBytes]byte{}
	}
	if s.tracked {
		st.own = max(0, e.own-e.provisional)
	}
	key := e.key.name.bytes()
	st.isKnown = s.kind <= gcra && !s.tracked && e.offset > 0 && st.base != [tokenBytes]byte{} && !e.floor &&
		!b.floors && b.second > 0 && b.second <= int64(e.ends)
	e.stored = s.with(e.stored, &e.pend)
	if s.kind != concurrent && !st.isKnown {
		st.view = e.stored // which has none of the questions on their way
		if !e.lost {
			st.view = s.local.State(s.index, key[:], e.every, time.Unix(0, e.at))
		}
		if !e.lost && !s.tracked && e.provisional != 0 {
			less := delta{num: e.at, cur: -e.provisional, any: true}
			if s.kind == window {
				less.num, _ = s.windowOf(e.at)
			}
			st.view = s.with(st.view, &less)
		}
	}
	e.pend, e.noted, e.floor, e.lost = delta{}, false, false, false
	e.batch = int32(len(b.states))
	return true
}

// send sends a batch and takes its replies.
func (k *carrier) send() {
	c, b := k.core, &k.batch
	client, err := c.store.Client()
	if err != nil {
		k.lost(b.scripts, err)
		return
	}
	b.began = c.ownTime()
	ctx, cancel := context.WithTimeout(c.ctx, time.Second)
	defer cancel()
	for scripts := b.scripts; len(scripts) > 0; {
		stale, unknown := k.carry(ctx, client, scripts, false)
		if len(unknown) > 0 {
			var more []unit
			more, unknown = k.carry(ctx, client, unknown, true)
			stale = append(stale, more...)
			k.lost(unknown, errors.New("the store forgets scripts at once"))
		}
		scripts = k.takes(nil, stale)
	}
	c.stats.batches.Add(1)
}

// carry runs scripts, and sends their text if whole. It returns the units that need take
// since others have written their states, and the scripts that the store does not know.
func (k *carrier) carry(ctx context.Context, client rueidis.Client, scripts []script, whole bool) (
	stale []unit, unknown []script) {
	commands := make([]rueidis.Completed, len(scripts))
	for i := range scripts {
		sc := &scripts[i]
		command, text := "EVALSHA", sc.digest
		if whole {
			command, text = "EVAL", sc.text
		}
		commands[i] = client.B().Arbitrary(command, text, strconv.Itoa(len(sc.keys))).Keys(sc.keys...).
			Args(rueidis.BinaryString(sc.message)).Build()
	}
	for i, reply := range client.DoMulti(ctx, commands...) {
		sc := &scripts[i]
		text, err := reply.ToString()
		switch {
		case err == nil && sc.command == swapping:
			var more []unit
			more, err = k.swapped(sc, text)
			stale = append(stale, more...)
		case err == nil:
			err = k.apply(sc, text)
		case strings.HasPrefix(err.Error(), "NOSCRIPT"):
			unknown, err = append(unknown, *sc), nil
		}
		if err != nil {
			k.lost(scripts[i:i+1], err)
		}
	}
	return stale, unknown
}
