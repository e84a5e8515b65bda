package proxy

import (
	"net/http"
	"strings"
	"time"

	"fairshare/httpguard"
)

// told hears from the header or the trailer of an answer what the request has
// cost, and takes out what the client is not to get. What comes later counts.
func (q *passage) told(h http.Header) {
	if lines := h[timingHeader]; len(lines) > 0 && q.Timing != "" {
		if d, ok := timing(lines, q.Timing); ok {
			httpguard.SpentCPU(q.w, d.Round(time.Microsecond)) // which limits count in, and cut the rest off
		}
	}
	if lines := h[q.CostHeader]; len(lines) > 0 && q.CostHeader != "" {
		if units, ok := cost(lines, q.MaxCost); ok {
			httpguard.SpentCost(q.w, units)
		}
	}
	q.keep(h)
}

// keep takes out of an answer's header or trailer what is told to this proxy
// alone.
func (s *setup) keep(h http.Header) {
	if s.CostHeader != "" {
		delete(h, s.CostHeader)
	}
	if lines, ok := h[timingHeader]; ok && s.takesTiming() {
		if left := withoutMetric(lines, s.Timing); left != nil {
			h[timingHeader] = left
		} else {
			delete(h, timingHeader)
		}
	}
}

// takesTiming reports whether a Server-Timing may lose entries on its way to
// the client.
func (s *setup) takesTiming() bool { return s.Timing != "" && !s.KeepTiming }

// listens reports whether the upstream may tell what requests cost, which it
// may do behind an answer too.
func (s *setup) listens() bool { return s.Timing != "" || s.CostHeader != "" }

// tells reports whether a header, "_" read as "-", is one by which the
// upstream tells what a request has cost. A client must not put words into the
// mouth of an upstream that hands headers back.
func (s *setup) tells(name string) bool {
	return name == s.costFolded && name != "" || name == timingHeader && s.Timing != ""
}

// fold returns the name that servers which make "_" of "-" take a header for.
func fold(name string) string { return http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-")) }

// done tells that the upstream is done with the request: it answered to the
// end, or will not. resp is nil when there is no answer.
func (q *passage) done(resp *http.Response) {
	if q.over {
		return
	}
	q.over = true
	if resp != nil && len(resp.Trailer) > 0 && q.listens() {
		q.told(resp.Trailer)
	}
	if resp != nil && resp.StatusCode >= http.StatusInternalServerError {
		httpguard.UpstreamFailed(q.w)
	}
	httpguard.UpstreamDone(q.w)
}

// uploads waits until one more request whose body still comes may take part. It
// returns false when none may, and the request is answered.
func (q *passage) uploads() bool {
	if q.proxy.uploads.enter(q.r.Context(), q.Slots()) {
		return true
	}
	if q.r.Context().Err() != nil {
		panic(http.ErrAbortHandler) // the client is gone
	}
	h := q.w.Header()
	h.Set("Connection", "close")
	h.Set("Retry-After", "10")
	answer(q.w, q.r, http.StatusServiceUnavailable, "This site is too busy to take what was sent. Please try again in a while.")
	return false
}

// turn waits until it is the request's turn to ask the upstream. It returns
// false when there is none, and the request is answered.
func (q *passage) turn() bool {
	if q.body == nil || q.body.whole || !q.body.http1 {
		return q.await()
	}
	// The upstream may answer before it has all, and who gets no turn is told so
	// before the rest is there.
	q.body.client.EnableFullDuplex()
	h := q.w.Header()
	h["Connection"] = connectionClose
	watch := time.AfterFunc(watchAfter, q.body.watch)
	defer q.body.unwatch()
	defer watch.Stop()
	if !q.await() {
		return false
	}
	delete(h, "Connection")
	return true
}

func (q *passage) await() bool {
	if httpguard.AwaitTurn(q.w, q.r) {
		return true
	}
	if q.r.Context().Err() != nil {
		panic(http.ErrAbortHandler) // the client is gone
	}
	return false
}
