package fairshare

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// A Request holds the facts a rule may look at. It is filled from live
// traffic or from an access log, and so mentions neither. Texts are as the
// client sent them; none is kept after the call it is handed to.
type Request struct {
	Time  time.Time  // arrival; the log's own time during a replay; zero means now
	Addr  netip.Addr // of the client, once trusted proxies are peeled off: unmapped, no zone; invalid when unknown
	Proxy bool       // Addr is a trusted proxy's own: it is never banned
	// valid: Addr is provisional, named by this peer, which no policy names as a proxy; see
	// ThroughSocket
	Via       netip.Addr
	Method    string // "" when the request line was not HTTP
	Host      string // as sent; port and final dot are passed over by the rules
	UserAgent string // "" when absent
	Header    Header // nil when none is known
	// Values are facts that the program itself knows of the request, by name:
	// "user" or "tenant". Only limits ByValue look at them. nil when there are none.
	Values      map[string]string
	Bot         Bot      // what it is taken for; see SetBot
	Lookups     Lookups  // what others know of Addr; nil when nothing is known
	Owner       Owner    // who owns Addr; of a provisional address too, which counts in no permission and no key
	Override    Override // what operators have said of Addr
	ViaOverride Override // what operators have said of Via

	// The request target, taken apart by SetTarget.
	Path    string // decoded, dot segments resolved; "" when the request line was not HTTP
	Query   string // all behind the first "?", as sent
	OddPath bool   // servers may read another path than Path; see Readings
	rawPath string // as sent, if OddPath
}

// ThroughSocket is the Request.Via of a peer on a Unix socket, which has no
// address.
var ThroughSocket = netip.IPv6Unspecified()

// Unnamed reports whether the client is one of those behind Via that the peer
// does not tell apart: only the ceilings of the peer count it.
func (r *Request) unnamed() bool { return r.Via.IsValid() && (r.Addr == r.Via || !r.Addr.IsValid()) }

// override returns what operators have decided, as it holds for the request: of a
// provisional client a ban of either address, but an allow only of both.
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

// A Header gives all values of one header, in order; nil when there is none.
// http.Header is one. Values is asked with canonical names ("Sec-Fetch-Site").
type Header interface {
	Values(name string) []string
}

// An Outcome holds the facts about a request that are known only after the
// answer.
type Outcome struct {
	Time   time.Time // when the answer ended; zero means now, see [Guard.Settle]
	Status int       // 0 when none was sent
	Bytes  int64     // of the response body, so far or in all; so are those below. Below 0: not known yet

	// of the upstream; what is not known is to be told as Took, never as nothing. Below 0: not
	// known yet
	CPU  time.Duration
	Took time.Duration // that the upstream was at work, or waited for others
	Cost int64         // units that the upstream told; below 0 it told none, which counts as 1

	// Whole says that the upstream has the whole request, so that its client can
	// delay the answer no longer. False is safe.
	Whole bool

	// Part leaves some of what there is to settle for a later Settle.
	Part Part
}

// A Part of what is settled.
type Part uint8

const (
	SettleRest         Part = iota // all that is left
	SettleCosts                    // all but the slots of concurrent limits
	SettleSlots                    // only these: the upstream is done, the client not yet
	SettleSoFar                    // what is known of Bytes, CPU and Took is charged, everything stays open; may come many times
	SettleAllButCPU                // CPU is known later
	SettleHeader                   // the status is known: errors are settled, and no more than a cost that is known is held
	SettleNotForwarded             // the request did not reach the upstream: all is given back, nothing is left
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

// SetTarget takes a request target apart into Path, Query and OddPath.
//
// A scheme and authority go, all from "?" on is the query, percent escapes are
// decoded once (invalid ones stay, "+" stays), then runs of "/" become one and
// dot segments are resolved (RFC 3986 §5.2.4). "*" and "host:port" stand as
// they are.
func (r *Request) SetTarget(target string) {
	authority := target[:authorityEnd(target)]
	path, _, _ := strings.Cut(target[len(authority):], "?")
	_, r.Query, _ = strings.Cut(target, "?")
	r.Path, r.OddPath, r.rawPath = path, false, ""
	oddHost := authority != "" && (path == "" || strings.ContainsAny(authority, `?#\`))
	if !oddHost && (plainPath(path) || path == "*" || path == target && hostPort(path)) {
		return
	}
	if r.setPath(path); oddHost {
		r.OddPath = true
		r.rawPath, _, _ = strings.Cut(target, "?")
	}
}

// setPath does what plainPath says is to be done.
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

// A byte of a path is plain unless it may call for decoding or resolving, or
// make the path odd.
var plainByte = func() (plain [256]bool) {
	for c := range plain {
		plain[c] = c > ' ' && c != 0x7F && !strings.ContainsRune(`%;\#.$`, rune(c)) &&
			c != 0xC0 && c != 0xC1 && c != 0xE0 && c != 0xF0 // overlong UTF-8 may begin with them
	}
	return plain
}()

// plainPath reports whether a path is sure to stand for itself: it has nothing
// to decode or resolve and is not odd.
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

// removeDotSegments is RFC 3986 §5.2.4; found tells whether there was one.
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
