// Package clientaddr finds the address of the client behind trusted proxies.
// Start with [New].
//
// A forwarding header is believed only if a trusted proxy sent it, and only the
// one header that the policy names. A list of addresses is read from the right:
// each proxy appends the address of its peer. The first address from the right
// that does not belong to a trusted proxy is the client. The client can write
// anything left of it.
//
// [Behind] has the configuration for common servers and CDNs. A [Watch] detects
// proxies that the configuration does not name, and proxies that do not name
// their clients.
package clientaddr

import (
	"fmt"
	"net/netip"
	"net/textproto"
	"slices"

	"github.com/gaissmai/bart"
)

// maxElements is how many forwarded addresses are read, from the right.
const maxElements = 32

// Config says which proxies are trusted. The zero Config trusts none: the client
// is the peer.
type Config struct {
	// TrustedProxies are prefixes, addresses, names of Lists, or the names that
	// [ParseProxies] knows.
	TrustedProxies []string

	// Lists are the operator's own. A list replaces the published addresses of
	// the same name; the names loopback, private and unix cannot be replaced.
	Lists map[string][]netip.Prefix

	// Header is the one header that trusted proxies send: X-Forwarded-For,
	// Forwarded, or any other, which then holds a single address. "" means
	// X-Forwarded-For. Without trusted proxies it is never read.
	Header string

	// Provisional makes Resolve read the headers of peers that are not trusted, if
	// they are on this machine, on its private network or on a Unix socket. Their
	// clients are provisional, see Result.Via. Headers of public peers are never
	// read.
	Provisional bool
}

// A ConfigError reports one wrong element of a [Config].
type ConfigError struct {
	Index int    // of TrustedProxies; -1 when it is the Header
	Text  string // the element as given
	Err   error
}

func (e *ConfigError) Error() string {
	if e.Index < 0 {
		return fmt.Sprintf("header %q: %v", e.Text, e.Err)
	}
	return fmt.Sprintf("trusted proxy %q: %v", e.Text, e.Err)
}

func (e *ConfigError) Unwrap() error { return e.Err }

// ConfigErrors holds all errors of a [Config], in order. It is never empty.
type ConfigErrors []*ConfigError

func (e ConfigErrors) Error() string {
	if len(e) > 1 {
		return fmt.Sprintf("%v (and %d more)", e[0], len(e)-1)
	}
	return e[0].Error()
}

// Unwrap returns every error, for errors.As and errors.Is.
func (e ConfigErrors) Unwrap() []error {
	errs := make([]error, len(e))
	for i := range e {
		errs[i] = e[i]
	}
	return errs
}

// A Header returns all values of one header, in order; nil if there is none.
// http.Header implements it. The name is canonical ("X-Real-Ip").
type Header interface {
	Values(name string) []string
}

// A Resolver finds client addresses. It is immutable and safe for concurrent use.
type Resolver struct {
	configured []string   // trusted proxies
	trusted    *bart.Lite // unmapped prefixes; nil if there are none
	unix       bool       // peers on Unix sockets are trusted
	header     string     // canonical; "" if no peer is trusted
	kind       headerKind

	provisional      bool
	configuredHeader forwardingHeader // of the policy; without a key: none
}

type headerKind uint8

const (
	listHeader      headerKind = iota // X-Forwarded-For
	forwardedHeader                   // RFC 7239
	singleHeader                      // one address
)

// New returns a Resolver for a Config. The error is a [ConfigErrors] with every
// error of the Config.
func New(c Config) (*Resolver, error) {
	var faults ConfigErrors
	r := &Resolver{configured: slices.Clone(c.TrustedProxies)}
	for i, text := range c.TrustedProxies {
		proxies, err := c.parseProxies(text)
		if err != nil {
			faults = append(faults, &ConfigError{Index: i, Text: text, Err: err})
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
	if err := checkHeader(c.Header); err != nil {
		faults = append(faults, &ConfigError{Index: -1, Text: c.Header, Err: err})
	}
	if faults != nil {
		return nil, faults
	}
	if r.trusted != nil {
		r.trusted.Aggregate()
	}
	r.provisional = c.Provisional
	if c.Header != "" {
		r.configuredHeader = forwardingHeader{key: textproto.CanonicalMIMEHeaderKey(c.Header), name: c.Header,
			kind: kindOf(c.Header)}
	}
	if r.trusted != nil || r.unix {
		r.header, r.kind = "X-Forwarded-For", listHeader
		if c.Header != "" {
			r.header, r.kind = r.configuredHeader.key, r.configuredHeader.kind
		}
	}
	return r, nil
}

func kindOf(header string) headerKind {
	switch textproto.CanonicalMIMEHeaderKey(header) {
	case "X-Forwarded-For":
		return listHeader
	case "Forwarded":
		return forwardedHeader
	}
	return singleHeader
}

// parseProxies reads one element of TrustedProxies.
func (c *Config) parseProxies(text string) (Proxies, error) {
	list, found := c.Lists[text]
	switch {
	case !found:
		return ParseProxies(text)
	case slices.Contains(fixedNames(), text):
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

// checkHeader reports why a [Config] cannot have this header. "" is allowed.
func checkHeader(name string) error {
	for i := 0; i < len(name); i++ {
		if !tokenByte(name[i]) {
			return fmt.Errorf("%q is not allowed in a header name", name[i:i+1])
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

// Header returns the canonical name of the header that is read. It is "" if no
// peer is trusted: then no header is read.
func (r *Resolver) Header() string { return r.header }

// A Result is the client of a request, and how it was found.
type Result struct {
	Addr netip.Addr // of the client, as [Canonical] returns it; invalid if unknown
	Peer netip.Addr // of the other end of the connection, likewise; invalid for a Unix socket

	PeerTrusted bool // the peer is a trusted proxy, its header was read
	Proxy       bool // Addr is a trusted proxy's own, or unknown behind one: it must never be banned
	Missing     bool // the peer is trusted and did not send the header
	Malformed   bool // part of the header is unreadable: Addr is the last readable one from the right, or the peer

	// Via is valid if Addr is provisional: a peer that is not trusted has named it.
	// Via is that peer; for a Unix socket it is ::, which no peer can have.
	Via netip.Addr
}

// Resolve finds the client of a request. peer is what http.Request.RemoteAddr
// holds: "ip:port", an address alone, or "", "@", "@name", "/path" or "unix:"
// for a Unix socket. header may be nil. It is read only if the peer is trusted
// or may name its clients provisionally.
func (r *Resolver) Resolve(peer string, header Header) Result {
	return r.resolve(peer, &fields{header: header})
}

func (r *Resolver) resolve(peer string, f *fields) Result {
	header := f.header
	addr, unix := parsePeer(peer)
	res := r.start(addr, unix)
	if res.PeerTrusted && header != nil {
		r.walk(&res, valuesOf(header, r.header))
	} else if res.PeerTrusted {
		res.Missing = true
	} else if header != nil && (unix || res.Peer.IsValid()) && r.MayNameClients(res.Peer) {
		r.nameProvisionally(&res, f)
	}
	return res
}

// MayNameClients reports whether a peer that is not trusted may name its clients
// provisionally. An invalid address means a Unix socket.
func (r *Resolver) MayNameClients(peer netip.Addr) bool {
	return r.provisional && (!peer.IsValid() || IsLocal(peer))
}

// IsLocal reports whether an address belongs to the names loopback or private of
// [ParseProxies].
func IsLocal(addr netip.Addr) bool {
	return addr.IsPrivate() || addr.IsLoopback() || addr.IsLinkLocalUnicast()
}

// nameProvisionally takes the client from the first readable header: the
// configured one, then the common ones that are present.
func (r *Resolver) nameProvisionally(res *Result, f *fields) {
	configured := r.configuredHeader
	if configured.key != "" && r.takeProvisionally(res, configured.kind, valuesOf(f.header, configured.key)) {
		return
	}
	if r.takeProvisionally(res, forwarding[0].kind, valuesOf(f.header, forwarding[0].key)) {
		return // most proxies send it: the other headers need no search
	}
	for i, present := 1, f.forwarding(); present>>i != 0; i++ {
		if present.has(i) && r.takeProvisionally(res, forwarding[i].kind, valuesOf(f.header, forwarding[i].key)) {
			return
		}
	}
}

// takeProvisionally takes the client from the values of a header, as if the
// peer were trusted, and reports whether they name one other than the peer.
func (r *Resolver) takeProvisionally(res *Result, kind headerKind, values []string) bool {
	if len(values) == 0 {
		return false
	}
	reader := Resolver{trusted: r.trusted, kind: kind}
	var named Result
	reader.walk(&named, values)
	if !named.Addr.IsValid() || named.Proxy || named.Malformed || named.Addr == res.Peer {
		return false
	}
	res.Addr, res.Via = named.Addr, Via(res.Peer)
	return true
}

// Via returns the Result.Via for clients that this peer names: the peer itself,
// or :: for an invalid address, which means a Unix socket.
func Via(peer netip.Addr) netip.Addr {
	if !peer.IsValid() {
		return netip.IPv6Unspecified()
	}
	return peer
}

// ResolveAddr finds the client if only the peer's address is known, such as from
// an access log. values are those of the header that the policy names; none if
// the request did not have it. An invalid peer is not trusted; use Resolve for
// Unix sockets.
func (r *Resolver) ResolveAddr(peer netip.Addr, values ...string) Result {
	res := r.start(peer, false)
	if res.PeerTrusted {
		r.walk(&res, values)
	} else if res.Peer.IsValid() && r.MayNameClients(res.Peer) {
		r.takeProvisionally(&res, r.configuredHeader.kind, values)
	}
	return res
}

// TrustsPeer reports whether a peer, in the form that Resolve takes, is a trusted
// proxy.
func (r *Resolver) TrustsPeer(peer string) bool {
	if r.trusted == nil { // the address does not matter
		return r.unix && isUnix(peer)
	}
	addr, unix := parsePeer(peer)
	return r.start(addr, unix).PeerTrusted
}

// Trusts reports whether an address belongs to a trusted proxy.
func (r *Resolver) Trusts(addr netip.Addr) bool {
	return r.start(addr, false).PeerTrusted
}

// TrustsEverybody reports whether the trusted prefixes contain all IPv4 or all
// public IPv6 addresses. Then every client can choose its own address.
func (r *Resolver) TrustsEverybody() bool {
	return r.trusted != nil && (r.trusted.LookupPrefix(allIPv4) || r.trusted.LookupPrefix(globalIPv6))
}

var (
	allIPv4    = netip.MustParsePrefix("0.0.0.0/0")
	globalIPv6 = netip.MustParsePrefix("2000::/3") // all that is allocated, RFC 4291 §2.4
)

// start returns the result that follows from the peer alone.
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

// holds reports whether an address is trusted, either as given or translated.
func (r *Resolver) holds(plain, translated netip.Addr) bool {
	return r.trusted != nil && plain.IsValid() &&
		(r.trusted.Contains(translated) || plain != translated && r.trusted.Contains(plain))
}

// walk reads the header's values from the right, until an address is not a
// trusted proxy. res.Addr is always the last readable address.
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

// step sets res to the next address to the left and reports whether it is a
// trusted proxy, so that the walk may continue.
func (r *Resolver) step(res *Result, addr netip.Addr) bool {
	res.Addr = translate(addr)
	res.Proxy = r.holds(addr, res.Addr)
	return res.Proxy
}

// Trusted returns the addresses of the trusted proxies in as few prefixes as
// possible.
func (r *Resolver) Trusted() []netip.Prefix {
	if r.trusted == nil {
		return nil
	}
	return slices.Collect(r.trusted.All())
}
