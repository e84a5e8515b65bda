package httpguard

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"strings"
	"sync"
	"time"

	"fairshare"
)

// Bounds of [Settlements].
const (
	mostUnsettled   = 1 << 16
	settleWithin    = 2 * time.Minute // longer than the timeout of most servers for an upstream
	silentAfter     = time.Minute
	silentRequests  = 16
	mostSettledText = 1 << 10 // bytes of a host, a path or a user agent that are kept
)

// Settlements are requests that passed [ForwardAuth] and whose answers are not known yet. A reference in
// the header Fairshare-Reference of the answer 204 identifies each of them. The server in front writes it
// into its log; it must not reach the client. [Options.Passed] is called when a
// request is settled, with a Completion whose HTTP is nil, and [Options.Failed] with a nil request.
//
// At most 65,536 requests wait, for at most 2 minutes. The oldest one makes room. A request that
// is not found in the log counts as status 200 without a duration; a limit of bytes counts
// the bytes that it expected.
//
// The zero value is ready for use. Its methods may be called by many goroutines at the same time.
type Settlements struct {
	mu      sync.Mutex
	waiting map[[16]byte]*passedRequest
	first   *passedRequest // the oldest
	last    *passedRequest
	latest  time.Time // of a reference in the log, or of the first request
	silent  bool
	expired int64
}

// A LoggedAnswer is the answer to a request, as the log of a server has it.
type LoggedAnswer struct {
	Status int           // 0 or 499 if there was none
	Bytes  int64         // of the body; below 0: not known
	Took   time.Duration // of the upstream if known, otherwise of the request
}

// A passedRequest is a request that passed and is not settled yet.
type passedRequest struct {
	gen        *generation
	verdict    fairshare.Verdict
	completion Completion

	key        [16]byte
	since      time.Time
	prev, next *passedRequest
}

// add keeps a request, and returns its reference. While the log is silent, it is settled at once.
func (s *Settlements) add(p *passedRequest) (reference string) {
	rand.Read(p.key[:]) // it never fails
	reference = hex.EncodeToString(p.key[:])
	c := &p.completion
	c.HTTP, c.Host, c.Path, c.UserAgent = nil, keepText(c.Host), keepText(c.Path), keepText(c.UserAgent)
	p.since = time.Now()
	// The end of a request is noticed too late for limits of requests in progress.
	p.report(fairshare.Outcome{Time: p.gen.Now(), Part: fairshare.SettleSlots})
	s.mu.Lock()
	if s.waiting == nil {
		s.waiting, s.latest = make(map[[16]byte]*passedRequest), p.since
	}
	oldest := p
	if !s.silent {
		s.waiting[p.key] = p
		if p.prev = s.last; p.prev == nil {
			s.first = p
		} else {
			p.prev.next = p
		}
		s.last, oldest = p, nil
		if len(s.waiting) > mostUnsettled {
			oldest = s.remove(s.first.key)
			s.expired++
		}
	}
	s.mu.Unlock()
	if oldest != nil {
		oldest.settleUnknown()
	}
	return reference
}

// keepText returns a text that shares no memory with the request.
func keepText(text string) string { return strings.Clone(text[:min(len(text), mostSettledText)]) }

// remove removes and returns a request; nil if it is not there. The lock is held.
func (s *Settlements) remove(key [16]byte) *passedRequest {
	p := s.waiting[key]
	if p == nil {
		return nil
	}
	delete(s.waiting, key)
	if p.prev == nil {
		s.first = p.next
	} else {
		p.prev.next = p.next
	}
	if p.next == nil {
		s.last = p.prev
	} else {
		p.next.prev = p.prev
	}
	p.prev, p.next = nil, nil
	return p
}

// isWaiting reports whether a reference is of a request that is not settled yet.
func (s *Settlements) isWaiting(reference string) bool {
	key, ok := parseReference(reference)
	if s == nil || !ok {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting[key] != nil
}

// parseReference returns the key of a reference.
func parseReference(reference string) (key [16]byte, ok bool) {
	if len(reference) != hex.EncodedLen(len(key)) {
		return key, false
	}
	_, err := hex.Decode(key[:], []byte(reference))
	return key, err == nil
}

// Settle settles the request with a reference. It returns false if there is none, or it was settled before.
func (s *Settlements) Settle(reference string, answer LoggedAnswer) bool {
	key, ok := parseReference(reference)
	if !ok {
		return false
	}
	s.mu.Lock()
	p := s.remove(key)
	s.latest, s.silent = time.Now(), false
	s.mu.Unlock()
	if p == nil {
		return false
	}
	if answer.Status == 499 { // of nginx and Caddy: the client has left
		answer.Status = 0
	}
	p.completion.Took = max(answer.Took, 0)
	p.settle(fairshare.Outcome{Status: answer.Status, Bytes: answer.Bytes, Took: p.completion.Took})
	return true
}

// Expire settles requests that have waited for too long. It is called about once a second. expired
// is how many were not found in the log since the last call.
//
// The log is silent if it has had no reference for a minute, though 16 requests have waited for so long.
// Then nothing waits until there is a reference in the log again.
func (s *Settlements) Expire() (expired int64, silent bool) {
	now := time.Now()
	s.mu.Lock()
	p := s.first
	for range silentRequests - 1 {
		if p != nil {
			p = p.next
		}
	}
	if p != nil && now.Sub(p.since) >= silentAfter && now.Sub(s.latest) >= silentAfter {
		s.silent = true
	}
	s.mu.Unlock()
	return s.expire(func(p *passedRequest) bool { return s.silent || now.Sub(p.since) >= settleWithin })
}

// Close settles all requests that wait.
func (s *Settlements) Close() { s.expire(func(*passedRequest) bool { return true }) }

// expire settles the oldest requests, as long as ends returns true.
func (s *Settlements) expire(ends func(*passedRequest) bool) (expired int64, silent bool) {
	var ended []*passedRequest
	s.mu.Lock()
	for s.first != nil && ends(s.first) {
		ended = append(ended, s.remove(s.first.key))
	}
	expired, silent = s.expired+int64(len(ended)), s.silent
	s.expired = 0
	s.mu.Unlock()
	for _, p := range ended {
		p.settleUnknown()
	}
	return expired, silent
}

func (p *passedRequest) settleUnknown() {
	p.settle(fairshare.Outcome{Status: http.StatusOK, Bytes: -1})
}

// settle settles the rest of a request, and calls Options.Passed.
func (p *passedRequest) settle(out fairshare.Outcome) {
	out.Time = p.gen.Now()
	p.report(out)
	if p.gen.Passed == nil {
		return
	}
	if p.completion.HTTP == nil {
		p.completion.Status, p.completion.Bytes = out.Status, max(out.Bytes, 0)
	}
	p.gen.Passed(&p.completion)
}

func (p *passedRequest) report(out fairshare.Outcome) {
	p.gen.reportFailed(p.completion.HTTP, p.gen.guard.Settle(context.Background(), &p.verdict, out))
}
