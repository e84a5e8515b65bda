package dashboard

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"fairshare/internal/cli"
	"fairshare/internal/network"
)

const (
	sessionLength = 4 * time.Hour
	mostSessions  = 64
	mostWrong     = 10 // logins with a wrong token, from one network in a minute
	mostNetworks  = 1024
)

// A session is a browser that has shown the token.
type session struct {
	csrf    string // is in each form
	expires time.Time
	message *message // what the latest action did, until a page has shown it
}

// A message says what an action did.
type message struct {
	Failed bool
	Lines  []string
}

// fail makes it the message of an error.
func (m *message) fail(err error) {
	m.Failed, m.Lines = true, []string{cli.OneLine(err)}
	var hint *cli.HintError
	if errors.As(err, &hint) {
		m.Lines = append(m.Lines, hint.Hint)
	}
}

// sessions are kept in memory: a restart ends them. It is safe for concurrent use.
type sessions struct {
	mu    sync.Mutex
	all   map[[sha256.Size]byte]*session // by the hash of the cookie
	wrong map[netip.Prefix]int           // logins with a wrong token, in the present minute
	began time.Time                      // when that minute began
}

func newSessions() *sessions {
	return &sessions{all: map[[sha256.Size]byte]*session{}, wrong: map[netip.Prefix]int{}}
}

// cookieName returns the name of the cookie. Over TLS, no other host and no plain page can set it.
func cookieName(r *http.Request) string {
	if r.TLS != nil {
		return "__Host-fairshare-admin"
	}
	return "fairshare-admin"
}

func cookie(r *http.Request, value string, age int) *http.Cookie {
	return &http.Cookie{Name: cookieName(r), Value: value, Path: "/", MaxAge: age, HttpOnly: true,
		Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode}
}

// open begins a session, and ends the oldest one if there are too many. Only the token leads here.
func (s *sessions) open(w http.ResponseWriter, r *http.Request, now time.Time) {
	value := rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	var oldest [sha256.Size]byte
	for key, known := range s.all {
		if !now.Before(known.expires) {
			delete(s.all, key)
		} else if old := s.all[oldest]; old == nil || known.expires.Before(old.expires) {
			oldest = key
		}
	}
	if len(s.all) >= mostSessions {
		delete(s.all, oldest)
	}
	s.all[sha256.Sum256([]byte(value))] = &session{csrf: rand.Text(), expires: now.Add(sessionLength)}
	http.SetCookie(w, cookie(r, value, int(sessionLength.Seconds())))
}

// find returns the session of a request, or nil. Values are looked up by their hash, so the time that
// it takes says nothing about them.
func (s *sessions) find(r *http.Request, now time.Time) *session {
	c, err := r.Cookie(cookieName(r))
	if err != nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.all[sha256.Sum256([]byte(c.Value))]
	if found == nil || !now.Before(found.expires) {
		return nil
	}
	return found
}

// end ends the session of a request.
func (s *sessions) end(w http.ResponseWriter, r *http.Request) {
	if c, err := r.Cookie(cookieName(r)); err == nil {
		s.mu.Lock()
		delete(s.all, sha256.Sum256([]byte(c.Value)))
		s.mu.Unlock()
	}
	http.SetCookie(w, cookie(r, "", -1))
}

// leave keeps a message for the next page of a session.
func (s *sessions) leave(to *session, m *message) {
	s.mu.Lock()
	to.message = m
	s.mu.Unlock()
}

// take returns the message for a page of a session, once.
func (s *sessions) take(from *session) *message {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := from.message
	from.message = nil
	return m
}

// mayTry reports whether a network may try to log in. Many networks count together.
func (s *sessions) mayTry(from netip.Prefix, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := now.Sub(s.began); d >= time.Minute || d < 0 {
		clear(s.wrong)
		s.began = now
	}
	return s.wrong[s.counted(from)] < mostWrong
}

func (s *sessions) failed(from netip.Prefix) {
	s.mu.Lock()
	s.wrong[s.counted(from)]++
	s.mu.Unlock()
}

// counted returns the key of a network: the zero Prefix when the table is full.
func (s *sessions) counted(from netip.Prefix) netip.Prefix {
	if _, known := s.wrong[from]; !known && len(s.wrong) >= mostNetworks {
		return netip.Prefix{}
	}
	return from
}

// networkOf returns the network of a request; the zero Prefix for a Unix socket.
func networkOf(r *http.Request) netip.Prefix {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Prefix{}
	}
	addr := peer.Addr().Unmap().WithZone("")
	return network.Around(netip.PrefixFrom(addr, addr.BitLen()))
}

// sameText compares in a time that does not depend on where the texts differ.
func sameText(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
