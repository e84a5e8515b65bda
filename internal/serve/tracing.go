package serve

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"net/textproto"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"fairshare"
	"fairshare/clientaddr"
	"fairshare/httpguard"
	"fairshare/internal/cli"
	"fairshare/internal/journal"
	"fairshare/internal/otlp"
	"fairshare/internal/prose"
	"fairshare/policyfile"
)

// spansGrace is how long the collector gets for the last spans when the server ends.
const spansGrace = 2 * time.Second

// A tracing chooses the requests that become spans. nil means that none does.
type tracing struct {
	options   otlp.Options
	threshold uint64 // of a random number, below which a request is chosen
	always    bool   // all are chosen
	parents   bool   // trusted proxies choose
	addr      bool   // spans have the client's address
}

// A requestSpan is what is known of a span when its request arrives.
type requestSpan struct {
	otlp.Context
	parent [8]byte
	state  string
	scheme string
}

type spanKey struct{}

// newTracing returns what a policy file asks for, nil for nothing.
func newTracing(file *policyfile.File) (*tracing, error) {
	o := file.OpenTelemetry
	if o == nil {
		return nil, nil
	}
	t := &tracing{always: o.Sample >= 1, parents: o.Parents, addr: file.AccessLog != nil,
		options: otlp.Options{URL: o.TracesURL(), Service: o.Service, Version: cli.Version()}}
	if !t.always {
		t.threshold = uint64(o.Sample * math.MaxUint64)
	}
	if o.HeadersFile != "" {
		header, err := readHeaders(file.ResolvePath(o.HeadersFile))
		if err != nil {
			return nil, file.Fault(o.HeadersFile, fmt.Errorf("headers_file: %w", err),
				"a line is a header, such as Authorization: Bearer TOKEN")
		}
		t.options.Header = header
	}
	return t, nil
}

// readHeaders reads a file with one header a line. Empty lines and those that begin with # are left out.
// Errors do not show values.
func readHeaders(path string) (http.Header, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	header := http.Header{}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; lines.Scan(); n++ {
		line := textproto.TrimString(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, found := strings.Cut(line, ":")
		value = textproto.TrimString(value)
		if !found || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return nil, fmt.Errorf("line %d is not a header", n)
		}
		header.Add(name, value)
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(header) == 0 {
		return nil, errors.New("the file has no header")
	}
	return header, nil
}

// useTracing starts, changes or ends the export of spans.
func (s *server) useTracing(t *tracing) {
	if t == nil {
		s.tracing.Store(nil)
		s.spans.Replace(nil)
		return
	}
	s.spans.Replace(&t.options)
	s.tracing.Store(t)
}

// traced returns a handler that begins the spans of requests for next.
func (s *server) traced(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if t := s.tracing.Load(); t != nil {
			r = t.begin(r, s.runtime.Load().Clients)
		}
		next.ServeHTTP(w, r)
	})
}

// proxies says what may be believed about a request.
type proxies interface {
	TrustsPeer(remoteAddr string) bool
	Secure(remoteAddr string, header clientaddr.Header) bool
}

// begin returns the request with the span that it becomes, if it becomes one. The upstream then gets this
// span as the parent of its own. Only a trusted proxy chooses the trace, and whether it is recorded. The
// headers of other peers are removed.
func (t *tracing) begin(r *http.Request, clients proxies) *http.Request {
	parent, known := otlp.Context{}, false
	values, states := r.Header["Traceparent"], r.Header["Tracestate"]
	if len(values) > 0 || len(states) > 0 {
		if len(values) == 1 && t.parents && clients.TrustsPeer(r.RemoteAddr) {
			parent, known = otlp.ParseContext(values[0])
		}
		if !known {
			delete(r.Header, "Traceparent")
			delete(r.Header, "Tracestate")
			states = nil
		}
	}
	chosen := parent.Sampled
	if !known {
		chosen = t.always || rand.Uint64() < t.threshold
	}
	if !chosen {
		return r
	}
	span := &requestSpan{Context: otlp.Context{Trace: parent.Trace, Sampled: true}, parent: parent.Span,
		state: strings.Join(states, ","), scheme: "http"}
	for span.Trace == [16]byte{} {
		fillRandom(span.Trace[:8])
		fillRandom(span.Trace[8:])
	}
	for span.Span == [8]byte{} {
		fillRandom(span.Span[:])
	}
	if len(span.state) > maxState {
		span.state = ""
	}
	span.state = strings.Clone(span.state)
	if r.TLS != nil || clients.Secure(r.RemoteAddr, r.Header) {
		span.scheme = "https"
	}
	r.Header["Traceparent"] = []string{span.String()}
	return r.WithContext(context.WithValue(r.Context(), spanKey{}, span))
}

// Bounds of what a span has from its request, in bytes. With them a span takes at most 4 KiB.
const (
	maxState    = 512 // of a tracestate: W3C Trace Context, section 3.3.1.5
	maxSpanText = 1024
)

func shorten(text string) string { return text[:min(len(text), maxSpanText)] }

func fillRandom(b []byte) {
	n := rand.Uint64()
	for i := range b {
		b[i] = byte(n >> (8 * i))
	}
}

// spanOf returns the span of a request; nil if it is none.
func spanOf(r *http.Request) *requestSpan {
	span, _ := r.Context().Value(spanKey{}).(*requestSpan)
	return span
}

// finish returns the whole span of a request that was answered. entry is its line of the access log.
func (s *requestSpan) finish(a *httpguard.Access, entry *journal.Access, addr bool) *otlp.Span {
	method := knownMethod(entry.Method)
	span := &otlp.Span{Context: s.Context, Parent: s.parent, State: s.state, Name: method, Start: entry.Time,
		Took: entry.Took, Failed: a.Status >= 500, Attributes: make([]slog.Attr, 0, 20)}
	text := func(name, value string) {
		if value != "" {
			span.Attributes = append(span.Attributes, slog.String(name, shorten(value)))
		}
	}
	number := func(name string, n int64) { span.Attributes = append(span.Attributes, slog.Int64(name, n)) }
	seconds := func(name string, d time.Duration) {
		span.Attributes = append(span.Attributes, slog.Float64(name, max(d, 0).Seconds()))
	}
	if method == otherMethod {
		span.Name = "HTTP"
	}
	text("http.request.method", method)
	text("url.scheme", s.scheme)
	// Copies: otherwise a span that waits would keep the whole header of its request in memory.
	text("url.path", strings.Clone(shorten(entry.Path())))
	text("server.address", strings.Clone(shorten(entry.Host)))
	if addr && entry.Client.IsValid() {
		text("client.address", entry.Client.WithZone("").String())
	}
	if a.Status != 0 {
		number("http.response.status_code", int64(a.Status))
		number("http.response.body.size", entry.Bytes)
	}
	if span.Failed {
		text("error.type", strconv.Itoa(a.Status))
	}
	text("fairshare.verdict", entry.Verdict)
	text("fairshare.action", spanAction(a))
	span.Attributes = append(span.Attributes, slog.Bool("fairshare.dry_run", a.DryRun))
	text("fairshare.rule", entry.Rule)
	text("fairshare.reference", entry.ID)
	seconds("fairshare.wait", entry.Waited)
	if entry.Upstream > 0 {
		seconds("fairshare.upstream_time", entry.Upstream)
	}
	if entry.CPU > 0 {
		seconds("fairshare.cpu_time", entry.CPU)
	}
	if entry.Cost >= 0 {
		number("fairshare.cost", entry.Cost)
	}
	return span
}

// spanAction says what happened to a request, whatever its verdict would have been.
func spanAction(a *httpguard.Access) string {
	switch {
	case a.Gone:
		return "none"
	case a.WaitingRoom:
		return "room"
	case a.DryRun, a.Action == fairshare.Undecided && a.Took > 0:
		return fairshare.Allow.String()
	case a.Action == fairshare.Undecided:
		return fairshare.Refuse.String()
	}
	return a.Action.String()
}

// otherMethod is the method of spans of requests whose method no standard has.
const otherMethod = "_OTHER"

var knownMethods = []string{"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY"}

// knownMethod returns a method, or otherMethod: a client must not make up names of spans.
func knownMethod(method string) string {
	if i := slices.Index(knownMethods, method); i >= 0 {
		return knownMethods[i] // not a part of the request's header
	}
	return otherMethod
}

// reportLostSpans writes how many spans were lost since the last call, and why.
func (s *server) reportLostSpans() {
	n, err := s.spans.Lost()
	switch {
	case n == 0:
	case err != nil:
		s.printf("warning: opentelemetry: %s lost: %s", prose.Plural(n, "span"), cli.OneLine(err))
	default:
		s.printf("warning: opentelemetry: %s lost: the collector did not accept them in time", prose.Plural(n, "span"))
	}
}

// closeSpans sends the last spans.
func (s *server) closeSpans() {
	s.spans.Close(spansGrace)
	s.reportLostSpans()
}

// tracingTarget describes where spans are sent.
func (rt *runtime) tracingTarget() string {
	o := rt.File.OpenTelemetry
	if o == nil {
		return "none"
	}
	by := ""
	if o.Parents && len(rt.File.TrustedProxies) > 0 {
		by = ", and those that a trusted proxy samples,"
	}
	return fmt.Sprintf("spans of %s of the requests%s go to %s, as %s", policyfile.FormatPercent(o.Sample), by,
		o.TracesURL(), o.Service)
}
