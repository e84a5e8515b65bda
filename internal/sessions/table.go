package sessions

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxSession is how long the cookies of a session may be, together.
	maxSession = 4 << 10

	// maxCookies is how many cookies a session may have.
	maxCookies = 16

	// trial is how long a session is kept at least that the upstream fails
	// with: not every error is the session's fault.
	trial = 5 * time.Minute

	// entrySize and cookieSize are about what an entry and a cookie take
	// beside their texts: they and their places in maps.
	entrySize, cookieSize = 480, 320

	// maxOpeners is how many requests others wait for, one after the other,
	// until one opens a session: many pages, as /robots.txt, open none.
	maxOpeners = 8

	// sentPlaces is how many cookies that clients sent are remembered, or fewer
	// where two share a place.
	sentPlaces = 1 << 16
)

// A table holds the sessions that are shared.
type table struct {
	mu      sync.Mutex
	setup   *setup
	entries map[key]*entry
	marks   map[mark]*entry
	rings   [2]ring // of verified bots; of the others

	marked atomic.Int64 // len(marks)

	// What clients sent as their own of late is never shared: hashes of marks.
	sent [sentPlaces]uint64
	seed maphash.Seed
}

// An entry is a session, or the place for one: requests that opened none yet
// are in progress. Once it is not live any more, nothing that the upstream
// answers to requests that began with it counts.
type entry struct {
	key     key
	live    bool
	cookies []cookie // never changed, but replaced; longer paths first
	text    string   // of all cookies, as a header
	cost    int      // bytes
	opened  time.Time
	used    time.Time

	opener  chan struct{} // closed once the request is answered that others wait for; nil: there is none
	openers int           // so far, without a session

	older, newer *entry
}

// A ring holds entries in the order of their use.
type ring struct {
	end  entry // of both sides
	cost int
}

func newTable() *table {
	t := &table{entries: make(map[key]*entry), marks: make(map[mark]*entry), seed: maphash.MakeSeed()}
	for i := range t.rings {
		end := &t.rings[i].end
		end.older, end.newer = end, end
	}
	return t
}

func (t *table) ring(k key) *ring {
	if k.network.IsValid() {
		return &t.rings[1]
	}
	return &t.rings[0]
}

// use changes the setup, and forgets the cookies that it does not name.
func (t *table) use(s *setup) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.setup = s
	for _, e := range t.entries {
		t.put(e, slices.DeleteFunc(slices.Clone(e.cookies), func(c cookie) bool { return !s.names.have(c.name) }))
	}
	for i := range t.rings {
		t.evict(&t.rings[i])
	}
}

// clear ends all sharing.
func (t *table) clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.entries {
		t.drop(e)
	}
}

// empty reports whether no session is shared.
func (t *table) empty() bool { return t.marked.Load() == 0 }

// begin returns the entry of a key, the cookies of it that go with a request
// for path, and their text. Without a session, either others wait for this
// request until opens is handed to opened, or it may wait for opener.
func (t *table) begin(k key, path string, secure bool, now time.Time) (e *entry, offered []cookie, text string, opens chan struct{}, opener <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.ring(k)
	e = t.entries[k]
	if e != nil && (now.Sub(e.used) >= t.setup.Idle || len(e.cookies) > 0 && now.Sub(e.opened) >= t.setup.Age) {
		t.drop(e)
		e = nil
	}
	if e == nil {
		k.host = strings.Clone(k.host)
		e = &entry{key: k, live: true, cost: entrySize + len(k.host)}
		t.entries[e.key] = e
		r.cost += e.cost
	} else {
		e.unlink()
	}
	e.used = now
	r.link(e)
	t.evict(r)

	if slices.ContainsFunc(e.cookies, func(c cookie) bool { return c.gone(now) }) {
		t.put(e, slices.DeleteFunc(slices.Clone(e.cookies), func(c cookie) bool { return c.gone(now) }))
	}
	if len(e.cookies) == 0 && t.setup.Wait > 0 && e.live {
		if e.opener == nil && e.openers < maxOpeners {
			opens = make(chan struct{})
			e.opener = opens
			e.openers++
		} else {
			opener = e.opener
		}
		return e, nil, "", opens, opener
	}
	all := true
	for i := range e.cookies {
		all = all && e.cookies[i].goes(path, secure)
	}
	if all {
		return e, e.cookies, e.text, nil, nil
	}
	for _, c := range e.cookies {
		if c.goes(path, secure) {
			offered = append(offered, c)
		}
	}
	return e, offered, header(offered), nil, nil
}

// opened has those go on who wait for e's opener, if that is the one.
func (t *table) opened(e *entry, opens chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.opener == opens {
		close(opens)
		e.opener = nil
	}
}

// learn keeps what the upstream set with the answer to a request that began
// with e and was offered cookies. A cookie takes an empty place, or that of the
// one that was offered: otherwise it comes too late, and so do those that came
// with it.
func (t *table) learn(e *entry, offered, set []cookie, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !e.live {
		return
	}
	cookies := slices.Clone(e.cookies)
	for i := range set {
		c := set[i]
		if !t.setup.names.have(c.name) {
			continue
		}
		at, was := slices.IndexFunc(e.cookies, c.same), slices.IndexFunc(offered, c.same)
		if at >= 0 && (was < 0 || offered[was].value != e.cookies[at].value) {
			return
		}
		cookies = slices.DeleteFunc(cookies, c.same)
		if !c.gone(now) {
			cookies = append(cookies, c)
		}
	}
	size := 0
	for i := range cookies {
		size += len(cookies[i].name) + len(cookies[i].value) + len(cookies[i].path)
	}
	if size > maxSession || len(cookies) > maxCookies {
		return
	}
	taken := false
	marks(cookies, func(m mark) bool {
		other := t.marks[m]
		taken = other != nil && other != e || other == nil && t.wasSent(m)
		return !taken
	})
	if taken {
		return // by somebody else: it is no session, or not this bot's
	}
	slices.SortStableFunc(cookies, func(a, b cookie) int { return len(b.path) - len(a.path) })
	if len(e.cookies) == 0 {
		e.opened, e.openers = now, 0
	}
	t.put(e, cookies)
	t.evict(t.ring(e.key))
}

// fails says that the upstream did not answer well to a request that was
// offered e's session.
func (t *table) fails(e *entry, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.live && now.Sub(e.opened) >= trial {
		t.drop(e)
	}
}

// end ends the sharing of a key's session; the next request opens another one.
func (t *table) end(k key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.entries[k]; e != nil {
		t.drop(e)
	}
}

// brought ends the sharing of the session that has a mark, unless it is k's. A
// client brought it. named says that it did so as its session.
func (t *table) brought(m mark, k key, named bool) {
	if m.value == "" || !named && t.empty() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if named {
		sum := maphash.Comparable(t.seed, m)
		t.sent[sum%sentPlaces] = sum
	}
	if e := t.marks[m]; e != nil && e.key != k {
		t.drop(e)
	}
}

func (t *table) wasSent(m mark) bool {
	sum := maphash.Comparable(t.seed, m)
	return t.sent[sum%sentPlaces] == sum
}

// put gives an entry other cookies.
func (t *table) put(e *entry, cookies []cookie) {
	marks(e.cookies, func(m mark) bool {
		if t.marks[m] == e {
			delete(t.marks, m)
		}
		return true
	})
	cost := entrySize + len(e.key.host)
	for i := range cookies {
		c := &cookies[i]
		// Texts are parts of longer ones, which are not to be kept.
		c.name, c.value, c.path = strings.Clone(c.name), strings.Clone(c.value), strings.Clone(c.path)
		cost += cookieSize + 2*(len(c.name)+len(c.value)) + len(c.path)
	}
	marks(cookies, func(m mark) bool {
		t.marks[m] = e
		return true
	})
	t.marked.Store(int64(len(t.marks)))
	t.ring(e.key).cost += cost - e.cost
	e.cookies, e.text, e.cost = cookies, header(cookies), cost
}

// drop ends the sharing of an entry's session.
func (t *table) drop(e *entry) {
	t.put(e, nil)
	if e.opener != nil {
		close(e.opener)
		e.opener = nil
	}
	e.live = false
	e.unlink()
	t.ring(e.key).cost -= e.cost
	delete(t.entries, e.key)
}

// evict drops entries until a ring is within its bound.
func (t *table) evict(r *ring) {
	for r.cost > t.setup.Memory && r.end.newer != &r.end {
		t.drop(r.end.newer)
	}
}

// link makes an entry the newest.
func (r *ring) link(e *entry) {
	e.older, e.newer = r.end.older, &r.end
	e.older.newer, e.newer.older = e, e
}

func (e *entry) unlink() {
	e.older.newer, e.newer.older = e.newer, e.older
	e.older, e.newer = nil, nil
}
