package proxy

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"fairshare/httpguard"
)

// failed answers the request if the upstream did not.
func (q *exchange) failed(err error) {
	httpguard.NoUpstreamAnswer(q.w) // before the turn ends
	q.finish(nil)
	q.closeEarly()
	var timeout net.Error
	switch {
	case q.body != nil && q.body.failed() != nil:
		q.refuseBody(q.body.failed())
	case q.patience.cancelled() == errStuck:
		q.Log.Printf("%supstream %s did not take the body of a request within %v, so the client got a 504", q.pool.of(),
			q.up.url.Host, q.up.timeout)
		answer(q.w, q.r, http.StatusGatewayTimeout, "This site takes too long to answer. Please try again in a while.")
	case q.patience.cancelled() != nil: // the client has left
		answer(q.w, q.r, http.StatusBadGateway, "")
	case errors.As(err, &timeout) && timeout.Timeout():
		q.Log.Print(q.pool.of() + q.up.slow(err))
		answer(q.w, q.r, http.StatusGatewayTimeout, "This site takes too long to answer. Please try again in a while.")
	default:
		q.up.silent.Store(true)
		q.Log.Print(q.pool.of() + q.up.problem(err))
		answer(q.w, q.r, http.StatusBadGateway, "This site does not answer at the moment. Please try again in a while.")
	}
}

// allDown answers a request to a site whose upstreams are all down by their checks.
func (q *exchange) allDown() {
	seconds := 1
	if c := q.pool.Check; c != nil {
		seconds = max(1, int(c.Every*time.Duration(c.Passes)/time.Second))
	}
	q.w.Header().Set("Retry-After", strconv.Itoa(seconds))
	answer(q.w, q.r, http.StatusServiceUnavailable,
		"All servers of this site are down at the moment. Please try again in a while.")
}

// refuseBody answers a request whose body could not be read.
func (q *exchange) refuseBody(err error) {
	q.w.Header().Set("Connection", "close")
	switch {
	case errors.Is(err, errNoSpace):
		q.Log.Printf("request bodies use all of their %d MiB; another request is answered 503", bodyBudget>>20)
		q.w.Header().Set("Retry-After", "10")
		answer(q.w, q.r, http.StatusServiceUnavailable,
			"This site is too busy to take what was sent. Please try again in a while.")
	case errors.Is(err, os.ErrDeadlineExceeded):
		answer(q.w, q.r, http.StatusRequestTimeout, "What was sent with this request came too slowly.")
	default:
		answer(q.w, q.r, http.StatusBadRequest, "What was sent with this request cannot be read.")
	}
}

// answer writes a page of the proxy itself.
func answer(w http.ResponseWriter, r *http.Request, status int, text string) {
	httpguard.NoUpstreamAnswer(w)
	if r.ContentLength != 0 && r.ProtoMajor == 1 { // net/http reads more of the body first
		http.NewResponseController(w).SetReadDeadline(time.Now().Add(linger))
	}
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	title := http.StatusText(status)
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		fmt.Fprintf(w, page, title, title, text)
	}
}

const page = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>%s</title>
<body style="font:1.1rem/1.5 system-ui,sans-serif;max-width:34rem;margin:12vh auto;padding:0 1.2rem">
<h1>%s</h1>
<p>%s</p>
</html>
`
