package journal

import (
	"bytes"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"
)

// An Entry is one refusal or block, or the first of several of a client by a rule. Method, Host, Path,
// Query and UserAgent come from the client; they are truncated and escaped.
type Entry struct {
	Time       time.Time
	N          int64      // refusals; 0 means 1
	Latest     time.Time  // of the latest, if N is over 1
	LatestPath string     // likewise
	Client     netip.Addr // unmapped; invalid if there is none
	Through    netip.Addr // the peer that named Client; valid if Client is provisional; :: is the Unix socket
	Method     string
	Host       string
	Site       string // of several sites behind the same server; "" means one, or none of them
	Path       string // without the query
	Query      string // written only if Options.Query is set
	UserAgent  string
	Bot        string // the bot that the client was recognized as; "" means none
	BotState   string // known, pending, verified or forged; ignored without Bot
	ASN        uint32 // number of the owner of Client; 0 means that no owner is known
	Owner      string // its name; ignored without ASN
	Fleet      string // that Client belongs to; "" means none
	Robots     string // the line of robots.txt that decided; "" means none
	Cookies    int    // number of cookies sent
	Rule       string
	Action     string // refuse or block
	DryRun     bool
	Watch      bool // the request was answered: it is read from the log of another server
	Status     int
	RetryAfter int64  // seconds; 0 means none
	Room       bool   // the client got the page of the waiting room
	Resource   string // of the limit that refused, as a policy spells it
	Used       int64  // part of Allowed; in the resource's unit, µs for cpu and time
	Allowed    int64  // 0 means that no limit refused
	InProgress int64  // part of Allowed that is reserved for requests in progress, in addition to Used; omitted if 0
	Ceiling    bool   // Used and Allowed apply to all provisional clients of the peer together
	Ban        Ban
	ID         string // the same for all refusals of a client by a rule
}

// A Ban is the part that a ban had in a refusal; "" means none.
type Ban string

const (
	BanStarted Ban = "started"  // the refusal started a ban
	BanInForce Ban = "in force" // a ban was the reason; Rule tells whether a rule or an operator set it
)

// A layout formats lines as JSON or as text for people.
type layout struct{ text bool }

func (l layout) begin(b []byte, st *stamps, t time.Time) []byte {
	if l.text {
		return st.append(b, t)
	}
	b = append(b, `{"time":"`...)
	return append(st.append(b, t), '"')
}

func (l layout) name(b []byte, name string) []byte {
	if l.text {
		b = append(append(b, ' '), name...)
		return append(b, '=')
	}
	b = append(append(b, ',', '"'), name...)
	return append(b, '"', ':')
}

func (l layout) string(b []byte, name, value string) []byte {
	b = l.name(b, name)
	if l.text && isBare(value) {
		return append(b, value...)
	}
	return appendText(b, value)
}

func (l layout) int(b []byte, name string, value int64) []byte {
	return strconv.AppendInt(l.name(b, name), value, 10)
}

// amount appends an amount of a resource: cpu and time in seconds.
func (l layout) amount(b []byte, name, resource string, n int64) []byte {
	if resource != "cpu" && resource != "time" {
		return l.int(b, name, n)
	}
	b = strconv.AppendInt(l.name(b, name), n/1e6, 10)
	if micros := n % 1e6; micros > 0 {
		var buf [8]byte
		digits := strconv.AppendInt(buf[:0], 1e6+micros, 10) // "1" before six digits
		b = append(append(b, '.'), bytes.TrimRight(digits[1:], "0")...)
	}
	return b
}

func (l layout) bool(b []byte, name string, value bool) []byte {
	return strconv.AppendBool(l.name(b, name), value)
}

func (l layout) addr(b []byte, name string, addr netip.Addr) []byte {
	b = append(l.name(b, name), '"')
	if l.text {
		b = b[:len(b)-1]
	}
	if addr.IsValid() {
		b = addr.WithZone("").AppendTo(b)
	} else if l.text {
		b = append(b, '"', '"')
	}
	if l.text {
		return b
	}
	return append(b, '"')
}

// through appends the peer that named a provisional client.
func (l layout) through(b []byte, peer netip.Addr) []byte {
	switch {
	case !peer.IsValid():
		return b
	case peer.IsUnspecified():
		return l.string(b, "through", "unix")
	}
	return l.addr(b, "through", peer)
}

// time appends a time that is not the line's own.
func (l layout) time(b []byte, name string, st *stamps, t time.Time) []byte {
	b = l.name(b, name)
	if l.text {
		return st.append(b, t)
	}
	return append(st.append(append(b, '"'), t), '"')
}

func (l layout) end(b []byte) []byte {
	if l.text {
		return append(b, '\n')
	}
	return append(b, '}', '\n')
}

// entry appends the line of an entry; load is the load average times 100, negative if
// unknown.
func (l layout) entry(b []byte, st *stamps, e *Entry, query bool, load int64) []byte {
	b = l.begin(b, st, e.Time)
	b = l.addr(b, "client", e.Client)
	b = l.through(b, e.Through)
	b = l.string(b, "method", e.Method)
	b = l.string(b, "host", e.Host)
	if e.Site != "" {
		b = l.string(b, "site", e.Site)
	}
	b = l.string(b, "path", e.Path)
	if query && e.Query != "" {
		b = l.string(b, "query", e.Query)
	}
	b = l.string(b, "user_agent", e.UserAgent)
	if e.Bot != "" {
		b = l.string(b, "bot", e.Bot)
		b = l.string(b, "bot_state", e.BotState)
	}
	if e.ASN != 0 {
		b = l.int(b, "asn", int64(e.ASN))
		b = l.string(b, "owner", e.Owner)
	}
	if e.Robots != "" {
		b = l.string(b, "robots", e.Robots)
	}
	if e.Fleet != "" {
		b = l.string(b, "fleet", e.Fleet)
	}
	b = l.int(b, "cookies", int64(e.Cookies))
	b = l.string(b, "rule", e.Rule)
	b = l.string(b, "action", e.Action)
	b = l.bool(b, "dry_run", e.DryRun)
	if e.Watch {
		b = l.bool(b, "watch", true)
	}
	b = l.int(b, "status", int64(e.Status))
	if e.RetryAfter > 0 {
		b = l.int(b, "retry_after", e.RetryAfter)
	}
	if e.Room {
		b = l.bool(b, "waiting_room", true)
	}
	if e.Allowed > 0 {
		if e.Resource != "" {
			b = l.string(b, "resource", e.Resource)
		}
		b = l.amount(b, "used", e.Resource, e.Used)
		b = l.amount(b, "allowed", e.Resource, e.Allowed)
		if e.InProgress > 0 {
			b = l.amount(b, "in_progress", e.Resource, e.InProgress)
		}
		if e.Ceiling {
			b = l.bool(b, "ceiling", true)
		}
	}
	if e.Ban != "" {
		b = l.string(b, "ban", string(e.Ban))
	}
	if load >= 0 {
		b = l.name(b, "load")
		b = strconv.AppendInt(b, load/100, 10)
		b = append(b, '.', byte('0'+load/10%10), byte('0'+load%10))
	}
	b = l.string(b, "id", e.ID)
	return l.end(b)
}

// stamps caches the text of the last second, since many lines share it.
type stamps struct{ last atomic.Pointer[second] }

type second struct {
	unix int64
	text string // "2006-01-02T15:04:05."
}

// append appends t in RFC 3339, UTC, with milliseconds.
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
