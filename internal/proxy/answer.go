package proxy

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"fairshare/httpguard"
	"fairshare/internal/httpfield"
	"fairshare/internal/outbound"
)

// headDelay is how long the head of an answer without a length waits for the
// beginning of its body, so that both are sent together.
const headDelay = 2 * time.Millisecond

// answer forwards the upstream's answer.
func (q *exchange) answer(resp *http.Response) {
	if q.call != nil && q.answerWhole() {
		return
	}
	defer resp.Body.Close()
	h := q.w.Header()
	if !q.filled {
		copyAnswerHeader(h, resp.Header)
	} else if len(h["Connection"]) > 0 {
		dropConnectionFields(h)
	}
	if _, ok := h["Content-Type"]; !ok {
		h["Content-Type"] = nil // else net/http guesses one
	}
	announced := q.announce(resp)
	if resp.Body == http.NoBody {
		q.finish(resp)
		q.head(resp)
		q.trailer(resp, announced)
		return
	}
	if err := q.copy(resp); err != nil {
		panic(http.ErrAbortHandler)
	}
	q.trailer(resp, announced)
}

// answerWhole forwards an answer that is short and whole. It returns false if the answer is to be forwarded in parts.
func (q *exchange) answerWhole() bool {
	var a outbound.Whole
	if !q.call.Whole(&a) {
		return false
	}
	if !httpguard.AnswerWhole(q.w, (*httpguard.WholeAnswer)(&a)) {
		q.call.Unfold()
		q.filled = len(q.w.Header()) > 0
		return false
	}
	q.over, q.headed = true, true
	q.call.Taken()
	return true
}

// announce announces the trailers that the client may get, and returns how many.
func (q *exchange) announce(resp *http.Response) int {
	if len(resp.Trailer) == 0 {
		return 0
	}
	names := make([]string, 0, len(resp.Trailer))
	for name := range resp.Trailer {
		if name != q.CostHeader && !(name == timingHeader && q.stripsTiming()) {
			names = append(names, name)
		}
	}
	if len(names) > 0 {
		h := q.w.Header()
		h["Trailer"] = append(h["Trailer"], strings.Join(names, ", "))
	}
	return len(names)
}

// closeEarly closes an HTTP/1 connection after the answer if the client is still
// sending: the rest of the body must not be parsed as another request.
func (q *exchange) closeEarly() {
	if q.body != nil && q.body.http1 && !q.body.sent() {
		q.w.Header()["Connection"] = connectionClose
	}
}

// head writes the head of the answer once.
func (q *exchange) head(resp *http.Response) {
	if q.headed {
		return
	}
	q.headed = true
	q.closeEarly()
	q.w.WriteHeader(resp.StatusCode)
}

// trailer forwards the trailers of the upstream.
func (q *exchange) trailer(resp *http.Response, announced int) {
	if len(resp.Trailer) == 0 {
		return
	}
	// net/http then does not count the length of a short body itself.
	http.NewResponseController(q.w).Flush()
	h := q.w.Header()
	for name, values := range resp.Trailer {
		if httpfield.IsOfConnection(name) || name == "Content-Length" {
			continue // not allowed in a trailer (RFC 9110 §6.5.1)
		}
		if len(resp.Trailer) != announced {
			name = http.TrailerPrefix + name
		}
		h[name] = values
	}
}

// copy forwards the body. The error is of either side; it is logged.
func (q *exchange) copy(resp *http.Response) error {
	to := sink{w: q.w, flush: resp.ContentLength < 0}
	if eventStream(resp.Header) {
		return q.stream(resp, &to)
	}
	c := q.proxy.chunks.get()
	n, err := q.first(resp, c)
	if err == nil && int64(n) != resp.ContentLength {
		q.head(resp)
		c.to = n
		return q.copyAhead(resp, c, &to)
	}
	defer q.proxy.chunks.put(c)
	if err == io.EOF {
		err = nil
	}
	q.bodyEnded(resp, err)
	q.head(resp)
	if err != nil {
		q.brokeOff(err)
	}
	to.flush = to.flush && err != nil
	if n > 0 {
		if werr := to.write(c.space[:n]); err == nil {
			err = werr
		}
	}
	return err
}

// first reads the beginning of a body, or a short body completely.
func (q *exchange) first(resp *http.Response, c *chunk) (int, error) {
	if n := resp.ContentLength; n > 0 && n <= chunkSize {
		n, err := io.ReadFull(resp.Body, c.space[:n])
		if err == nil && resp.ProtoMajor == 2 && (len(resp.Trailer) > 0 || q.readsCosts()) {
			resp.Body.Read(nil) // the trailer comes after the counted bytes
		}
		return n, err
	} else if n > 0 {
		return resp.Body.Read(c.space)
	}
	// A client of a slow stream must not wait for the head.
	early := time.AfterFunc(headDelay, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if !q.headed {
			q.head(resp)
			http.NewResponseController(q.w).Flush()
		}
	})
	n, err := resp.Body.Read(c.space)
	if err != nil {
		q.bodyEnded(resp, err)
	}
	if !early.Stop() {
		q.shared = true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.head(resp)
	return n, err
}

// copyAhead forwards a longer body, and reads ahead while the client takes it.
func (q *exchange) copyAhead(resp *http.Response, first *chunk, to *sink) error {
	q.shared = true
	a := q.proxy.newReadAhead(resp.Body, first, func(err error) { q.bodyEnded(resp, err) })
	go a.run()
	defer a.end()
	for {
		p, err := a.take()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			q.brokeOff(err)
			return err
		}
		if err := to.write(p); err != nil {
			q.patience.clientLeft()
			a.abandon()
			return err
		}
		a.release(len(p))
	}
}

// stream forwards events as they come, until the client leaves.
func (q *exchange) stream(resp *http.Response, to *sink) error {
	space := q.proxy.spaces.get(0)
	defer q.proxy.spaces.put(0, space)
	q.shared = true
	q.patience.setLive()
	q.proxy.live.add(&q.patience, func() { q.patience.cancel(errStopped) })
	defer q.proxy.live.remove(&q.patience)
	q.head(resp)
	to.flush = true
	http.NewResponseController(q.w).Flush()
	for {
		n, err := resp.Body.Read(*space)
		if err != nil {
			q.bodyEnded(resp, err)
		}
		if n > 0 {
			if err := to.write((*space)[:n]); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF || err != nil && q.patience.cancelled() == errStopped:
			return nil
		case err != nil:
			q.brokeOff(err)
			return err
		}
	}
}

func (q *exchange) brokeOff(err error) {
	if q.patience.cancelled() == nil && !errors.Is(err, errAbandoned) {
		q.Log.Printf("%supstream %s ended in the middle of an answer: %v", q.pool.of(), q.up.url.Host, err)
	}
}

func eventStream(h http.Header) bool {
	const kind = "text/event-stream"
	v := h["Content-Type"]
	return len(v) > 0 && len(v[0]) >= len(kind) && strings.EqualFold(v[0][:len(kind)], kind) &&
		(len(v[0]) == len(kind) || strings.IndexByte("; \t,", v[0][len(kind)]) >= 0)
}

// A sink writes a body to the client. The listener bounds how slowly the client may
// read.
type sink struct {
	w     http.ResponseWriter
	flush bool // send each write at once
}

func (s *sink) write(p []byte) error {
	if n, err := s.w.Write(p); err != nil {
		return err
	} else if n < len(p) {
		return io.ErrShortWrite
	}
	if s.flush {
		return http.NewResponseController(s.w).Flush()
	}
	return nil
}
