package proxy

import (
	"net/http"
	"net/netip"
	"strings"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/internal/outbound"
)

// maxChain is how many addresses of trusted proxies remain in X-Forwarded-For. The
// search for the client's address has the same bound.
const maxChain = 32

// A client is the sender of a request.
type client struct {
	asker   httpguard.Client
	judged  bool // asker is valid
	trusted bool // the peer is a trusted proxy
	peer    string
	method  string
	host    string
	addr    string // as the guard judged it; "" if it is unknown
}

func (s *setup) clientOf(w http.ResponseWriter, r *http.Request) client {
	c := client{
		trusted: s.Trusts(r.RemoteAddr), peer: peer(r.RemoteAddr),
		method: r.Method, host: r.Host,
	}
	if c.asker, c.judged = httpguard.ClientOf(w); c.asker.Via.IsValid() { // nothing proves what it names
		if c.asker.Addr = c.asker.Via; c.asker.Via == fairshare.ThroughSocket {
			c.asker.Addr = netip.Addr{}
		}
	}
	if c.judged && c.asker.Addr.IsValid() {
		nearest := c.peer
		if c.trusted {
			nearest = lastOf(r.Header[s.Header])
		}
		c.addr = text(c.asker.Addr, nearest)
	}
	return c
}

// appendForwarded appends the headers of kind written: the client's address, the scheme
// and the host.
func (s *setup) appendForwarded(own []outbound.Field, r *http.Request, c *client) []outbound.Field {
	h, ownHost, ownProto := r.Header, r.Host, "http"
	if r.TLS != nil {
		ownProto = "https"
	}
	addrs := ""
	if c.trusted {
		addrs = c.addr
		host, proto := lastOf(h["X-Forwarded-Host"]), lastOf(h["X-Forwarded-Proto"])
		switch s.Header {
		case "X-Forwarded-For":
			addrs = s.chain(strings.Join(h[s.Header], ", "), addrs)
		case "Forwarded":
			if s.ReadForwarded != nil {
				host, proto = s.ReadForwarded(h[s.Header])
			}
		}
		if validScheme(proto) {
			ownProto = proto
		}
		believed := s.hosts == nil && !s.HostsJudged && host != "" && s.hosts.status(host) == http.StatusOK
		if believed || s.fits(host, c) {
			ownHost = host
		}
	}
	switch {
	case addrs == "" || addrs == c.peer:
		addrs = c.peer
	case c.peer != "":
		addrs += ", " + c.peer
	}
	if addrs != "" {
		own = append(own, outbound.Field{Name: "X-Forwarded-For", Value: addrs})
	}
	own = append(own, outbound.Field{Name: "X-Forwarded-Proto", Value: ownProto})
	if ownHost != "" {
		own = append(own, outbound.Field{Name: "X-Forwarded-Host", Value: ownHost})
	}
	if c.trusted && s.Header == "Forwarded" {
		own = append(own, outbound.Field{Name: "Forwarded", Value: forwardedText(addrs, ownHost, ownProto)})
	}
	return own
}

// chain returns the trustworthy end of a list of addresses: the client's address,
// then those of the trusted proxies after it. The client wrote the text before them.
func (s *setup) chain(list, client string) string {
	start := len(list)
	for end, n := len(list), 0; end >= 0 && n < maxChain; n++ {
		comma := strings.LastIndexByte(list[:end], ',')
		if item := strings.Trim(list[comma+1:end], " \t"); !beginsAddr(item) || !s.Trusts(item) {
			break
		}
		start, end = comma+1, comma
	}
	list = strings.TrimLeft(list[start:], " \t")
	first, _, _ := strings.Cut(list, ",")
	switch {
	case client == "" || first == client:
		return list
	case list == "":
		return client
	}
	return client + ", " + list
}

// beginsAddr reports whether a text may be an address: Trusts treats other texts as
// Unix sockets.
func beginsAddr(s string) bool {
	return s != "" && strings.IndexByte("0123456789abcdefABCDEF:[", s[0]) >= 0
}

// forwardedText returns a Forwarded header (RFC 7239 §4) with the facts of the
// X-Forwarded-* headers: the client's address, host and scheme, then the proxies.
func forwardedText(addrs, host, proto string) string {
	var b strings.Builder
	for addr := range strings.SplitSeq(addrs, ", ") {
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		if addr == "" {
			addr = "unknown"
		} else if strings.Contains(addr, ":") {
			addr = `"[` + addr + `]"`
		}
		b.WriteString("for=" + addr)
		if host != "" {
			b.WriteString(`;host="` + host + `"`)
		}
		if proto != "" {
			b.WriteString(";proto=" + proto)
		}
		host, proto = "", "" // of the client's request
	}
	return b.String()
}

// lastOf returns the last item of a header whose values are lists.
func lastOf(values []string) string {
	if len(values) == 0 {
		return ""
	}
	list := values[len(values)-1]
	return strings.Trim(list[strings.LastIndexByte(list, ',')+1:], " \t")
}

// peer returns the address of a peer; "" for a Unix socket.
func peer(remote string) string {
	a, err := netip.ParseAddrPort(remote)
	if err != nil {
		return ""
	}
	return text(a.Addr().Unmap().WithZone(""), remote[:strings.LastIndexByte(remote, ':')])
}

// text returns an address as text. It returns other if that is the same text.
func text(addr netip.Addr, other string) string {
	var space [64]byte
	b := addr.AppendTo(space[:0])
	if string(b) == other {
		return other
	}
	return string(b)
}
