package browser

import (
	"encoding/binary"
	"hash/maphash"
	mathbits "math/bits"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"fairshare"
	"fairshare/internal/network"
	"fairshare/internal/offheap"
)

// A Watcher remembers what the requests of clients have shown. A client is a visitor with a valid
// cookie, else an address (an IPv4 address, an IPv6 /64), together with its user agent. The zero
// Watcher is ready to use. Its memory is at most 8 MiB, of which the system provides a page when a client is
// first noted there. It is safe for concurrent use.
//
// The table consists of sets of eight clients, two cache lines each. A client has two words:
//
//	34 bits  of the client's hash; 0 for a free cell
//	20 bits  when it got its last page, in ticks of 4 s (48 days, after which they begin again)
//	 6 bits  pages since its last asset, at most 63
//	 4 bits  Signs
//
//	20 bits  hash of its last page
//	20 bits  hash of the page before that
//	24 bits  hash of the name and value of a cookie that an answer set; 0 for none
//
// The second word is not read together with the first. So a client may in rare cases be compared
// with the pages or the cookie of another one, which then do not fit.
//
// The clients of one network (IPv4 /24, IPv6 /48) share setsOfNetwork sets, and so do the clients that
// one provisional peer names. A new client replaces one that got no page for a day, then one without
// signs that got none for a minute, then the newest without signs. A client with signs
// keeps its cell for a day. So a flood of new clients, which have no signs, does not remove the
// signs of others. An attacker that earns signs for 128 clients in a network fills the
// sets of that network and of those few that share them: there nobody else becomes likely for a day.
type Watcher struct {
	once   sync.Once
	secret [3]uint64
	seed   maphash.Seed
	table  []client
	claims []atomic.Uint64
}

type client struct{ state, memory atomic.Uint64 }

const (
	sets          = 1 << 16
	setSize       = 8
	setsOfNetwork = 16

	nameBits = 34
	tickBits = 20
	tickMask = 1<<tickBits - 1
	bareBits = 6
	signBits = 4
	pageBits = 20
	pageMask = 1<<pageBits - 1
	mostBare = 1<<bareBits - 1

	tick       = 4 * time.Second
	minute     = uint32(time.Minute / tick)
	day        = uint32(24 * time.Hour / tick)
	cachedUAs  = 1 << 10 // user agents whose claims are remembered
	claimBits  = 16
	longestRef = 512 // of the path of a referer with escapes
)

func pack(name uint64, at uint32, bare uint64, signs Signs) uint64 {
	return name<<(tickBits+bareBits+signBits) | uint64(at)<<(bareBits+signBits) | bare<<signBits | uint64(signs)
}

func unpack(w uint64) (at uint32, bare uint64, signs Signs) {
	return uint32(w >> (bareBits + signBits) & tickMask),
		w >> signBits & mostBare, Signs(w & (1<<signBits - 1))
}

// since returns the ticks from then to now. A time up to a day in the future counts as now: the answer to a
// request may come much later than the request.
func since(then, now uint32) uint32 {
	if d := (now - then) & tickMask; d <= tickMask-day {
		return d
	}
	return 0
}

// Look looks at a request on arrival. It changes nothing: see [Watcher.Answered].
func (w *Watcher) Look(req *fairshare.Request, conn Conn) Sighting {
	defer runtime.KeepAlive(w) // and with it the table
	w.once.Do(w.begin)
	agent := maphash.String(w.seed, req.UserAgent)
	s := Sighting{Kind: req.Kind(), path: fairshare.KindOfPath(req.Path), get: req.Method == "GET",
		at: uint32(req.Time.Unix()/int64(tick/time.Second)) & tickMask}
	claim := Claim{}
	if req.Bot.State == fairshare.NoBot {
		claim = w.claim(agent, req.UserAgent)
	}
	var bare uint64
	if !w.find(&s, req, agent) {
		// it may be any of several clients
	} else {
		if s.Kind != fairshare.KindAsset {
			s.page = w.hashTarget(req.Path, req.Query)
		}
		if c, state := w.client(&s); c != nil {
			var at uint32
			at, bare, s.Signs = unpack(state)
			if since(at, s.at) > day {
				s.Signs = 0
			}
			if s.Signs&Cookie == 0 {
				s.cookie = req.Visitor.ID != 0 || w.returned(req.Header, c.memory.Load()>>(2*pageBits))
			}
			if s.Signs&Referer == 0 || since(at, s.at) > minute { // otherwise it shows nothing new
				s.referer = w.hashReferer(first(req.Header, "Referer"), req.Host)
			}
		}
	}
	switch {
	case claim.Family == NoFamily:
	case contradiction(req, claim, conn, s.Kind) != "":
		s.Browser = fairshare.BrowserContradicted
	case s.Signs.likely(bare):
		s.Browser = fairshare.BrowserLikely
	default:
		s.Browser = fairshare.BrowserClaimed
	}
	return s
}

// begin makes the secrets and the table.
func (w *Watcher) begin() {
	for i := range w.secret {
		w.secret[i] = rand.Uint64()
	}
	w.seed = maphash.MakeSeed()
	w.table = offheap.Slice[client](w, sets*setSize)
	w.claims = make([]atomic.Uint64, cachedUAs)
}

// claim returns what a user agent with a hash claims to be. Recent ones are remembered.
func (w *Watcher) claim(hash uint64, userAgent string) Claim {
	cell := &w.claims[hash%cachedUAs]
	if word := cell.Load(); word>>claimBits == hash>>claimBits && word != 0 {
		return unpackClaim(uint16(word))
	}
	c := ClaimOf(userAgent)
	cell.Store(hash>>claimBits<<claimBits | uint64(c.pack()))
	return c
}

const (
	majorBits = 10
	appBit    = 1 << majorBits
	appleBit  = 1 << (majorBits + 1)
)

// pack returns the claim in 16 bits.
func (c Claim) pack() uint16 {
	p := uint16(c.Family)<<(majorBits+2) | uint16(c.Major)
	if c.App {
		p |= appBit
	}
	if c.Apple {
		p |= appleBit
	}
	return p
}

func unpackClaim(p uint16) Claim {
	return Claim{Family: Family(p >> (majorBits + 2)), Major: int(p & (1<<majorBits - 1)), App: p&appBit != 0,
		Apple: p&appleBit != 0}
}

// find fills in which client sent the request. It reports whether that is one client.
func (w *Watcher) find(s *Sighting, req *fairshare.Request, agent uint64) bool {
	var own, of uint64
	switch {
	case req.Visitor.ID != 0:
		own, of = fold(req.Visitor.ID^w.secret[0], w.secret[1]), uint64(req.Visitor.Network)
		of = fold(of^w.secret[1], w.secret[2])
	case !req.Addr.IsValid() || req.Proxy || req.Addr == req.Via:
		return false
	default:
		bits, networkBits := network.ClientBits6, network.Bits6
		if req.Addr.Is4() {
			bits, networkBits = 96+network.ClientBits4, 96+network.Bits4
		}
		own, of = w.hashAddr(req.Addr, bits), w.hashAddr(req.Addr, networkBits)
		if req.Via.IsValid() { // a peer can name any network
			of = w.hashAddr(req.Via, 128)
			own ^= of
		}
	}
	own = fold(own^agent, w.secret[2])
	s.set = 1 + uint32(of+own%setsOfNetwork)%sets
	s.name = max(own>>(64-nameBits), 1)
	return true
}

// hashAddr hashes the first bits of an address.
func (w *Watcher) hashAddr(addr netip.Addr, bits int) uint64 {
	a := addr.As16()
	high := binary.BigEndian.Uint64(a[:8]) & network.Mask(bits)
	low := binary.BigEndian.Uint64(a[8:]) & network.Mask(bits-64)
	return fold(fold(high^w.secret[0], low^w.secret[1])^uint64(bits), w.secret[2])
}

// fold multiplies two numbers and adds the halves of the product.
func fold(a, b uint64) uint64 {
	high, low := mathbits.Mul64(a, b)
	return high ^ low
}

// hashTarget returns the hash of a path and query, never 0.
func (w *Watcher) hashTarget(path, query string) uint32 {
	hash := maphash.String(w.seed, path)
	if query != "" {
		hash = fold(hash, maphash.String(w.seed, query)|1)
	}
	return max(uint32(hash>>(64-pageBits)), 1)
}

// hashReferer returns the hash of the target that a referer names. It is 0 if the host is not that of
// the request. If that is unknown, as in many logs, any host will do, but not the target "/", which most
// sites have.
func (w *Watcher) hashReferer(referer, host string) uint32 {
	_, rest, found := strings.Cut(referer, "://")
	if host == "" {
		slash := max(strings.IndexByte(rest, '/'), 0)
		if host, found = rest[:slash], found && rest[slash:] != "/"; !found {
			return 0
		}
	}
	if !found || len(rest) < len(host) || !strings.EqualFold(rest[:len(host)], host) {
		return 0
	}
	rest = rest[len(host):]
	if rest == "" {
		rest = "/"
	}
	if rest[0] != '/' {
		return 0
	}
	path, query, _ := strings.Cut(rest, "?")
	if strings.IndexByte(path, '%') < 0 {
		return w.hashTarget(path, query)
	}
	var space [longestRef]byte
	decoded := appendDecoded(space[:0], path)
	if decoded == nil {
		return 0
	}
	hash := maphash.Bytes(w.seed, decoded)
	if query != "" {
		hash = fold(hash, maphash.String(w.seed, query)|1)
	}
	return max(uint32(hash>>(64-pageBits)), 1)
}

// appendDecoded appends a path with its escapes decoded. It returns nil if there is no room.
func appendDecoded(b []byte, path string) []byte {
	if len(path) > cap(b) {
		return nil
	}
	for i := 0; i < len(path); i++ {
		c := path[i]
		if c == '%' && i+2 < len(path) {
			high, low := hexDigit[path[i+1]], hexDigit[path[i+2]]
			if high != 0 && low != 0 {
				c = (high-1)<<4 | (low - 1)
				i += 2
			}
		}
		b = append(b, c)
	}
	return b
}

// hexDigit holds the value of each hexadecimal digit plus 1; 0 for other bytes.
var hexDigit = func() (values [256]byte) {
	for i, c := range []byte("0123456789abcdef") {
		values[c] = byte(i) + 1
	}
	for i, c := range []byte("ABCDEF") {
		values[c] = byte(i) + 11
	}
	return values
}()

// values returns the values of a header; nil without any.
func values(h fairshare.Header, name string) []string {
	if h == nil {
		return nil
	}
	return h.Values(name)
}

// first returns the first value of a header, "" without one.
func first(h fairshare.Header, name string) string {
	if v := values(h, name); len(v) > 0 {
		return v[0]
	}
	return ""
}

// hashCookie returns the hash of "name=value", never 0.
func (w *Watcher) hashCookie(pair string) uint64 {
	return max(maphash.String(w.seed, pair)>>(2*pageBits), 1)
}

// returned reports whether a cookie with a hash is among those of a request.
func (w *Watcher) returned(h fairshare.Header, hash uint64) bool {
	if hash == 0 {
		return false
	}
	n := 0
	for _, line := range values(h, "Cookie") {
		for ; line != "" && n < mostCookies; n++ {
			var pair string
			pair, line, _ = strings.Cut(line, ";")
			if w.hashCookie(strings.Trim(pair, " ")) == hash {
				return true
			}
		}
	}
	return false
}

// mostCookies is how many cookies of a request are compared with the one that an answer set. One client
// cannot guess it: each guess fits with a probability of 2⁻²⁴.
const mostCookies = 64

// client returns the memory of the client that a request came from, and the state in it; nil if it is
// not known.
func (w *Watcher) client(s *Sighting) (*client, uint64) {
	set := w.table[(s.set-1)*setSize:][:setSize:setSize]
	for i := range set {
		if state := set[i].state.Load(); state>>(64-nameBits) == s.name {
			return &set[i], state
		}
	}
	return nil, 0
}

// Answered notes what the answer to a request shows of its client. It is to be called once for each
// request that the site answered itself, and not for those that were refused.
func (w *Watcher) Answered(s *Sighting, a Answer) {
	if s.set == 0 || !s.get || a.Status != 304 && (a.Status < 200 || a.Status > 299) {
		return
	}
	defer runtime.KeepAlive(w)
	kind := s.answerKind(a.ContentType)
	c, state := w.client(s)
	if c == nil {
		if kind != fairshare.KindPage { // evidence begins with a page
			return
		}
		if c = w.put(s); c == nil {
			return
		}
		state = pack(s.name, s.at, 0, 0)
	}
	at, bare, signs := unpack(state)
	if since(at, s.at) > day {
		signs = 0
	}
	memory := c.memory.Load()
	last, before, cookie := uint32(memory>>pageBits&pageMask), uint32(memory&pageMask), memory>>(2*pageBits)
	fits := s.referer != 0 && (s.referer == last || s.referer == before)
	switch kind {
	case fairshare.KindPage:
		if s.page != 0 && s.page != last && s.Kind != fairshare.KindFetch {
			last, before = s.page, last
		}
		at, bare = at+since(at, s.at), min(bare+1, mostBare)
	case fairshare.KindAsset:
		if last != 0 && (fits || since(at, s.at) <= minute) {
			signs, bare = signs|Assets, 0
		}
	}
	if fits {
		signs |= Referer
	}
	if a.Status == 304 {
		signs |= Conditional
	}
	if s.cookie {
		signs |= Cookie
	}
	if signs&Cookie == 0 {
		if hash := w.setCookie(a.SetCookie); hash != 0 {
			cookie = hash
		}
	}
	if next := pack(s.name, at&tickMask, bare, signs); next != state && !c.state.CompareAndSwap(state, next) {
		return // another request of the client was noted at the same time
	}
	if next := cookie<<(2*pageBits) | uint64(last)<<pageBits | uint64(before); next != memory {
		c.memory.Store(next)
	}
}

// answerKind returns what the request was for: KindPage, KindAsset, or KindUnknown for everything
// else. The site's content type decides, else the extension of the path. The client cannot make up
// either.
func (s *Sighting) answerKind(contentType string) fairshare.Kind {
	for _, page := range [...]string{"text/html", "application/xhtml"} {
		if strings.HasPrefix(contentType, page) {
			return fairshare.KindPage
		}
	}
	for _, asset := range [...]string{"image/", "text/css", "text/javascript", "application/javascript", "font/",
		"audio/", "video/"} {
		if strings.HasPrefix(contentType, asset) {
			return fairshare.KindAsset
		}
	}
	switch {
	case s.path == fairshare.KindUnknown && contentType == "":
		return fairshare.KindPage
	case s.path == fairshare.KindAsset, s.path == fairshare.KindPage && contentType == "":
		return s.path
	}
	return fairshare.KindUnknown
}

// setCookie returns the hash of the first cookie that an answer sets and does not delete; 0 if there
// is none.
func (w *Watcher) setCookie(lines []string) uint64 {
	for _, line := range lines {
		pair, attributes, _ := strings.Cut(line, ";")
		pair = strings.Trim(pair, " ")
		name, value, _ := strings.Cut(pair, "=")
		if name == "" || value == "" || value == `""` || strings.Contains(attributes, "ax-Age=0") ||
			strings.Contains(attributes, "ax-age=0") || strings.Contains(attributes, " 1970 ") {
			continue
		}
		return w.hashCookie(pair)
	}
	return 0
}

// put returns a cell for a new client, in place of one that may be forgotten; nil if there is none.
func (w *Watcher) put(s *Sighting) *client {
	set := w.table[(s.set-1)*setSize:][:setSize:setSize]
	victim, old, best := (*client)(nil), uint64(0), uint32(0)
	for i := range set {
		state := set[i].state.Load()
		if state == 0 {
			victim, old = &set[i], 0
			break
		}
		at, _, signs := unpack(state)
		idle := since(at, s.at)
		rank := tickMask + idle // may be forgotten
		switch {
		case idle > day:
			rank += tickMask
		case signs != 0:
			continue
		case idle <= minute:
			rank = tickMask - idle
		}
		if rank >= best { // of several, the last: the others came before it
			victim, old, best = &set[i], state, rank
		}
	}
	if victim == nil || !victim.state.CompareAndSwap(old, pack(s.name, s.at, 0, 0)) {
		return nil
	}
	victim.memory.Store(0)
	return victim
}
