package proxy

import (
	"net/http"
	"net/netip"
	"strings"
)

// Bounds of a request's header: what a zero Config.Fields and a zero
// Config.HeaderBytes mean.
const (
	DefaultFields      = 100
	DefaultHeaderBytes = 32 << 10
)

// bounded reports whether a request's header is of a size to be handed on.
// Fields are counted as they came, bytes with what stands between them.
func (s *setup) bounded(r *http.Request) bool {
	fields, bytes := 1, len("Host: \r\n")+len(r.Host)
	for name, values := range r.Header {
		fields += len(values)
		for _, v := range values {
			bytes += len(name) + len(": \r\n") + len(v)
		}
	}
	return fields <= s.Fields && bytes <= s.HeaderBytes
}

// onward makes of the client's header what the upstream is to get. upgrade
// says whether the request asks for a websocket.
//
// A trusted proxy's word about the client is kept and added to, anybody else's
// is replaced. What is of one connection only goes (RFC 9110 §7.6.1); nothing
// that the client lists under Connection takes away what is set here. Who asks,
// as the guard of w judged it, is this proxy's word alone.
func (s *setup) onward(w http.ResponseWriter, r *http.Request, upgrade bool) {
	h, trusted := r.Header, s.Trusts(r.RemoteAddr)
	trailers, up := listed(h["Te"], "trailers"), h["Upgrade"]
	for _, list := range h["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			if name = http.CanonicalHeaderKey(strings.Trim(name, " \t")); name != "" && !s.forwards(name) {
				delete(h, name)
			}
		}
	}
	for name := range h {
		if !s.passes(name, trusted) {
			delete(h, name)
		}
	}
	if trailers || s.listens() {
		h["Te"] = teTrailers
	}
	if upgrade {
		h["Connection"], h["Upgrade"] = connectionUpgrade, up
	}
	if _, ok := h["User-Agent"]; !ok {
		h["User-Agent"] = nil // else net/http sends its own
	}
	s.forwarded(w, r, trusted)
}

// hopByHop reports whether a header is of one connection only.
func hopByHop(name string) bool {
	switch name {
	case "Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Http2-Settings", "Expect":
		return true
	}
	return false
}

var (
	teTrailers        = []string{"trailers"}
	connectionUpgrade = []string{"Upgrade"}
	connectionClose   = []string{"close"}
)

// passes reports whether a header goes to the upstream.
//
// Servers that hand headers on as variables make "_" of "-" and of much else:
// under such a name anybody could set X-Forwarded-For.
func (s *setup) passes(name string, trusted bool) bool {
	plain, under := true, false
	for i := 0; i < len(name); i++ {
		if c := name[i]; c == '_' {
			under = true
		} else if !alphanumeric(c) && c != '-' {
			plain = false
		}
	}
	switch {
	case !plain || hopByHop(name):
		return false
	case strings.HasPrefix(name, ours) || s.tells(name): // from trusted proxies too
		return false
	case name == "Proxy": // a CGI's HTTP_PROXY, by which clients of its own go (CVE-2016-5385)
		return false
	case under:
		return s.KeepUnderscores && !s.reserved(fold(name))
	case name == "Forwarded": // a proxy that sends another header may hand on what its client sent
		return trusted && s.Header == name
	}
	return trusted || !s.forwards(name)
}

// forwards reports whether a header tells the upstream about the client, or
// which path it asks for in place of the one that was judged, so that only a
// trusted proxy and this one may send it. These are what proxies, CDNs and the
// frameworks behind them know.
func (s *setup) forwards(name string) bool {
	switch name {
	case "Forwarded", "X-Real-Ip", "Client-Ip", "X-Client-Ip", "X-Cluster-Client-Ip", "True-Client-Ip",
		"Cf-Connecting-Ip", "Cf-Connecting-Ipv6", "Fastly-Client-Ip", "X-Azure-Clientip",
		"X-Original-Url", "X-Rewrite-Url":
		return true
	}
	return strings.HasPrefix(name, "X-Forwarded-") || name == s.Header && name != ""
}

// reserved reports whether a header is set, judged or taken off before the
// upstream sees it, so that it must not come under another spelling.
func (s *setup) reserved(name string) bool {
	return s.forwards(name) || s.tells(name) || strings.HasPrefix(name, ours) || name == "User-Agent" || name == "Content-Length" || hopByHop(name)
}

// forwarded sets what tells the upstream about the client.
func (s *setup) forwarded(w http.ResponseWriter, r *http.Request, trusted bool) {
	h := r.Header
	proto := "http"
	if r.TLS != nil {
		proto = "https"
	}
	values := []string{peer(r.RemoteAddr), proto, r.Host, "", ""}
	nearest := values[0]
	if trusted {
		if prior := h["X-Forwarded-For"]; len(prior) > 0 {
			nearest = last(prior[len(prior)-1])
			if values[0] == "" {
				values[0] = strings.Join(prior, ", ")
			} else {
				values[0] = strings.Join(prior, ", ") + ", " + values[0]
			}
		}
		if prior := h["X-Forwarded-Proto"]; len(prior) > 0 {
			values[1] = prior[len(prior)-1]
		}
		if prior := h["X-Forwarded-Host"]; len(prior) > 0 {
			values[2] = prior[len(prior)-1]
		}
	}
	if values[0] != "" {
		h["X-Forwarded-For"] = values[0:1:1]
	} else {
		delete(h, "X-Forwarded-For")
	}
	h["X-Forwarded-Proto"] = values[1:2:2]
	h["X-Forwarded-Host"] = values[2:3:3]
	s.who(h, w, nearest, values[3:])
}

// peer returns the address of a peer; "" for a Unix socket.
func peer(remote string) string {
	a, err := netip.ParseAddrPort(remote)
	if err != nil {
		return ""
	}
	return a.Addr().Unmap().WithZone("").String()
}

// listed reports whether a header whose values are lists holds a token, which
// is in lower case.
func listed(values []string, token string) bool {
	for _, list := range values {
		for item := range strings.SplitSeq(list, ",") {
			item, _, _ = strings.Cut(item, ";")
			if strings.EqualFold(strings.Trim(item, " \t"), token) {
				return true
			}
		}
	}
	return false
}

// back takes from an answer's header what is of one connection only, and adds
// the rest to the client's answer.
func back(to, from http.Header) {
	for _, list := range from["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			if name = strings.Trim(name, " \t"); name != "" {
				from.Del(name)
			}
		}
	}
	for name := range from {
		if hopByHop(name) {
			delete(from, name)
		}
	}
	add(to, from)
}

// add adds a header to another. They may share values afterwards.
func add(to, from http.Header) {
	for name, values := range from {
		if prior, ok := to[name]; ok {
			values = append(prior[:len(prior):len(prior)], values...)
		}
		to[name] = values
	}
}
