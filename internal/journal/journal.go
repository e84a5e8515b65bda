// Package journal records refusals and blocks, one JSON line each, among other
// lines. Start with [New].
package journal

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"
)

// An Entry is one refusal or block. Method, Host, Path and UserAgent are the
// client's own texts; they are cut and escaped.
type Entry struct {
	Time       time.Time
	Client     netip.Addr
	Method     string
	Host       string
	Path       string // without the query
	UserAgent  string
	Rule       string
	Action     string
	DryRun     bool
	Status     int
	RetryAfter int64 // seconds; 0 means none
	Used       int64 // of Allowed, when a limit spoke
	Allowed    int64 // 0 means that no limit spoke
	Ban        Ban
	ID         string
}

// A Ban says what a ban had to do with a refusal; "" means nothing.
type Ban string

const (
	BanStarted Ban = "started"  // the refusal began it
	BanInForce Ban = "in force" // it was the reason
)

// A Journal writes lines from a goroutine of its own, so that nobody waits for
// whoever reads them. It is safe for concurrent use.
type Journal struct {
	w io.Writer

	taken atomic.Int64 // entries of the newest second: unix seconds << secondShift | number
	over  atomic.Int64 // entries beyond maxRate

	stamps stamps

	mu     sync.Mutex
	lines  []byte // not yet written, at most maxPending
	lost   int64  // lines for which there was no room, or that could not be written
	closed bool

	torn bool // the last write ended within a line; the writer's own

	some chan struct{} // there are lines, or losses, where there were none
	many chan struct{} // there are enough lines not to wait for more
	quit chan struct{} // no more will come
	done chan struct{} // the writer ended
}

// Bounds of a journal.
const (
	maxRate     = 1000                  // entries a second; more are counted, not written
	secondShift = 20                    // bits of Journal.taken for the number
	maxPending  = 1 << 20               // bytes; what comes while so much waits is lost
	enough      = 32 << 10              // bytes that are written at once; half of what a pipe holds
	delay       = 20 * time.Millisecond // how long fewer bytes wait for more
	lossDelay   = time.Second           // between two words about what was lost
	closeDelay  = 2 * time.Second       // how long Close waits for a stalled writer
	maxText     = 512                   // bytes of one text of a client
)

// New returns a journal that writes to w. Close it to have all written.
func New(w io.Writer) *Journal {
	j := &Journal{
		w:    w,
		some: make(chan struct{}, 1), many: make(chan struct{}, 1),
		quit: make(chan struct{}), done: make(chan struct{}),
	}
	go j.write()
	return j
}

// spaces holds room for lines that are being made.
var spaces = sync.Pool{New: func() any { b := make([]byte, 0, 1024); return &b }}

// Add records an entry. It never waits for the writer: entries beyond 1000 a
// second, and those that come faster than they can be written, are lost. How
// many were is recorded once a second.
func (j *Journal) Add(e *Entry) {
	if !j.take(e.Time.Unix()) {
		if j.over.Add(1) == 1 {
			signal(j.some)
		}
		return
	}
	space := spaces.Get().(*[]byte)
	line := e.append((*space)[:0], &j.stamps)
	j.add(line)
	*space = line
	spaces.Put(space)
}

// take tells whether another entry may be written in a second. Entries of
// earlier seconds count in the newest one.
func (j *Journal) take(second int64) bool {
	for {
		old := j.taken.Load()
		next := old + 1
		if old>>secondShift < second {
			next = second<<secondShift | 1
		} else if old&(1<<secondShift-1) >= maxRate {
			return false
		}
		if j.taken.CompareAndSwap(old, next) {
			return true
		}
	}
}

// Write records whole lines that are no entries, without a bound on their
// number. It never waits and never fails; lines may be lost as entries are.
func (j *Journal) Write(lines []byte) (int, error) {
	j.add(lines)
	return len(lines), nil
}

func (j *Journal) add(lines []byte) {
	j.mu.Lock()
	before, after := len(j.lines), len(j.lines)+len(lines)
	first := before == 0
	if j.closed || after > maxPending {
		first = first && j.lost == 0
		j.lost += countLines(lines)
		after = before
	} else {
		j.lines = append(j.lines, lines...)
	}
	j.mu.Unlock()
	if first {
		signal(j.some)
	}
	if before < enough && after >= enough {
		signal(j.many)
	}
}

func countLines(b []byte) int64 { return int64(bytes.Count(b, []byte("\n"))) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// write writes what was added until the journal is closed.
func (j *Journal) write() {
	defer close(j.done)
	var lines []byte
	wait := time.NewTimer(delay)
	var losses <-chan time.Time // when to tell of them
	for {
		select {
		case <-j.some:
			wait.Reset(delay)
			select {
			case <-wait.C:
			case <-j.many:
			case <-j.quit:
			}
			lines = j.flush(lines)
			if losses == nil && j.hasLost() {
				losses = time.After(lossDelay)
			}
		case <-losses:
			losses = nil
			j.tellLosses()
		case <-j.quit:
			j.flush(lines)
			j.tellLosses()
			return
		}
	}
}

// flush writes what waits. It returns the room that it was in, for the next
// time; lines is that of the last time.
func (j *Journal) flush(lines []byte) []byte {
	j.mu.Lock()
	lines, j.lines = j.lines, lines[:0]
	j.mu.Unlock()
	if lost := j.put(lines); lost > 0 {
		j.lose(lost)
	}
	return lines
}

// put writes lines and returns how many of them were not written whole.
func (j *Journal) put(lines []byte) (lost int64) {
	if len(lines) == 0 {
		return 0
	}
	if j.torn {
		if _, err := j.w.Write([]byte("\n")); err != nil {
			return countLines(lines)
		}
		j.torn = false
	}
	n, err := j.w.Write(lines)
	if err == nil {
		return 0
	}
	if n = min(max(n, 0), len(lines)); n > 0 {
		j.torn = lines[n-1] != '\n'
	}
	return countLines(lines[n:])
}

func (j *Journal) lose(n int64) {
	j.mu.Lock()
	j.lost += n
	j.mu.Unlock()
}

func (j *Journal) hasLost() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.lost > 0 || j.over.Load() > 0
}

// tellLosses records how many lines were lost and why. What cannot be told is
// told the next time.
func (j *Journal) tellLosses() {
	if n := j.over.Swap(0); n > 0 && j.put(lossLine(n, "more than 1000 lines a second")) > 0 {
		j.over.Add(n)
	}
	j.mu.Lock()
	n := j.lost
	j.lost = 0
	j.mu.Unlock()
	if n > 0 && j.put(lossLine(n, "could not be written in time")) > 0 {
		j.lose(n)
	}
}

func lossLine(n int64, why string) []byte {
	return fmt.Appendf(nil, `{"time":%q,"lost":%d,"why":%q}`+"\n", time.Now().UTC().Format(timeFormat), n, why)
}

// Close waits until all that was added is written, but not longer than two
// seconds: a reader that takes nothing holds nobody up. Lines added later are
// lost.
func (j *Journal) Close() {
	j.mu.Lock()
	closed := j.closed
	j.closed = true
	j.mu.Unlock()
	if !closed {
		close(j.quit)
	}
	late := time.NewTimer(closeDelay)
	defer late.Stop()
	select {
	case <-j.done:
	case <-late.C:
	}
}

const timeFormat = "2006-01-02T15:04:05.000Z"

// stamps holds the text of the last second, which many entries share.
type stamps struct{ last atomic.Pointer[second] }

type second struct {
	unix int64
	text string // "2006-01-02T15:04:05."
}

// append appends t in timeFormat.
func (st *stamps) append(b []byte, t time.Time) []byte {
	s := st.last.Load()
	if unix := t.Unix(); s == nil || s.unix != unix {
		s = &second{unix, t.UTC().Format("2006-01-02T15:04:05.")}
		st.last.Store(s)
	}
	ms := t.Nanosecond() / 1e6
	b = append(b, s.text...)
	return append(b, byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10), 'Z')
}

func (e *Entry) append(b []byte, st *stamps) []byte {
	b = append(b, `{"time":"`...)
	b = st.append(b, e.Time)
	b = append(b, `","client":"`...)
	if e.Client.IsValid() {
		b = e.Client.AppendTo(b)
	}
	b = appendText(append(b, `","method":`...), e.Method)
	b = appendText(append(b, `,"host":`...), e.Host)
	b = appendText(append(b, `,"path":`...), e.Path)
	b = appendText(append(b, `,"user_agent":`...), e.UserAgent)
	b = appendText(append(b, `,"rule":`...), e.Rule)
	b = appendText(append(b, `,"action":`...), e.Action)
	b = strconv.AppendBool(append(b, `,"dry_run":`...), e.DryRun)
	b = strconv.AppendInt(append(b, `,"status":`...), int64(e.Status), 10)
	if e.RetryAfter > 0 {
		b = strconv.AppendInt(append(b, `,"retry_after":`...), e.RetryAfter, 10)
	}
	if e.Allowed > 0 {
		b = strconv.AppendInt(append(b, `,"used":`...), e.Used, 10)
		b = strconv.AppendInt(append(b, `,"allowed":`...), e.Allowed, 10)
	}
	if e.Ban != "" {
		b = appendText(append(b, `,"ban":`...), string(e.Ban))
	}
	b = appendText(append(b, `,"id":`...), e.ID)
	return append(b, "}\n"...)
}

// plainByte holds the bytes that stand for themselves.
var plainByte = func() (plain [256]bool) {
	for c := 0x20; c < 0x7F; c++ {
		plain[c] = c != '"' && c != '\\'
	}
	return plain
}()

// appendText appends s as a JSON string that a terminal, too, shows as what it
// is: control, format and direction characters are escaped, bytes that are no
// UTF-8 become U+FFFD, and what is over 512 bytes is cut, with "…" in its
// place.
func appendText(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	cut := false
	if len(s) > maxText {
		end := maxText
		for end > maxText-utf8.UTFMax && !utf8.RuneStart(s[end]) {
			end--
		}
		s, cut = s[:end], true
	}
	b = append(b, '"')
	for i := 0; i < len(s); {
		plain := i
		for i < len(s) && plainByte[s[i]] {
			i++
		}
		if b = append(b, s[plain:i]...); i == len(s) {
			break
		}
		if c := s[i]; c < utf8.RuneSelf {
			i++
			if c == '"' || c == '\\' {
				b = append(b, '\\', c)
			} else {
				b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
			}
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		i += n
		switch {
		case unicode.IsGraphic(r) && r != 0xA0 && !unicode.Is(unicode.Zs, r):
			b = utf8.AppendRune(b, r)
		case r > 0xFFFF: // a surrogate pair
			r -= 0x10000
			for _, u := range [...]rune{0xD800 + r>>10, 0xDC00 + r&0x3FF} {
				b = append(b, '\\', 'u', hex[u>>12&15], hex[u>>8&15], hex[u>>4&15], hex[u&15])
			}
		default:
			b = append(b, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
		}
	}
	if cut {
		b = append(b, "…"...)
	}
	return append(b, '"')
}
