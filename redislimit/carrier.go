package redislimit

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// Carriers take messages to a master. Each has one pipeline on its way and collects
// the next meanwhile: so the order per key stays, requests are batched without delay,
// and a key costs one state per trip whatever its rate. No request calls the client
// itself.
const (
	carriersEach = 4 // per master
	batchAsks    = 256
	batchStates  = 1024
	scriptKeys   = 64 // of one script, where keys need not be in one slot
	mostWaiting  = 1024
	mostOfTag    = mostWaiting / 8 / carriersEach

	lazyDelay = int64(5 * time.Millisecond)
	noteDelay = int64(100 * time.Millisecond)
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
	lazy      []delayed // in the order of when they are due
	notes     []delayed

	busy bool // a batch is prepared or on its way

	wake chan struct{}

	// Of the goroutine alone, to use their memory again.
	batch batch
}

// A delayed report is due at a monotonic time.
type delayed struct {
	ref ref
	due int64
}

// A master is one server that takes messages.
type master struct {
	core     *core
	addr     string // of a cluster; else empty
	carriers [carriersEach]*carrier
	breaker  breaker
	started  atomic.Bool
	retired  atomic.Bool

	beat atomic.Pointer[beatKey] // nil: not known yet

	// Of the goroutine that probes.
	seq, probed int64
	epoch       string
}

// A beatKey is a key in a slot of a master, for probes.
type beatKey struct{ key, tag string }

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
	k := c.carrier(e.tag)
	k.mu.Lock()
	if urgent {
		k.urgent = append(k.urgent, r)
	} else {
		k.lazy = append(k.lazy, delayed{r, c.mono() + lazyDelay})
	}
	wake := urgent || len(k.lazy) == 1
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
	k.notes = append(k.notes, delayed{r, c.mono() + noteDelay})
	wake := len(k.notes) == 1
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
	due := int64(1 << 62)
	for _, list := range [2][]delayed{k.lazy, k.notes} {
		if len(list) > 0 {
			due = min(due, list[0].due)
		}
	}
	return time.Duration(max(0, min(due-k.core.mono(), int64(time.Hour))))
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

// A batch is what a carrier has on its way.
type batch struct {
	inquiries []inquiry
	refs      []ref
	states    []sent
	scripts   []script
	began     int64 // own time when it was sent
	token     [tokenBytes]byte
	floors    bool
	deferred  []ref // on their way with another carrier
}

// A sent state is one of a batch.
type sent struct {
	stated
	ref         ref
	key         bookKey
	tag         uint64
	unacked     int64
	provisional int64 // of the inquiries in this batch, in the unit of deltas
	reply       reply
}

// A script is one command of a batch: some of its states and inquiries.
type script struct {
	keys             []string
	from, to         int // states
	asksFrom, asksTo int
	message          string
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
	for _, list := range [2]*[]delayed{&k.lazy, &k.notes} {
		n = 0
		for n < len(*list) && (*list)[n].due <= mono && len(b.refs) < batchStates {
			b.refs = append(b.refs, (*list)[n].ref)
			n++
		}
		*list = append((*list)[:0], (*list)[n:]...)
	}
	k.mu.Unlock()
	seq := c.token.Add(1)
	b.token = [tokenBytes]byte{c.me[0], c.me[1], c.me[2], byte(seq >> 16), byte(seq >> 8), byte(seq)}
	b.floors = mono < k.master.breaker.floors.Load()

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
			k.lazy = append(k.lazy, delayed{r, mono + lazyDelay})
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
	b.states = append(b.states, sent{ref: r, key: e.key, tag: e.tag, unacked: e.unacked, stated: stated{
		spec: s, base: e.base, at: e.at, delta: e.pend, noted: e.noted, own: max(0, e.own-e.provisional),
		floor: e.floor,
	}})
	st := &b.states[len(b.states)-1]
	if !s.tracked {
		st.own = 0
	}
	key := e.key.name.bytes()
	if s.kind != concurrent {
		st.view = s.local.State(s.index, key[:], e.every, time.Unix(0, e.at))
		if !s.tracked && e.provisional != 0 {
			less := delta{num: e.at, cur: -e.provisional, any: true}
			if s.kind == window {
				less.num, _ = s.windowOf(e.at)
			}
			st.view = s.with(st.view, &less)
		}
	}
	e.pend, e.noted, e.floor = delta{}, false, false
	e.batch = int32(len(b.states))
	return true
}

// encode makes the scripts of a batch.
func (k *carrier) encode() {
	c, b := k.core, &k.batch
	slices.SortFunc(b.states, func(x, y sent) int {
		return cmp.Or(cmp.Compare(x.tag, y.tag), cmp.Compare(x.key.a, y.key.a), cmp.Compare(x.key.b, y.key.b))
	})
	for i := range b.states {
		st := &b.states[i]
		sh := &c.book[st.ref.shard()]
		sh.mu.Lock()
		c.book.at(st.ref).batch = int32(i + 1)
		sh.mu.Unlock()
	}
	slices.SortStableFunc(b.inquiries, func(x, y inquiry) int { return cmp.Compare(x.tag, y.tag) })
	nextAsk := 0
	for i := 0; i < len(b.states); {
		sc := script{from: i, asksFrom: nextAsk}
		for i < len(b.states) {
			tag := b.states[i].tag
			for i < len(b.states) && b.states[i].tag == tag {
				if len(sc.keys) == 0 || i == sc.from || b.states[i-1].key.name != b.states[i].key.name {
					sc.keys = append(sc.keys, keyOf(c.limits, tag, b.states[i].key.name))
				}
				i++
			}
			for nextAsk < len(b.inquiries) && b.inquiries[nextAsk].tag == tag {
				nextAsk++
			}
			if c.store.topology == cluster || len(sc.keys) >= scriptKeys {
				break
			}
		}
		sc.to, sc.asksTo = i, nextAsk
		sc.message = k.message(&sc)
		b.scripts = append(b.scripts, sc)
	}
}

// message returns the message of a script.
func (k *carrier) message(sc *script) string {
	c, b := k.core, &k.batch
	states := b.states[sc.from:sc.to]
	var specs []*spec
	var ids []uint16
	for i := range states {
		id := states[i].key.id
		at := 0
		for at < len(ids) && (ids[at] != id || specs[at].w != states[i].spec.w) {
			at++
		}
		if at == len(ids) {
			ids, specs = append(ids, id), append(specs, states[i].spec)
		}
		states[i].index = uint16(at)
	}
	m := make([]byte, 0, 64+72*len(specs)+96*len(states))
	m = append(m, b.token[:]...)
	m = append(m, c.me[:]...)
	m = binary.LittleEndian.AppendUint16(append(m, flag(b.floors)), uint16(len(specs)))
	for _, s := range specs {
		m = appendSpec(m, s)
	}
	for i := 0; i < len(states); {
		count := len(m)
		m = append(m, 0)
		for from := i; i < len(states) && states[i].key.name == states[from].key.name; i++ {
			m = states[i].append(m)
			m[count]++
		}
	}
	count, decisions := len(m), 0
	m = append(m, 0, 0)
	for _, a := range b.inquiries[sc.asksFrom:sc.asksTo] {
		parts := a.q.parts[a.from:a.to]
		if parts[0].reads {
			continue
		}
		decisions++
		dry := 0
		head := len(m)
		m = append(m, byte(len(parts)), 0)
		for i := range parts {
			p := &parts[i]
			if p.dry {
				dry++
			}
			p.state = k.index(p)
			m = binary.LittleEndian.AppendUint16(m, uint16(p.state-sc.from))
			if p.spec.kind == gcra && !p.spec.tracked {
				t := p.spec.moment(p.spec.deltaSpan(p.amount))
				m = appendFloats(m, t.us, t.rest)
			} else {
				m = appendFloats(m, float64(p.cost), 0)
			}
		}
		m[head+1] = byte(dry)
	}
	binary.LittleEndian.PutUint16(m[count:], uint16(decisions))
	return string(m)
}

// place returns the place of a part's state in the batch.
func (k *carrier) index(p *part) int {
	sh := &k.core.book[p.ref.shard()]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return int(k.core.book.at(p.ref).batch) - 1
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
	unknown := k.carry(ctx, client, b.scripts, "EVALSHA", takeDigest)
	if len(unknown) > 0 {
		unknown = k.carry(ctx, client, unknown, "EVAL", takeScript)
		k.lost(unknown, errors.New("the store forgets scripts at once"))
	}
	c.stats.batches.Add(1)
}

// carry runs scripts, and returns those that the store does not know.
func (k *carrier) carry(ctx context.Context, client rueidis.Client, scripts []script, command, text string) (
	unknown []script) {
	commands := make([]rueidis.Completed, len(scripts))
	for i := range scripts {
		sc := &scripts[i]
		commands[i] = client.B().Arbitrary(command, text, strconv.Itoa(len(sc.keys))).Keys(sc.keys...).
			Args(sc.message).Build()
	}
	for i, reply := range client.DoMulti(ctx, commands...) {
		text, err := reply.ToString()
		switch {
		case err == nil:
			if err = k.apply(&scripts[i], text); err != nil {
				k.lost(scripts[i:i+1], err)
			}
		case strings.HasPrefix(err.Error(), "NOSCRIPT"):
			unknown = append(unknown, scripts[i])
		default:
			k.lost(scripts[i:i+1], err)
		}
	}
	return unknown
}

// apply takes the reply to a script.
func (k *carrier) apply(sc *script, text string) error {
	c, b := k.core, &k.batch
	reply := []byte(text)
	decisions := 0
	for _, a := range b.inquiries[sc.asksFrom:sc.asksTo] {
		if !a.q.parts[a.from].reads {
			decisions++
		}
	}
	if len(reply) < 1+decisions {
		return errReply
	}
	bad, verdicts, rest := reply[0], reply[1:1+decisions], reply[1+decisions:]
	states := b.states[sc.from:sc.to]
	var err error
	for i := range states {
		if rest, err = states[i].reply.parse(rest); err != nil {
			return err
		}
	}
	if bad > 0 {
		c.stats.unreadable.Add(int64(bad))
		c.events.unreadable(int(bad))
	}
	// What of the inquiries is in the store.
	next := 0
	for _, a := range b.inquiries[sc.asksFrom:sc.asksTo] {
		parts := a.q.parts[a.from:a.to]
		if parts[0].reads {
			continue
		}
		verdict := [...]int32{refused, dryRefused, passed}[min(verdicts[next], 2)]
		next++
		for i := range parts {
			p := &parts[i]
			atomic.StoreInt32(&p.verdict, verdict) // a request that no longer waits may read it
			p.inView = verdict == passed || verdict == dryRefused && !p.dry
		}
	}
	mono := c.mono()
	for i := range states {
		k.merge(&states[i], mono)
	}
	for _, a := range b.inquiries[sc.asksFrom:sc.asksTo] {
		k.undo(a)
	}
	k.master.breaker.succeeded()
	for _, a := range b.inquiries[sc.asksFrom:sc.asksTo] {
		a.q.answer(c)
	}
	return nil
}

// merge brings the view up to date with the store's reply about a state. What the
// store has refused is still in a view that did not differ, see undo.
func (k *carrier) merge(st *sent, mono int64) {
	c, s := k.core, st.spec
	sh := &c.book[st.ref.shard()]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := c.book.at(st.ref)
	e.batch, e.known, e.seen, e.reading = 0, true, mono, false
	e.unacked = max(0, e.unacked-st.unacked)
	if st.reply.written {
		e.base = k.batch.token
	} else if st.reply.differs {
		e.base = st.reply.token
	}
	key := e.key.name.bytes()
	if s.tracked {
		e.acked = st.own // and what passed, see undo
		if st.reply.others != e.others {
			s.local.AddHeld(s.index, key[:], st.reply.others-e.others)
			e.others = st.reply.others
		}
	}
	if st.reply.differs {
		e.views++
	}
	if st.reply.differs && s.kind != concurrent {
		at := time.Unix(0, e.at)
		view := s.with(s.state(st.reply.state), &e.pend)
		if !s.tracked && e.provisional != 0 { // those of this batch that were refused are undone next
			later := delta{}
			later.charge(s, e.provisional-st.provisional, e.at, e.at)
			view = s.with(view, &later)
		}
		s.local.SetState(s.index, key[:], e.every, at, view)
	}
	if e.reports() && e.queued == unqueued {
		c.queue(st.ref, e, false)
	}
}

// undo takes from the view what the store has refused.
func (k *carrier) undo(a inquiry) {
	c := k.core
	for i := a.from; i < a.to; i++ {
		p := &a.q.parts[i]
		if p.reads {
			continue
		}
		sh := &c.book[p.ref.shard()]
		sh.mu.Lock()
		e := c.book.at(p.ref)
		e.provisional -= p.amount
		key := e.key.name.bytes()
		switch {
		case p.inView && p.spec.tracked:
			e.acked += p.cost
		case p.inView:
		case p.spec.tracked:
			e.own = max(0, e.own-p.cost)
			p.spec.local.AddHeld(p.spec.index, key[:], -p.cost)
		case !k.batch.states[p.state].reply.differs:
			p.spec.charge(key[:], -p.cost, p.every, a.q.at)
		}
		sh.mu.Unlock()
	}
}

// lost takes the failure of scripts. What was not executed is reported again; what
// may have been is merged by maximum later.
func (k *carrier) lost(scripts []script, err error) {
	if len(scripts) == 0 {
		return
	}
	c, b := k.core, &k.batch
	executed := mayBeExecuted(err)
	if !c.stalled(b.began, err) {
		k.master.away(reason(err))
	}
	for i := range scripts {
		sc := &scripts[i]
		for j := range b.states[sc.from:sc.to] {
			st := &b.states[sc.from+j]
			sh := &c.book[st.ref.shard()]
			sh.mu.Lock()
			e := c.book.at(st.ref)
			e.batch, e.reading = 0, false
			if executed {
				e.floor = true
				e.unacked = max(0, e.unacked-st.unacked)
			} else {
				e.pend.merge(st.spec, st.delta)
			}
			e.noted = e.noted || st.noted
			e.floor = e.floor || st.floor
			if e.reports() && e.queued == unqueued {
				c.queue(st.ref, e, false)
			}
			sh.mu.Unlock()
		}
		for _, a := range b.inquiries[sc.asksFrom:sc.asksTo] {
			c.unanswered(a, executed)
		}
	}
}

// unanswered ends an ask that the store did not answer. What it charged is in the
// view, and is reported later.
func (c *core) unanswered(a inquiry, executed bool) {
	for i := a.from; i < a.to; i++ {
		p := &a.q.parts[i]
		atomic.StoreInt32(&p.verdict, noAnswer)
		p.inView = true
		sh := &c.book[p.ref.shard()]
		sh.mu.Lock()
		e := c.book.at(p.ref)
		e.reading = false
		if !p.reads {
			e.provisional -= p.amount
			switch {
			case p.spec.tracked:
			case executed:
				e.floor = true
			default:
				ns := a.q.at.UnixNano()
				e.pend.charge(p.spec, p.amount, ns, ns)
			}
			c.queue(p.ref, e, false)
		}
		sh.mu.Unlock()
	}
	a.q.answer(c)
}

// mayBeExecuted reports whether a command with that error may have changed states.
func mayBeExecuted(err error) bool {
	if _, ok := rueidis.IsRedisErr(err); ok {
		return strings.HasPrefix(err.Error(), "OOM") || strings.HasPrefix(err.Error(), "ERR")
	}
	return !errors.Is(err, rueidis.ErrClosing) && !errors.Is(err, errConnecting)
}
