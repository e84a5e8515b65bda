// Package clientaddr finds the address of the client behind trusted proxies.
// Start with [New].
//
// A forwarding header is believed only when a trusted proxy sent it, and then
// only one header, the one the policy names. A list of addresses is read from
// the right: each proxy appends the address it was asked from, so everything
// left of the first address that is not a trusted proxy is the client's own
// invention.
//
// [Behind] knows what the usual servers and CDNs need. A [Watch] finds out when
// a proxy is there that nobody named, or one that does not name its clients.
package clientaddr

import (
	"fmt"
	"net/netip"
	"net/textproto"
	"slices"

	"github.com/gaissmai/bart"
)

// maxElements is how many of the rightmost forwarded addresses are looked at.
const maxElements = 32

// Config says whom to believe. The zero Config believes nobody: the client is
// the peer.
type Config struct {
	// TrustedProxies are prefixes, addresses, names of Lists, or the names that
	// [Names] lists.
	TrustedProxies []string

	// Lists are the operator's own. A list goes before the published addresses
	// of the same name, and so replaces them; [FixedNames] cannot be replaced.
	Lists map[string][]netip.Prefix

	// Header is the one header that trusted proxies send: X-Forwarded-For,
	// Forwarded, or any other, which then holds a single address. "" means
	// X-Forwarded-For. Without trusted proxies it is never read.
	Header string
}

// A ConfigError says which element of a [Config] is wrong.
type ConfigError struct {
	Index int    // of TrustedProxies; -1 when it is the Header
	Word  string // the element as given
	Err   error
}

func (e *ConfigError) Error() string {
	if e.Index < 0 {
		return fmt.Sprintf("header %q: %v", e.Word, e.Err)
	}
	return fmt.Sprintf("trusted proxy %q: %v", e.Word, e.Err)
}

func (e *ConfigError) Unwrap() error { return e.Err }

// A ConfigErrors holds all faults of a [Config], in order.
type ConfigErrors []*ConfigError

func (e ConfigErrors) Error() string {
	if len(e) > 1 {
		return fmt.Sprintf("%v (and %d more)", e[0], len(e)-1)
	}
	return e[0].Error()
}

// Unwrap gives errors.As and errors.Is every fault.
func (e ConfigErrors) Unwrap() []error {
	errs := make([]error, len(e))
	for i := range e {
		errs[i] = e[i]
	}
	return errs
}

// A Header gives all values of one header, in order; nil when there is none.
// http.Header is one. Values is asked with a canonical name ("X-Real-Ip").
type Header interface {
	Values(name string) []string
}

// A Resolver finds client addresses. It does not change once made, and is
// safe for concurrent use.
type Resolver struct {
	words   []string   // as configured
	trusted *bart.Lite // unmapped prefixes; nil when none
	unix    bool       // peers on Unix sockets are trusted
	header  string     // canonical; "" when nobody is trusted
	kind    headerKind
}

type headerKind uint8

const (
	listHeader      headerKind = iota // X-Forwarded-For
	forwardedHeader                   // RFC 7239
	singleHeader                      // one address
)

// New returns a Resolver for a Config. The error is a [ConfigErrors] and
// holds every fault.
func New(c Config) (*Resolver, error) {
	var faults ConfigErrors
	r := &Resolver{words: slices.Clone(c.TrustedProxies)}
	for i, word := range c.TrustedProxies {
		proxies, err := c.proxies(word)
		if err != nil {
			faults = append(faults, &ConfigError{Index: i, Word: word, Err: err})
			continue
		}
		r.unix = r.unix || proxies.Unix
		for _, prefix := range proxies.Prefixes {
			if r.trusted == nil {
				r.trusted = new(bart.Lite)
			}
			r.trusted.Insert(prefix)
		}
	}
	if err := CheckHeader(c.Header); err != nil {
		faults = append(faults, &ConfigError{Index: -1, Word: c.Header, Err: err})
	}
	if faults != nil {
		return nil, faults
	}
	if r.trusted != nil {
		r.trusted.Aggregate()
	}
	if r.trusted != nil || r.unix {
		r.header, r.kind = "X-Forwarded-For", listHeader
		if c.Header != "" {
			r.header = textproto.CanonicalMIMEHeaderKey(c.Header)
		}
		switch r.header {
		case "X-Forwarded-For":
		case "Forwarded":
			r.kind = forwardedHeader
		default:
			r.kind = singleHeader
		}
	}
	return r, nil
}

// proxies reads one word of TrustedProxies.
func (c *Config) proxies(word string) (Proxies, error) {
	list, found := c.Lists[word]
	switch {
	case !found:
		return ParseProxies(word)
	case slices.Contains(FixedNames(), word):
		return Proxies{}, errFixed
	case len(list) == 0:
		return Proxies{}, errEmptyList
	}
	proxies := Proxies{Prefixes: make([]netip.Prefix, len(list))}
	for i, prefix := range list {
		var err error
		if proxies.Prefixes[i], err = canonicalPrefix(prefix); err != nil {
			return Proxies{}, fmt.Errorf("%v in the list: %w", prefix, err)
		}
	}
	return proxies, nil
}

// CheckHeader reports why a header name cannot be a [Config]'s Header. "" can.
func CheckHeader(name string) error {
	for i := 0; i < len(name); i++ {
		if !tokenByte(name[i]) {
			return fmt.Errorf("%q cannot stand in a header name", name[i:i+1])
		}
	}
	return nil
}

// tokenByte reports whether c is a tchar of RFC 9110 §5.6.2.
func tokenByte(c byte) bool {
	switch {
	case c >= '0' && c <= '9', c|0x20 >= 'a' && c|0x20 <= 'z':
		return true
	}
	switch c {
	case '!', '#', '$', '%', '&', '\'', '*', '+', '-', '.', '^', '_', '`', '|', '~':
		return true
	}
	return false
}

// Header returns the canonical name of the header that is read, "" when
// nobody is trusted and so none is.
func (r *Resolver) Header() string { return r.header }

// A Result says who asks, and how that is known.
type Result struct {
	Addr netip.Addr // of the client, as [Canonical] gives it; invalid when nobody knows
	Peer netip.Addr // of the other end of the connection, likewise; invalid for a Unix socket

	PeerTrusted bool // the peer is a trusted proxy, its header was read
	Proxy       bool // Addr is a trusted proxy's own, or unknown behind one: never to be banned
	Missing     bool // the peer is trusted and sent no such header
	Malformed   bool // the header could not be read to the end: Addr is the last good one from the right, or the peer
}

// Resolve finds the client of a request. peer is what http.Request.RemoteAddr
// holds: "ip:port", an address alone, or "", "@", "@name", "/path" or "unix:"
// for a Unix socket. header is not asked unless the peer is trusted; it may be
// nil.
func (r *Resolver) Resolve(peer string, header Header) Result {
	addr, unix := parsePeer(peer)
	res := r.start(addr, unix)
	if res.PeerTrusted && header != nil {
		r.walk(&res, header.Values(r.header))
	} else if res.PeerTrusted {
		res.Missing = true
	}
	return res
}

// ResolveAddr finds the client when the peer is known as an address, as in an
// access log. values are those of the header that the policy names; none when
// the request had none. An invalid peer is not trusted: a Unix socket is told
// to Resolve.
func (r *Resolver) ResolveAddr(peer netip.Addr, values ...string) Result {
	res := r.start(peer, false)
	if res.PeerTrusted {
		r.walk(&res, values)
	}
	return res
}

// TrustsPeer reports whether a peer, given as to Resolve, is a trusted proxy.
func (r *Resolver) TrustsPeer(peer string) bool {
	addr, unix := parsePeer(peer)
	return r.start(addr, unix).PeerTrusted
}

// Trusts reports whether an address is a trusted proxy's.
func (r *Resolver) Trusts(addr netip.Addr) bool {
	return r.start(addr, false).PeerTrusted
}

// TrustsEverybody reports whether the trusted prefixes hold all of IPv4 or all
// public IPv6 addresses, so that every client may call itself what it likes.
func (r *Resolver) TrustsEverybody() bool {
	return r.trusted != nil && (r.trusted.LookupPrefix(allIPv4) || r.trusted.LookupPrefix(globalIPv6))
}

var (
	allIPv4    = netip.MustParsePrefix("0.0.0.0/0")
	globalIPv6 = netip.MustParsePrefix("2000::/3") // all that is given out, RFC 4291 §2.4
)

// start returns what is known from the peer alone.
func (r *Resolver) start(peer netip.Addr, unix bool) Result {
	if unix {
		return Result{PeerTrusted: r.unix, Proxy: r.unix}
	}
	peer = plain(peer)
	if peer.IsUnspecified() {
		return Result{}
	}
	addr := translate(peer)
	trusted := r.holds(peer, addr)
	return Result{Addr: addr, Peer: addr, PeerTrusted: trusted, Proxy: trusted}
}

// holds reports whether an address is trusted, as it stands or translated.
func (r *Resolver) holds(plain, translated netip.Addr) bool {
	return r.trusted != nil && plain.IsValid() &&
		(r.trusted.Contains(translated) || plain != translated && r.trusted.Contains(plain))
}

// walk reads the header's values and moves res from the peer towards the
// client, as far as trust goes. res.Addr is always the last good address.
func (r *Resolver) walk(res *Result, values []string) {
	if len(values) == 0 || len(values) == 1 && len(values[0]) <= maxText && trim(values[0]) == "" {
		res.Missing = true
		return
	}
	if r.kind == singleHeader {
		addr, _, more, ok := lastListed(values[len(values)-1])
		if !ok || more {
			res.Malformed = true
			return
		}
		r.step(res, addr)
		return
	}
	seen := 0
	for i := len(values) - 1; i >= 0; i-- {
		rest, more := values[i], true
		for more {
			if seen++; seen > maxElements {
				res.Malformed = true
				return
			}
			var addr netip.Addr
			var ok bool
			if r.kind == forwardedHeader {
				addr, rest, more, ok = lastForwarded(rest)
			} else {
				addr, rest, more, ok = lastListed(rest)
			}
			if !ok {
				res.Malformed = true
				return
			}
			if !r.step(res, addr) {
				return
			}
		}
	}
}

// step takes the next address to the left and reports whether it is a trusted
// proxy, so that the walk may go on.
func (r *Resolver) step(res *Result, addr netip.Addr) bool {
	res.Addr = translate(addr)
	res.Proxy = r.holds(addr, res.Addr)
	return res.Proxy
}

// Trusted returns the addresses of the trusted proxies, as few prefixes as
// hold them.
func (r *Resolver) Trusted() []netip.Prefix {
	if r.trusted == nil {
		return nil
	}
	return slices.Collect(r.trusted.All())
}
