package fairshare

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// A Request holds the facts that a rule may test. They come from live traffic or
// from an access log. Texts are as the client sent them. A guard does not keep a
// Request after the call.
type Request struct {
	Time  time.Time  // arrival; the log's own time during a replay; zero means now
	Addr  netip.Addr // of the client, behind trusted proxies; unmapped, no zone; invalid when unknown
	Proxy bool       // Addr is a trusted proxy's own: it is never banned
	// Via is the peer that named Addr, if the policy does not name this peer as a
	// trusted proxy. Addr is then provisional. A Unix socket is [ThroughSocket].
	// Otherwise Via is invalid.
	Via       netip.Addr
	Method    string // "" when the request line was not HTTP
	Host      string // as sent; rules ignore the port and the final dot
	UserAgent string // "" when absent
	Header    Header // nil when none is known
	// Values are facts that the program knows about the request, by name: "user"
	// or "tenant". Only limits ByValue use them. nil when there are none.
	Values      map[string]string
	Form        Form     // the fields of the request's body
	Bot         Bot      // the bot that the client is recognized as; see SetBot
	Lookups     Lookups  // DNS facts about Addr; nil when nothing is known
	Owner       Owner    // the owner of Addr; if Addr is provisional, permissions and keys ignore it
	Visitor     Visitor  // the visitor that a signed cookie identifies; the zero Visitor without a valid cookie
	Browser     Browser  // signs that the client is a browser, or pretends to be one
	Robots      Robots   // what robots.txt says about the request, if the client is a bot
	Fleet       string   // name of the fleet that the client belongs to; "" means none
	FleetNew    bool     // the client of a Fleet got no page yet: it may still show that it is a person's browser
	Attempt     Attempt  // whether the request tries to log in, or sends a form; see package logins
	Excess      bool     // the login or form is under attack, and unknown clients have used their budget
	Logins      Logins   // knows clients that have logged in before; nil when nothing is known
	Override    Override // decisions of operators about Addr
	ViaOverride Override // decisions of operators about Via

	// The parts of the request target, set by SetTarget.
	Path    string // decoded, dot segments resolved; "" when the request line was not HTTP
	Query   string // the text after the first "?", as sent
	OddPath bool   // servers may read a path other than Path; see Readings
	rawPath string // as sent, if OddPath

	early earlyMatch // what MatchEarly has found
}

// ThroughSocket is the Request.Via of a peer on a Unix socket, which has no
// address.
var ThroughSocket = netip.IPv6Unspecified()

// unnamed reports whether the peer Via did not name the client. Only the ceilings
// of the peer count such a client.
func (r *Request) unnamed() bool { return r.Via.IsValid() && (r.Addr == r.Via || !r.Addr.IsValid()) }

// override returns the decision of operators that holds for the request. For a
// provisional client, a ban of either address holds, but an allow only if both
// addresses have one.
func (r *Request) override() *Override {
	if r.Via.IsValid() && (r.Override.Action == Undecided ||
		r.Override.Action == Allow && r.ViaOverride.Action != Allow) {
		if r.ViaOverride.Action == Allow {
			return &noOverride
		}
		return &r.ViaOverride
	}
	return &r.Override
}

var noOverride Override

// hasLabel reports whether fits holds for a label of the client. A favorable
// condition needs one on both addresses of a provisional client.
func (r *Request) hasLabel(favorable bool, fits func(label string) bool) bool {
	client := slices.ContainsFunc(r.Override.Labels, fits)
	if !r.Via.IsValid() {
		return client
	}
	peer := slices.ContainsFunc(r.ViaOverride.Labels, fits)
	if favorable {
		return client && peer
	}
	return client || peer
}

// A Header holds the header fields of a request. http.Header is one.
type Header interface {
	// Values returns all values of a field, in order; nil when it is absent. name
	// is in canonical form, such as "Sec-Fetch-Site".
	Values(name string) []string
}

// An Outcome holds the facts about a request that are known only after the
// answer.
type Outcome struct {
	Time   time.Time // when the answer ended; zero means now, see [Guard.Settle]
	Status int       // 0 when none was sent

	// Bytes is the size of the response body, CPU the CPU time of the upstream, and
	// Took the time that the upstream worked on the request or waited for others.
	// With SettleSoFar they are sums until now, otherwise final sums. Below 0 means
	// not known yet. If the CPU time will never be known, set CPU to Took: 0 would
	// mean that the request was free.
	Bytes int64
	CPU   time.Duration
	Took  time.Duration

	Cost int64 // units that the upstream reported; below 0 it reported none, which counts as 1

	// Failed says that the site turned down an attempt to log in; see package logins.
	Failed bool

	// Whole says that the upstream has received the whole request: the client can
	// no longer delay the answer. False is always safe.
	Whole bool

	// Part says what is settled now. The rest is left for a later Settle.
	Part Part
}

// A Part says which part of a verdict a [Guard.Settle] settles.
type Part uint8

const (
	// SettleRest settles all that is left. The zero Part.
	SettleRest Part = iota
	// SettleCosts settles everything except the slots of concurrent limits.
	SettleCosts
	// SettleSlots gives back the slots of concurrent limits only: the upstream is
	// done, but the client still receives the answer.
	SettleSlots
	// SettleSoFar charges the known part of Bytes, CPU and Took. Everything stays
	// open. It may be used many times.
	SettleSoFar
	// SettleAllButCPU settles everything except the CPU time, which is known later.
	SettleAllButCPU
	// SettleHeader settles errors, since the status is known. If the cost is known,
	// the request no longer holds more than that.
	SettleHeader
	// SettleNotForwarded gives everything back: the request did not reach the
	// upstream. Nothing is left for a later Settle.
	SettleNotForwarded
)

// values returns the values of the header called name, in canonical form.
func (r *Request) values(name string) []string {
	if r.Header != nil {
		if values := r.Header.Values(name); len(values) > 0 || name != "Host" {
			return values
		}
	}
	if name == "Host" && r.Host != "" { // net/http keeps it apart
		return []string{r.Host}
	}
	return nil
}

// SetTarget sets Path, Query and OddPath from a request target.
//
// It removes a scheme and authority; the text after the first "?" is the query.
// In the path it decodes percent escapes once, but not invalid ones and not "+".
// Then it replaces runs of "/" by one, and resolves dot segments (RFC 3986
// §5.2.4). It leaves "*" and "host:port" as they are.
func (r *Request) SetTarget(target string) {
	authority := target[:authorityEnd(target)]
	path, _, _ := strings.Cut(target[len(authority):], "?")
	_, r.Query, _ = strings.Cut(target, "?")
	r.Path, r.OddPath, r.rawPath, r.early.policy = path, false, "", nil
	oddHost := authority != "" && (path == "" || strings.ContainsAny(authority, `?#\`))
	if !oddHost && (plainPath(path) || path == "*" || path == target && hostPort(path)) {
		return
	}
	if r.setPath(path); oddHost {
		r.OddPath = true
		r.rawPath, _, _ = strings.Cut(target, "?")
	}
}

// SetParts sets Path and Query to what SetTarget has set them to for the same target, which did not set OddPath.
func (r *Request) SetParts(path, query string) {
	r.Path, r.Query, r.OddPath, r.rawPath, r.early.policy = path, query, false, "", nil
}

// setPath decodes and resolves a path that is not plain.
func (r *Request) setPath(raw string) {
	r.Path, _ = removeDotSegments(mergeSlashes(decodeEscapes(raw, anyByte)))
	if r.OddPath = oddPath(foldEscapes(raw)); r.OddPath {
		r.rawPath = raw
	}
}

// authorityEnd returns the length of the scheme and authority that target
// begins with: ^[A-Za-z][A-Za-z0-9+.-]*://[^/]*
func authorityEnd(target string) int {
	if target == "" || target[0] == '/' {
		return 0
	}
	for i := 0; i < len(target); i++ {
		switch c := target[i]; {
		case c|0x20 >= 'a' && c|0x20 <= 'z':
		case i > 0 && (c >= '0' && c <= '9' || c == '+' || c == '.' || c == '-'):
		case i > 0 && c == ':' && strings.HasPrefix(target[i:], "://"):
			i += len("://")
			if slash := strings.IndexByte(target[i:], '/'); slash >= 0 {
				return i + slash
			}
			return len(target)
		default:
			return 0
		}
	}
	return 0
}

// hostPort reports whether s is the authority form of a request target (RFC
// 9112 §3.2.3): a host, a colon, and digits.
func hostPort(s string) bool {
	host, port := s, ""
	if i := strings.LastIndexByte(s, ':'); i > 0 {
		host, port = s[:i], s[i+1:]
	}
	return port != "" && strings.Trim(port, "0123456789") == "" && !strings.ContainsAny(host, "/\\;%")
}

// plainByte holds the bytes that need no decoding or resolving and do not make a
// path odd.
var plainByte = func() (plain [256]bool) {
	for c := range plain {
		plain[c] = c > ' ' && c != 0x7F && !strings.ContainsRune(`%;\#.$`, rune(c)) &&
			c != 0xC0 && c != 0xC1 && c != 0xE0 && c != 0xF0 // overlong UTF-8 may begin with them
	}
	return plain
}()

// plainPath reports whether a path has nothing to decode or resolve, and is not
// odd.
func plainPath(path string) bool {
	if path == "" {
		return true
	}
	if path[0] != '/' {
		return false
	}
	for i := 0; i < len(path); i++ {
		c := path[i]
		if plainByte[c] && (c != '/' || i == 0 || path[i-1] != '/') {
			continue
		}
		// A dot is plain between other characters, as in "/a.css".
		if c == '.' && path[i-1] != '/' && path[i-1] != '.' && i+1 < len(path) && path[i+1] != '/' &&
			scriptEnd(path, i) == 0 {
			continue
		}
		return false
	}
	return true
}

func ishex(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f'
}

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}

// removeDotSegments implements RFC 3986 §5.2.4. found reports whether there was a
// dot segment.
func removeDotSegments(in string) (path string, found bool) {
	if in != "." && in != ".." && !strings.HasPrefix(in, "./") && !strings.HasPrefix(in, "../") &&
		!strings.Contains(in, "/.") {
		return in, false
	}
	out := make([]byte, 0, len(in))
	for in != "" {
		switch {
		case strings.HasPrefix(in, "../"): // A
			in, found = in[3:], true
		case strings.HasPrefix(in, "./"):
			in, found = in[2:], true
		case strings.HasPrefix(in, "/./"): // B
			in, found = in[2:], true
		case in == "/.":
			in, found = "/", true
		case strings.HasPrefix(in, "/../"), in == "/..": // C
			if in = in[3:]; in == "" {
				in = "/"
			}
			found = true
			out = out[:max(bytes.LastIndexByte(out, '/'), 0)]
		case in == ".", in == "..": // D
			in, found = "", true
		default: // E
			end := strings.IndexByte(in[1:], '/') + 1
			if end == 0 {
				end = len(in)
			}
			out = append(out, in[:end]...)
			in = in[end:]
		}
	}
	return string(out), found
}

// plainHost returns host without port and final dot.
func plainHost(host string) string {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && strings.IndexByte(host[i:], ']') < 0 {
		if strings.IndexByte(host, ':') == i || host[0] == '[' { // "host:80", "[::1]:80", but not "::1"
			host = host[:i]
		}
	}
	return strings.TrimSuffix(host, ".")
}
