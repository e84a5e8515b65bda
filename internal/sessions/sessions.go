// Package sessions lets bots that ignore cookies share a session of the
// upstream, which would open one for each of their requests otherwise. Start
// with [New].
package sessions

import (
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"fairshare"
)

// Config says which sessions are shared, and how long.
type Config struct {
	// Cookies are the names of the cookies by which the upstream knows a
	// session again, "*" for any run of characters. None: nothing is shared.
	Cookies []string

	// Who tells who sent the request that w answers; false when nobody knows.
	// nil: nothing is shared.
	Who func(w http.ResponseWriter) (client netip.Addr, bot fairshare.Bot, ok bool)

	// Idle is how long a session is kept that nobody asks with, and Age how
	// long one is kept at all. 0 means DefaultIdle and DefaultAge.
	Idle, Age time.Duration

	// Wait is how long a bot's request waits at most for another one's answer,
	// which may open the session that both are to share. 0 means not at all.
	Wait time.Duration

	// Memory bounds what the sessions of verified bots take, and once more what
	// those of the others take, in bytes: the one that was not asked with for
	// longest goes first. 0 means DefaultMemory.
	Memory int
}

// What a zero Config.Idle, Config.Age and Config.Memory mean.
const (
	DefaultIdle   = 30 * time.Minute
	DefaultAge    = 4 * time.Hour
	DefaultMemory = 8 << 20
)

// A Handler offers the upstream's sessions to it again. It changes the Cookie
// header of the requests that it is given. It is safe for concurrent use.
type Handler struct {
	next      http.Handler
	setup     atomic.Pointer[setup] // nil: nothing is shared
	replacing sync.Mutex
	table     *table // made when it is needed
}

// A setup is a Config that is in use.
type setup struct {
	Config
	names names
	table *table
}

// New returns a Handler before next, which asks the upstream.
func New(c Config, next http.Handler) *Handler {
	h := &Handler{next: next}
	h.Replace(c)
	return h
}

// Replace changes the config. Sessions stay for cookies that are still named.
func (h *Handler) Replace(c Config) {
	if c.Idle == 0 {
		c.Idle = DefaultIdle
	}
	if c.Age == 0 {
		c.Age = DefaultAge
	}
	if c.Memory == 0 {
		c.Memory = DefaultMemory
	}
	h.replacing.Lock()
	defer h.replacing.Unlock()
	if len(c.Cookies) == 0 || c.Who == nil {
		h.setup.Store(nil)
		if h.table != nil {
			h.table.clear()
			h.table = nil
		}
		return
	}
	if h.table == nil {
		h.table = newTable()
	}
	s := &setup{Config: c, names: newNames(c.Cookies), table: h.table}
	h.table.use(s)
	h.setup.Store(s)
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := h.setup.Load()
	if s == nil {
		h.next.ServeHTTP(w, r)
		return
	}
	x := s.begin(w, r)
	if x == nil {
		h.next.ServeHTTP(w, r)
		return
	}
	defer x.opened()
	h.next.ServeHTTP(x.writer(), r)
	x.answer(http.StatusOK) // if it did not panic and wrote nothing
}

// begin ends the sharing of what the request shows to be somebody's own, and
// offers the upstream a session with it. It returns nil when the answer does
// not matter.
func (s *setup) begin(w http.ResponseWriter, r *http.Request) *exchange {
	client, bot, known := s.Who(w)
	var k key
	shares := false
	if known {
		k, shares = keyOf(r, client, bot)
	}
	s.brought(r, k)
	switch {
	case !shares:
		return nil
	case own(r):
		s.table.end(k)
		return nil
	case aside(r):
		return nil
	}
	x := &exchange{w: w, r: r, names: s.names, table: s.table, path: targetPath(r), secure: secure(r)}
	text, opener := x.begin(k)
	if opener != nil {
		patience := time.NewTimer(s.Wait)
		defer patience.Stop()
		select {
		case <-opener:
		case <-patience.C:
		case <-r.Context().Done():
		}
		text, _ = x.begin(k)
	}
	if text != "" {
		r.Header["Cookie"] = []string{text}
	}
	return x
}
