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
	// maxSession is the most bytes of all cookies of a session.
	maxSession = 4 << 10

	// maxCookies is the most cookies of a session.
	maxCookies = 16

	// minAge is how long a session is kept even if the upstream fails with it, because the session
	// does not cause every error.
	minAge = 5 * time.Minute

	// entrySize and cookieSize are the approximate sizes of an entry and a cookie without their
	// texts, including their places in maps.
	entrySize, cookieSize = 480, 320

	// maxOpeners is how many requests others wait for, one after the other, until one opens a
	// session. Many pages, such as /robots.txt, open none.
	maxOpeners = 8

	// sentSlots is how many sent cookies are remembered; fewer if two share a slot.
	sentSlots = 1 << 16
)

// A table holds the shared sessions.
type table struct {
	mu      sync.Mutex
	setup   *setup
	entries map[key]*entry
	marks   map[mark]*entry
	rings   [2]ring // of verified bots; of the others

	marked atomic.Int64 // len(marks)

	// Hashes of marks that clients recently sent as their own. These sessions are never shared.
	sent [sentSlots]uint64
	seed maphash.Seed
}

// An entry is a session, or a placeholder while requests that may open one are in progress. When an
// entry is no longer live, answers to requests that began with it have no effect.
type entry struct {
	key     key
	live    bool
	cookies []cookie // immutable, replaced as a whole; longer paths first
	text    string   // of all cookies, as a header
	cost    int      // bytes
	opened  time.Time
	used    time.Time

	opener  chan struct{} // closed after the answer to the request that others wait for; nil: none
	openers int           // number of openers so far that opened no session

	older, newer *entry
}

// A ring holds entries in order of their last use.
type ring struct {
	end  entry // sentinel of the linked list
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

// use changes the setup and removes the cookies that it does not name.
func (t *table) use(s *setup) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.setup = s
	for _, e := range t.entries {
		t.put(e, slices.DeleteFunc(slices.Clone(e.cookies), func(c cookie) bool { return !s.names.match(c.name) }))
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

// begin returns the entry of a key, its cookies for a request for path, and their text. Without a
// session, one of two cases follows. Either other requests wait for this one until it passes opens
// to opened, or this request may wait for opener.
func (t *table) begin(k key, path string, secure bool, now time.Time) (e *entry, offered []cookie, text string,
	opens chan struct{}, opener <-chan struct{}) {
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
		all = all && e.cookies[i].applies(path, secure)
	}
	if all {
		return e, e.cookies, e.text, nil, nil
	}
	for _, c := range e.cookies {
		if c.applies(path, secure) {
			offered = append(offered, c)
		}
	}
	return e, offered, header(offered), nil, nil
}

// opened wakes the requests that wait for e's opener, if opens is the opener.
func (t *table) opened(e *entry, opens chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.opener == opens {
		close(opens)
		e.opener = nil
	}
}

// learn stores the cookies that the upstream set in the answer to a request that began with e and
// was offered cookies. A cookie may fill a free place or replace the one that was offered.
// Otherwise it is too late, and all cookies of the answer are ignored.
func (t *table) learn(e *entry, offered, set []cookie, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !e.live {
		return
	}
	cookies := slices.Clone(e.cookies)
	for i := range set {
		c := set[i]
		if !t.setup.names.match(c.name) {
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
		return // by another client: it is not a session, or not this bot's
	}
	slices.SortStableFunc(cookies, func(a, b cookie) int { return len(b.path) - len(a.path) })
	if len(e.cookies) == 0 {
		e.opened, e.openers = now, 0
	}
	t.put(e, cookies)
	t.evict(t.ring(e.key))
}

// reportFailure drops e's session if it may have caused a failed answer.
func (t *table) reportFailure(e *entry, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.live && now.Sub(e.opened) >= minAge {
		t.drop(e)
	}
}

// end stops sharing a key's session; the next request opens another one.
func (t *table) end(k key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.entries[k]; e != nil {
		t.drop(e)
	}
}

// endBrought stops sharing the session with a mark that a client sent, unless it is k's. named is
// true if the client sent it as its session.
func (t *table) endBrought(m mark, k key, named bool) {
	if m.value == "" || !named && t.empty() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if named {
		sum := maphash.Comparable(t.seed, m)
		t.sent[sum%sentSlots] = sum
	}
	if e := t.marks[m]; e != nil && e.key != k {
		t.drop(e)
	}
}

func (t *table) wasSent(m mark) bool {
	sum := maphash.Comparable(t.seed, m)
	return t.sent[sum%sentSlots] == sum
}

// put replaces the cookies of an entry.
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
		// Clone the texts, because they are parts of longer texts that would stay in memory.
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

// drop stops sharing an entry's session.
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

// evict drops the oldest entries until a ring is within its bound.
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
