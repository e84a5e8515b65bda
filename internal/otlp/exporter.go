// Package otlp sends spans to an OpenTelemetry collector: OTLP over HTTP, with protobuf. Start with
// [New]. [ParseContext] reads the header traceparent.
package otlp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	collectorpb "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Options say where spans go.
type Options struct {
	URL     string      // of the collector, with its path
	Header  http.Header // of each request: credentials; it must not be changed
	Service string      // the name of the service
	Version string      // its version
}

// Bounds of an exporter.
const (
	mostWaiting = 4096             // spans that wait
	mostInBatch = 512              // spans of one request to the collector
	delay       = time.Second      // until a batch is sent that is not full
	timeout     = 10 * time.Second // of one request to the collector
	mostTries   = 5                // for one batch
	firstPause  = time.Second      // after the first failure; it doubles
	longestWait = 30 * time.Second // of a pause that the collector asks for
	mostAnswer  = 64 << 10         // bytes of an answer that are read
)

// An Exporter sends spans in the background. No request waits for it: what the queue has no room for is
// dropped and counted. The methods are safe for concurrent use.
type Exporter struct {
	transport http.RoundTripper
	wake      chan struct{} // has room for one: spans wait
	full      chan struct{} // likewise: a whole batch waits
	changed   chan struct{} // likewise: there are other options
	ctx       context.Context
	cancel    context.CancelFunc // ends requests to the collector
	closing   chan struct{}
	ended     chan struct{} // nil until the first Replace with options

	mu       sync.Mutex
	closed   bool
	options  *Options // nil: spans are ignored
	waiting  []*Span
	exported int64
	dropped  int64
	reported int64 // of dropped
	err      error // the last
}

// New returns an exporter that ignores all spans until [Exporter.Replace] gives it options.
func New() *Exporter {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxConnsPerHost = 1
	return newExporter(transport)
}

func newExporter(transport http.RoundTripper) *Exporter {
	ctx, cancel := context.WithCancel(context.Background())
	return &Exporter{transport: transport, ctx: ctx, cancel: cancel, wake: make(chan struct{}, 1),
		full: make(chan struct{}, 1), changed: make(chan struct{}, 1), closing: make(chan struct{})}
}

// Replace changes the options, also for spans that wait, and ends a pause after a failure. nil ends the
// export, and spans that wait are dropped.
func (e *Exporter) Replace(o *Options) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	e.options = o
	signal(e.changed)
	if o == nil {
		e.dropped += int64(len(e.waiting))
		e.waiting = nil
	} else if e.ended == nil {
		e.ended = make(chan struct{})
		go e.run()
	}
}

// Add adds a span, which must not be changed any more. It never waits for the collector.
func (e *Exporter) Add(s *Span) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.options == nil:
		return
	case e.closed || len(e.waiting) >= mostWaiting:
		e.dropped++
		return
	}
	e.waiting = append(e.waiting, s)
	if len(e.waiting) == 1 {
		signal(e.wake)
	}
	if len(e.waiting) == mostInBatch {
		signal(e.full)
	}
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Counts returns how many spans the collector has accepted and how many were dropped.
func (e *Exporter) Counts() (exported, dropped int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.exported, e.dropped
}

// Lost returns how many spans were dropped since the last call, and the last error; nil if the queue was
// full and no request to the collector has failed.
func (e *Exporter) Lost() (n int64, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n, err = e.dropped-e.reported, e.err
	e.reported, e.err = e.dropped, nil
	return n, err
}

// Close sends the spans that wait, for at most the given time, and ends the exporter. Spans that are added
// later are dropped.
func (e *Exporter) Close(wait time.Duration) {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return
	}
	e.closed = true
	close(e.closing)
	ended := e.ended
	e.mu.Unlock()
	if ended != nil {
		deadline := time.AfterFunc(wait, e.cancel)
		<-ended
		deadline.Stop()
	}
	e.cancel()
	if t, ok := e.transport.(*http.Transport); ok {
		t.CloseIdleConnections()
	}
}

func (e *Exporter) run() {
	defer close(e.ended)
	for closing := false; !closing; {
		select {
		case <-e.wake:
		case <-e.closing:
			closing = true
		}
		if !closing {
			timer := time.NewTimer(delay)
			select {
			case <-timer.C:
			case <-e.full:
			case <-e.closing:
				closing = true
			}
			timer.Stop()
		}
		for {
			batch := e.take()
			if len(batch) == 0 {
				break
			}
			e.export(batch)
		}
	}
}

// take removes the next batch from the queue.
func (e *Exporter) take() []*Span {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := min(len(e.waiting), mostInBatch)
	batch := e.waiting[:n:n]
	if e.waiting = e.waiting[n:]; len(e.waiting) == 0 {
		e.waiting = nil
	}
	return batch
}

func (e *Exporter) current() *Options {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.options
}

// export sends one batch, and again while the collector is away or overloaded.
func (e *Exporter) export(batch []*Span) {
	select {
	case <-e.changed: // before this batch
	default:
	}
	pause := firstPause
	for try := 1; ; try++ {
		o := e.current()
		if o == nil {
			e.settle(0, len(batch), nil)
			return
		}
		last := try == mostTries || e.isClosing()
		rejected, again, err := e.send(o, batch)
		if err == nil || !again || last {
			e.settle(len(batch)-rejected, rejected, err)
			return
		}
		e.settle(0, 0, err)
		wait := pause
		var busy *busyError
		if errors.As(err, &busy) && busy.after > 0 {
			wait = min(busy.after, longestWait)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-e.changed:
		case <-e.closing: // one more try
		}
		timer.Stop()
		pause *= 2
	}
}

func (e *Exporter) isClosing() bool {
	select {
	case <-e.closing:
		return true
	default:
		return false
	}
}

func (e *Exporter) settle(exported, dropped int, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.exported += int64(exported)
	e.dropped += int64(dropped)
	if err != nil {
		e.err = err
	}
}

// A busyError is an answer after which the same request may succeed later.
type busyError struct {
	status string
	after  time.Duration // 0 means not said
}

func (e *busyError) Error() string { return "the collector answered " + e.status }

// send sends a batch. It returns how many spans the collector does not have: all or none, if it does not
// say. again says that it may accept them later.
func (e *Exporter) send(o *Options, batch []*Span) (rejected int, again bool, err error) {
	body, err := proto.Marshal(request(o, batch))
	if err != nil {
		return len(batch), false, err
	}
	ctx, cancel := context.WithTimeout(e.ctx, timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, o.URL, bytes.NewReader(body))
	if err != nil {
		return len(batch), false, err
	}
	for name, values := range o.Header {
		r.Header[name] = values
	}
	r.Header.Set("Content-Type", "application/x-protobuf")
	r.Header.Set("User-Agent", "fairshare/"+o.Version)
	// RoundTrip follows no redirect: the header may have credentials.
	answer, err := e.transport.RoundTrip(r)
	if err != nil {
		return len(batch), true, fmt.Errorf("%s: %w", o.URL, err)
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, mostAnswer)) // the status says enough
	status := strings.TrimSpace(fmt.Sprintf("%d %s", answer.StatusCode, http.StatusText(answer.StatusCode)))
	switch answer.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		seconds, _ := strconv.Atoi(answer.Header.Get("Retry-After"))
		return len(batch), true, &busyError{status, time.Duration(max(0, min(seconds, 3600))) * time.Second}
	}
	if answer.StatusCode/100 != 2 {
		return len(batch), false, fmt.Errorf("the collector answered %s", status)
	}
	var accepted collectorpb.ExportTraceServiceResponse
	if proto.Unmarshal(text, &accepted) == nil && accepted.GetPartialSuccess().GetRejectedSpans() > 0 {
		partial := accepted.GetPartialSuccess()
		return int(min(partial.GetRejectedSpans(), int64(len(batch)))), false,
			fmt.Errorf("the collector rejected spans: %.200q", partial.GetErrorMessage())
	}
	return 0, false, nil
}
