package proxy

import (
	"io"
	"net/http"
	"strings"
	"time"

	"fairshare/httpguard"
)

// readCosts charges the costs that the header or trailer of an answer reports, and
// removes the fields that the client must not get. A later report replaces an
// earlier one.
func (q *exchange) readCosts(h http.Header) {
	if lines := h[timingHeader]; len(lines) > 0 && q.Timing != "" {
		if d, ok := timing(lines, q.Timing); ok {
			httpguard.ReportCPU(q.w, d.Round(time.Microsecond)) // limits count microseconds, and would round down
		}
	}
	if lines := h[q.CostHeader]; len(lines) > 0 && q.CostHeader != "" {
		if units, ok := cost(lines, q.MaxCost); ok {
			httpguard.ReportCost(q.w, units)
		}
	}
	q.stripCosts(h)
}

// stripCosts removes the fields from an answer's header or trailer that only this
// proxy reads.
func (s *setup) stripCosts(h http.Header) {
	if s.CostHeader != "" {
		delete(h, s.CostHeader)
	}
	if lines, ok := h[timingHeader]; ok && s.stripsTiming() {
		if others := withoutMetric(lines, s.Timing); others != nil {
			h[timingHeader] = others
		} else {
			delete(h, timingHeader)
		}
	}
}

// stripsTiming reports whether entries of Server-Timing are removed.
func (s *setup) stripsTiming() bool { return s.Timing != "" && !s.KeepTiming }

// readsCosts reports whether the upstream may report costs, in headers or trailers.
func (s *setup) readsCosts() bool { return s.Timing != "" || s.CostHeader != "" }

// isCostHeader reports whether a header, with "_" read as "-", reports costs. It is
// removed from requests: some upstreams copy request headers to their answers.
func (s *setup) isCostHeader(name string) bool {
	return name == s.costFolded && name != "" || name == timingHeader && s.Timing != ""
}

// fold returns the name of a header with "-" for "_": some servers do not
// distinguish them.
func fold(name string) string { return http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-")) }

// finish is called when the upstream is done with the request: its answer is
// complete or has failed. resp is nil if there is no answer.
func (q *exchange) finish(resp *http.Response) {
	if q.over {
		return
	}
	q.over = true
	if resp != nil && len(resp.Trailer) > 0 && q.readsCosts() {
		q.readCosts(resp.Trailer)
	}
	if resp != nil && resp.StatusCode >= http.StatusInternalServerError {
		httpguard.UpstreamFailed(q.w)
	}
	httpguard.UpstreamDone(q.w)
}

// bodyEnded is finish after the body of an answer has been read, up to its end or an error. Half an answer
// does not show how fast the upstream is. If its client has left, that is not a failure.
func (q *exchange) bodyEnded(resp *http.Response, err error) {
	if err != nil && err != io.EOF && !q.over && q.patience.cancelled() == nil {
		httpguard.UpstreamFailed(q.w)
	}
	q.finish(resp)
}

// enterUploads waits until one more request with an incomplete body may wait for its
// turn. If the wait takes too long, it answers the request and returns false.
func (q *exchange) enterUploads() bool {
	if q.pool.uploads.enter(q.r.Context(), q.pool.Slots) {
		return true
	}
	if q.r.Context().Err() != nil {
		panic(http.ErrAbortHandler) // the client has left
	}
	h := q.w.Header()
	h.Set("Connection", "close")
	h.Set("Retry-After", "10")
	answer(q.w, q.r, http.StatusServiceUnavailable,
		"This site is too busy to take what was sent. Please try again in a while.")
	return false
}

// turn waits for the request's turn at the upstream. If it gets none, the request
// is answered and turn returns false.
func (q *exchange) turn() bool {
	if q.body == nil || q.body.whole || !q.body.http1 {
		return q.await()
	}
	// The answer may come before the complete body: from the upstream, or the refusal
	// of a request without a turn.
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

func (q *exchange) await() bool {
	if httpguard.AwaitTurn(q.w, q.r) {
		return true
	}
	if q.r.Context().Err() != nil {
		panic(http.ErrAbortHandler) // the client has left
	}
	return false
}
