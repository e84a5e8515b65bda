package journal

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// AccessOptions configure an access log. The zero AccessOptions write combined lines to stderr.
type AccessOptions struct {
	Format    string // combined or json; "" means combined
	File      string // "" means stderr
	Max       int64  // as in Options
	KeepFiles int    // as in Options
	Query     bool   // write query strings, of referrers too
}

// An Access is one request with its answer. Method, Target, Protocol, Host, Referer and UserAgent
// come from the client; they are truncated and escaped.
type Access struct {
	Time      time.Time  // of arrival
	Client    netip.Addr // as in an Entry
	Through   netip.Addr // as in an Entry
	Method    string
	Target    string // as sent, with the query
	Protocol  string
	Host      string
	Referer   string
	UserAgent string
	Status    int
	Bytes     int64         // of the body of the answer
	Took      time.Duration // from arrival to the end
	Upstream  time.Duration // of this, at the upstream; 0 if it did not get the request
	CPU       time.Duration // 0 means not measured
	Cost      int64         // units; below 0: none was reported
	Waited    time.Duration // for other requests to end and for a turn
	Verdict   string        // a word without spaces
	DryRun    bool          // the request passed nevertheless
	Rule      string        // "" means none
	ID        string        // as in an Entry; "" means none
}

// Bounds of an access log.
const (
	mostAccess = 8 << 20        // bytes that wait for the disk
	mostStderr = maxWaiting / 2 // likewise for the reader of stderr: the other lines need some too
	maxTarget  = 4096           // bytes of a target that are written
	maxHeader  = 1024           // likewise of a header
)

// An AccessLog is a log of all requests. Its file is rotated like that of a journal. It is safe for
// concurrent use. No request waits for the disk: without space in the queue a line is lost and
// counted.
type AccessLog struct {
	journal  *Journal // stderr, and the place for faults
	settings atomic.Pointer[accessSettings]
	lost     atomic.Int64

	mu     sync.Mutex // held by Replace and Close
	closed bool
}

// accessSettings are the values that Replace replaces. nil means that there is no log.
type accessSettings struct {
	AccessOptions
	out   *outlet
	sink  *fileSink // nil means stderr
	space int       // bytes that may wait
}

// OpenAccessLog returns an access log; nil options mean that it writes nothing until Replace. The
// error may be an [*OpenError]. Close it before the journal.
func (j *Journal) OpenAccessLog(o *AccessOptions) (*AccessLog, error) {
	l := &AccessLog{journal: j}
	if err := l.Replace(o); err != nil {
		return nil, err
	}
	return l, nil
}

// Replace changes the options and opens the file again; nil options end the log. After an error it
// continues as before.
func (l *AccessLog) Replace(o *AccessOptions) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errors.New("access log: closed")
	}
	old := l.settings.Load()
	next, err := l.set(o, old)
	if err != nil {
		return err
	}
	if next != nil && next.sink != nil && (old == nil || next.sink != old.sink) {
		go next.out.run()
	}
	l.settings.Store(next)
	if old != nil && old.sink != nil && (next == nil || next.sink != old.sink) {
		l.lost.Add(old.out.close(time.After(closeDelay)))
	}
	return nil
}

func (l *AccessLog) set(o *AccessOptions, old *accessSettings) (*accessSettings, error) {
	if o == nil {
		return nil, nil
	}
	switch o.Format {
	case "", "combined", "json":
	default:
		return nil, fmt.Errorf("access_log: unknown format %q; the formats are combined and json", o.Format)
	}
	s := &accessSettings{AccessOptions: *o, out: l.journal.messages, space: mostStderr}
	if o.File == "" {
		return s, nil
	}
	s.space = mostAccess
	if old != nil && old.sink != nil {
		s.out, s.sink = old.out, old.sink
	} else {
		s.sink = &fileSink{faults: faults{log: l.journal, name: "access_log", consequence: "further lines are lost"}}
		s.out = newOutlet(s.sink)
	}
	f, err := openFile(Options{File: o.File, Max: o.Max, KeepFiles: o.KeepFiles},
		func(err error) { s.sink.faults.report(err, "") })
	if err != nil {
		var open *OpenError
		if errors.As(err, &open) {
			open.Log = "access_log"
		}
		return nil, err
	}
	if old != nil && s.sink == old.sink {
		s.sink.replace(f)
	} else {
		s.sink.file = f
	}
	return s, nil
}

// Writes reports whether the log is written at all.
func (l *AccessLog) Writes() bool { return l.settings.Load() != nil }

// Add adds a line. It never waits for a writer.
func (l *AccessLog) Add(a *Access) {
	s := l.settings.Load()
	if s == nil {
		return
	}
	space := spaces.Get().(*[]byte)
	b := (*space)[:0]
	if s.Format == "json" {
		b = a.appendJSON(b, &l.journal.stamps, s.Query)
	} else {
		b = a.appendCombined(b, s.Query)
	}
	if !s.out.addWithin(b, 1, s.space) {
		l.lost.Add(1)
	}
	*space = b
	spaces.Put(space)
}

// Lost returns how many lines were lost since the last call.
func (l *AccessLog) Lost() int64 { return l.lost.Swap(0) }

// Close writes all waiting lines, for at most two seconds. Later lines are lost. It returns how many
// lines were lost since the last call of Lost.
func (l *AccessLog) Close() (lost int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.settings.Swap(nil); s != nil && s.sink != nil {
		l.lost.Add(s.out.close(time.After(closeDelay)))
	}
	l.closed = true
	return l.Lost()
}

// withoutQuery returns a URL without its query and fragment.
func withoutQuery(url string, query bool) string {
	if query {
		return url
	}
	if i := strings.IndexAny(url, "?#"); i >= 0 {
		return url[:i]
	}
	return url
}

// target returns the target as it is logged: without a user and password in it, which are in its
// absolute form and in that of CONNECT.
func (a *Access) target(query bool) string {
	target := withoutQuery(a.Target, query)
	if strings.HasPrefix(target, "/") {
		return target
	}
	scheme, rest, absolute := strings.Cut(target, "://")
	if !absolute {
		scheme, rest = "", target
	}
	end := len(rest)
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		end = i
	}
	at := strings.LastIndexByte(rest[:end], '@') + 1
	if at == 0 {
		return target
	}
	if absolute {
		scheme += "://"
	}
	return scheme + rest[at:]
}

// Path returns the path of the target as it is logged: without query, scheme and host.
func (a *Access) Path() string {
	path := a.target(false)
	if _, rest, absolute := strings.Cut(path, "://"); absolute && path[0] != '/' {
		at := strings.IndexByte(rest, '/')
		if at < 0 {
			return "/"
		}
		path = rest[at:]
	}
	return path[:min(len(path), maxTarget)]
}

// appendCombined appends a line of the combined format, with more fields at its end.
func (a *Access) appendCombined(b []byte, query bool) []byte {
	if a.Client.IsValid() {
		b = a.Client.WithZone("").AppendTo(b)
	} else {
		b = append(b, '-')
	}
	b = a.Time.UTC().AppendFormat(append(b, " - - ["...), "02/Jan/2006:15:04:05 +0000")
	b = appendCombinedText(append(b, `] "`...), a.Method, 32)
	b = appendCombinedText(append(b, ' '), a.target(query), maxTarget)
	b = appendCombinedText(append(b, ' '), a.Protocol, 32)
	b = strconv.AppendInt(append(b, `" `...), int64(a.Status), 10)
	b = strconv.AppendInt(append(b, ' '), a.Bytes, 10)
	b = appendOrDash(append(b, ` "`...), withoutQuery(a.Referer, query), maxHeader)
	b = appendOrDash(append(b, `" "`...), a.UserAgent, maxHeader)
	b = appendCombinedText(append(b, `" host="`...), a.Host, maxText)
	b = appendSeconds(append(b, `" rt=`...), a.Took)
	b = append(b, " urt="...)
	if a.Upstream > 0 {
		b = appendSeconds(b, a.Upstream)
	} else {
		b = append(b, '-')
	}
	b = append(append(b, " verdict="...), a.Verdict...)
	if a.DryRun {
		b = append(b, " dry_run=true"...)
	}
	b = appendOrDash(append(b, ` rule="`...), a.Rule, maxText)
	b = appendSeconds(append(b, `" wait=`...), a.Waited)
	if a.CPU > 0 {
		b = appendSeconds(append(b, " cpu_time="...), a.CPU)
	}
	if a.Cost >= 0 {
		b = strconv.AppendInt(append(b, " cost="...), a.Cost, 10)
	}
	if a.Through.IsValid() {
		b = appendCombinedText(append(b, " through="...), peerName(a.Through), maxText)
	}
	b = appendOrDash(append(b, " id="...), a.ID, maxText)
	return append(b, '\n')
}

func peerName(peer netip.Addr) string {
	if peer.IsUnspecified() {
		return "unix"
	}
	return peer.WithZone("").String()
}

func appendOrDash(b []byte, s string, most int) []byte {
	if s == "" {
		return append(b, '-')
	}
	return appendCombinedText(b, s, most)
}

// appendCombinedText appends at most that many bytes of a text. All but plain ASCII is escaped as
// nginx and Apache do it: \xHH.
func appendCombinedText(b []byte, s string, most int) []byte {
	const hex = "0123456789ABCDEF"
	for i := range min(len(s), most) {
		if c := s[i]; plainByte[c] {
			b = append(b, c)
		} else {
			b = append(b, '\\', 'x', hex[c>>4], hex[c&15])
		}
	}
	return b
}

// appendSeconds appends a duration as seconds with six decimals.
func appendSeconds(b []byte, d time.Duration) []byte {
	us := max(d, 0).Round(time.Microsecond).Microseconds()
	b = strconv.AppendInt(b, us/1e6, 10)
	at := len(b)
	b = strconv.AppendInt(b, 1e6+us%1e6, 10)
	b[at] = '.'
	return b
}

// appendJSON appends a line of JSON. The names are as in the journal where they mean the same.
func (a *Access) appendJSON(b []byte, st *stamps, query bool) []byte {
	var l layout
	text := func(name, s string, most int) {
		if b = l.name(b, name); len(s) > most {
			s = s[:wholeTo(s, most)]
		}
		b = appendWhole(b, s)
	}
	amount := func(name string, d time.Duration) { b = appendSeconds(l.name(b, name), d) }
	b = l.begin(b, st, a.Time)
	b = l.addr(b, "client", a.Client)
	b = l.through(b, a.Through)
	text("method", a.Method, maxText)
	text("host", a.Host, maxText)
	text("target", a.target(query), maxTarget)
	text("protocol", a.Protocol, maxText)
	b = l.int(b, "status", int64(a.Status))
	b = l.int(b, "bytes", a.Bytes)
	text("referer", withoutQuery(a.Referer, query), maxHeader)
	text("user_agent", a.UserAgent, maxHeader)
	amount("request_time", a.Took)
	if a.Upstream > 0 {
		amount("upstream_response_time", a.Upstream)
	}
	text("verdict", a.Verdict, maxText)
	b = l.bool(b, "dry_run", a.DryRun)
	text("rule", a.Rule, maxText)
	amount("wait", a.Waited)
	if a.CPU > 0 {
		amount("cpu_time", a.CPU)
	}
	if a.Cost >= 0 {
		b = l.int(b, "cost", a.Cost)
	}
	text("id", a.ID, maxText)
	return l.end(b)
}
