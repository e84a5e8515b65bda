package redislimit

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"fairshare"
	"fairshare/redislimit/redistest"
)

var pinLimits = []fairshare.Limit{
	{Name: "hour", Resource: fairshare.Requests, N: 100, Window: time.Hour},
	{Name: "day", Resource: fairshare.Requests, N: 500, Window: 24 * time.Hour},
	{Name: "rate", Resource: fairshare.Requests, N: 60, Window: time.Minute, Algorithm: fairshare.GCRA},
}

var pinNow = time.Unix(1_800_000_000, 0)

// openMember returns a member of a group. If the store is away it does not wait for it.
func openMember(t *testing.T, url string, o Options) *Limiter {
	t.Helper()
	store, err := Connect(Connection{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if o.Away == AwayWhole {
		cancel()
	}
	o.Store, o.Memory = store, 1<<16
	if o.Report == nil {
		o.Report = func(Event) {}
	}
	l, err := Open(ctx, pinLimits, Patient(o))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = l.Close(ctx)
	})
	return l
}

// forgetAll has all entries go.
func (c *core) forgetAll() {
	for i := range c.book {
		sh := &c.book[i]
		sh.mu.Lock()
		sh.index = index{}
		sh.index.init()
		sh.entries = nil
		sh.mu.Unlock()
	}
}

// A new entry of a request does not take the place of another one of that request, even if no
// other entry can go.
func TestEntriesOfARequestStay(t *testing.T) {
	l := openMember(t, redistest.Start(t).URL(), Options{})
	c := l.core
	for i := range c.book {
		sh := &c.book[i]
		sh.mu.Lock()
		for j := range uint64(sh.most) {
			k := bookKey{name{a: uint64(i)<<58 | j}, 0}
			c.book.at(c.book.add(&k, 0, false, 0, c.drop, nil)).readers = 1
		}
		sh.mu.Unlock()
	}
	r := newRequest(len(pinLimits))
	for i := range pinLimits {
		r.add(c.secret.Load(), i, []byte("new"))
	}
	c.book.lock(r.set)
	defer c.book.unlock(r.set)
	l.entries(r, pinNow.UnixNano(), true)
	for i, at := range r.refs {
		if e := c.book.at(at); e.key.id != l.ids[i] || e.key.name != r.items[i].name {
			t.Errorf("limit %d: the entry is that of %d", l.ids[i], e.key.id)
		}
	}
}

// While all entries are needed, few new ones look for one that can go. Once it can, there are few more.
func TestFullBookIsRarelySearched(t *testing.T) {
	var b book
	b.init(1 << 20)
	sh, added := &b[0], uint64(0)
	add := func() *entry {
		added++
		return b.at(b.add(&bookKey{name{b: added << 32}, 0}, 0, false, 0, func(*entry) {}, nil))
	}
	searches := 0
	for len(sh.entries) < 2*sh.most {
		full := sh.full
		if add().queued = lazily; sh.full != full {
			searches++
		}
	}
	if searches > 10 {
		t.Errorf("all entries were looked at %d times", searches)
	}
	for range sh.most {
		add().queued = lazily
	}
	if n := len(sh.entries); n != 2*sh.most {
		t.Errorf("%d entries are kept, want %d", n, 2*sh.most)
	}
	for i := range sh.entries {
		sh.entries[i].readers = 1
	}
	for range 4 {
		add()
	}
	for range 4 * sh.most {
		add()
	}
	if n := len(sh.entries); n > 2*sh.most+sh.most/8+1 {
		t.Errorf("%d entries are kept, want few more than %d", n, 2*sh.most)
	}
}

// A refund of a state whose entry has gone changes the state by no more than the refund.
func TestRefundOfAForgottenState(t *testing.T) {
	url := redistest.Start(t).URL()
	a, b := openMember(t, url, Options{}), openMember(t, url, Options{})
	takes, tallies := make([]fairshare.Take, len(pinLimits)), make([]fairshare.Tally, len(pinLimits))
	for i := range takes {
		takes[i] = fairshare.Take{Limit: i, Key: []byte("k"), Cost: 10}
	}
	if err := a.Take(t.Context(), pinNow, takes, tallies); err != nil {
		t.Fatal(err)
	}
	if err := a.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	q := newQuestion()
	q.at = pinNow
	for i, s := range a.specs {
		name := a.core.secret.Load().name([]byte("k"))
		q.parts = append(q.parts, part{key: bookKey{name, a.ids[i]}, tag: a.core.secret.Load().tag([]byte("k")),
			inView: true, spec: s, cost: 4, amount: 4})
	}
	a.core.forgetAll()
	q.resolve(a.core, refused)
	if err := a.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.Peek(t.Context(), pinNow, takes, tallies); err != nil {
		t.Fatal(err)
	}
	for i := range tallies {
		if tallies[i].Used != 6 {
			t.Errorf("limit %s: %d are counted, want 6", pinLimits[i].Name, tallies[i].Used)
		}
	}
}

// A look at a state whose entry has gone, while the store is away, does not change the state later.
func TestPeekAtAForgottenState(t *testing.T) {
	url := redistest.Start(t).URL()
	a, b := openMember(t, url, Options{}), openMember(t, url, Options{})
	takes, tallies := make([]fairshare.Take, len(pinLimits)), make([]fairshare.Tally, len(pinLimits))
	for i := range takes {
		takes[i] = fairshare.Take{Limit: i, Key: []byte("k"), Cost: 10}
	}
	if err := a.Take(t.Context(), pinNow, takes, tallies); err != nil {
		t.Fatal(err)
	}
	if err := a.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.core.forgetAll()
	a.core.routes.Load().only.away("test")
	if err := a.Peek(t.Context(), pinNow, takes, tallies); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); a.Status().Away; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the store is still away after 20s")
		}
	}
	if err := a.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.Peek(t.Context(), pinNow, takes, tallies); err != nil {
		t.Fatal(err)
	}
	for i := range tallies {
		if tallies[i].Used != 10 {
			t.Errorf("limit %s: %d are counted, want 10", pinLimits[i].Name, tallies[i].Used)
		}
	}
}

// What waits to be reported while the store is away takes bounded memory, however many clients come.
func TestReportsThatWaitAreBounded(t *testing.T) {
	l := openMember(t, "redis://127.0.0.1:1", Options{Away: AwayWhole})
	tallies := make([]fairshare.Tally, 1)
	entries := 2 * 64 * l.core.book[0].most
	waits := func() (n int) {
		for _, k := range l.core.routes.Load().only.carriers {
			k.mu.Lock()
			n += len(k.urgent) + len(k.lazy.list) + len(k.notes.list) + len(k.held.list)
			k.mu.Unlock()
		}
		return n
	}
	for i := range 6 * entries {
		takes := []fairshare.Take{{Key: fmt.Append(nil, i), Cost: 1}}
		if err := l.Take(t.Context(), pinNow, takes, tallies); err != nil {
			t.Fatal(err)
		}
	}
	if n := waits(); n > 4*entries {
		t.Errorf("%d reports wait; there are %d entries", n, entries)
	}
}

// An entry stays as long as a question reads it.
func TestReadEntryStays(t *testing.T) {
	server := redistest.Start(t)
	l := openMember(t, server.URL(), Options{})
	c := l.core
	r := newRequest(1)
	r.takes = []fairshare.Take{{Key: []byte("k"), Cost: 1}}
	r.add(c.secret.Load(), 0, []byte("k"))
	c.book.lock(r.set)
	l.entries(r, pinNow.UnixNano(), true)
	first, second := l.readAll(r, false), l.readAll(r, false)
	e := c.book.at(r.refs[0])
	c.book.unlock(r.set)
	l.read(first)
	c.book.lock(r.set)
	if !e.pinned() {
		t.Error("the entry may go, but another question waits for it")
	}
	c.book.unlock(r.set)
	l.read(second)
	c.book.lock(r.set)
	if e.pinned() {
		t.Error("the entry never goes")
	}
	c.book.unlock(r.set)
}

// A question that nobody waits for is not touched any more when it is handed over: then it may be answered and in use
// again.
func TestAnsweredWhileItIsSubmitted(t *testing.T) {
	c := &core{start: time.Now()}
	c.book.init(1 << 16)
	c.stats.init()
	m := &master{core: c}
	m.init()
	for _, k := range m.carriers {
		k.inquiries = make([]inquiry, mostWaiting)
	}
	c.routes.Store(&routes{only: m})
	l := &Limiter{core: c}
	var wg sync.WaitGroup
	for i := range uint64(4) {
		wg.Go(func() {
			for range 2000 {
				q := newQuestion()
				for j := range uint64(2) {
					k := bookKey{name{a: i<<60 + j}, 0}
					sh := &c.book[k.shard()]
					sh.mu.Lock()
					r, ok := c.book.find(&k)
					if !ok {
						r = c.book.add(&k, i, false, 0, c.drop, nil)
					}
					c.book.at(r).readers++
					sh.mu.Unlock()
					q.parts = append(q.parts, part{ref: r, key: k, tag: i + j, reads: true})
				}
				q.state.Store(abandonedPass)
				l.submit(q)
			}
		})
	}
	wg.Wait()
}
