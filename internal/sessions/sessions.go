// Package sessions lets bots that ignore cookies share a session of the upstream. Otherwise the
// upstream opens a session for each of their requests. Start with [New].
package sessions

import (
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"fairshare"
)

// Config says which sessions are shared, and for how long.
type Config struct {
	// Cookies are the names of the upstream's session cookies; "*" matches any characters. Empty:
	// nothing is shared.
	Cookies []string

	// Identify returns the client and the bot of the request that w answers; false if they are
	// unknown. nil: nothing is shared.
	Identify func(w http.ResponseWriter) (client netip.Addr, bot fairshare.Bot, ok bool)

	// Idle is how long an unused session is kept, and Age how long a session is kept at most. 0
	// means DefaultIdle and DefaultAge.
	Idle, Age time.Duration

	// Wait is the longest time that a bot's request waits for the answer to another request, which
	// may open a session for both. 0 means no wait.
	Wait time.Duration

	// Memory bounds the sessions of verified bots, and separately those of other bots, in bytes
	// each. The session that was unused for longest is removed first. 0 means DefaultMemory.
	Memory int
}

// Defaults of Config.Idle, Config.Age and Config.Memory.
const (
	DefaultIdle   = 30 * time.Minute
	DefaultAge    = 4 * time.Hour
	DefaultMemory = 8 << 20
)

// A Handler adds shared sessions to requests. It changes the Cookie header of the requests it gets.
// It is safe for concurrent use.
type Handler struct {
	pass      func(http.ResponseWriter, *http.Request) error // to the handler that New got
	setup     atomic.Pointer[setup]                          // nil: nothing is shared
	replacing sync.Mutex
	table     *table // created at first use
}

// A setup is a compiled Config.
type setup struct {
	Config
	names names
	table *table
}

// New returns a Handler in front of next, which sends requests to the upstream.
func New(c Config, next http.Handler) *Handler {
	h := &Handler{pass: func(w http.ResponseWriter, r *http.Request) error {
		next.ServeHTTP(w, r)
		return nil
	}}
	h.Replace(c)
	return h
}

// Replace changes the config. It keeps sessions of cookies that c still names.
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
	if len(c.Cookies) == 0 || c.Identify == nil {
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

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.Do(w, r, h.pass) }

// Do does the same with next in place of the handler in front of which it is. It returns the error
// of next. After an error the answer is not known yet, and nothing is learned from it.
func (h *Handler) Do(w http.ResponseWriter, r *http.Request,
	next func(http.ResponseWriter, *http.Request) error) error {
	s := h.setup.Load()
	if s == nil {
		return next(w, r)
	}
	x := s.begin(w, r)
	if x == nil {
		return next(w, r)
	}
	defer x.opened()
	err := next(x.writer(), r)
	if err == nil {
		x.answer(http.StatusOK) // if next neither panicked nor wrote anything
	}
	return err
}

// begin stops sharing the sessions that the request uses as its own, and adds a shared session to
// the request. It returns nil if the answer does not matter.
func (s *setup) begin(w http.ResponseWriter, r *http.Request) *exchange {
	client, bot, known := s.Identify(w)
	var k key
	shares := false
	if known {
		k, shares = keyOf(r, client, bot)
	}
	s.endBrought(r, k)
	switch {
	case !shares:
		return nil
	case usesOwnSession(r):
		s.table.end(k)
		return nil
	case bypasses(r):
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
