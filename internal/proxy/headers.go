package proxy

import (
	"net/http"
	"strings"

	"fairshare/internal/httpfield"
	"fairshare/internal/outbound"
)

// Bounds of a request's header: the defaults of Config.Fields and
// Config.HeaderBytes.
const (
	DefaultFields      = 100
	DefaultHeaderBytes = 32 << 10
)

// A headerSize is the size of a request's header: the fields of the client with Host, and their bytes with
// separators.
type headerSize struct{ fields, bytes int }

func sizeOf(r *http.Request) headerSize {
	size := headerSize{1, len("Host: \r\n") + len(r.Host)}
	for name, values := range r.Header {
		size.fields += len(values)
		for _, v := range values {
			size.bytes += len(name) + len(": \r\n") + len(v)
		}
	}
	return size
}

// rewriteHeader removes from the client's header what the upstream must not get. It
// returns the fields that this proxy sends; the header no longer has fields of these
// names; they are appended to own. upgrade says whether the request is for a websocket.
//
// The kind of a header decides what happens to it. A client cannot remove headers
// that are judged or set here by listing them in Connection.
func (s *setup) rewriteHeader(own []outbound.Field, w http.ResponseWriter, r *http.Request,
	upgrade bool) []outbound.Field {
	h := r.Header
	trailers, up := listed(h["Te"], "trailers"), h["Upgrade"]
	for _, list := range h["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			if name = http.CanonicalHeaderKey(strings.Trim(name, " \t")); s.kindOf(fold(name)) == ordinary {
				delete(h, name)
			}
		}
	}
	c := s.clientOf(w, r)
	own = s.appendIdentity(s.appendForwarded(own, r, &c), &c)
	for name, values := range h {
		switch pass := s.pass(name, values, &c); {
		case pass == nil || hasField(own, name):
			delete(h, name)
		case len(pass) != len(values) || len(pass) > 0 && &pass[0] != &values[0]:
			h[name] = pass
		}
	}
	if trailers || s.readsCosts() {
		own = append(own, outbound.Field{Name: "Te", Value: "trailers"})
	}
	if upgrade {
		own = append(own, outbound.Field{Name: "Connection", Value: "Upgrade"},
			outbound.Field{Name: "Upgrade", Value: up[0]})
	}
	return own
}

func hasField(fields []outbound.Field, name string) bool {
	for i := range fields {
		if fields[i].Name == name {
			return true
		}
	}
	return false
}

// usualFields is how many fields rewriteHeader returns for most requests.
const usualFields = 6

// setFields sets the fields that rewriteHeader has returned, for net/http.
func setFields(h http.Header, own []outbound.Field) {
	values := make([]string, len(own))
	for i, f := range own {
		values[i] = f.Value
		h[f.Name] = values[i : i+1 : i+1]
	}
	if _, ok := h["User-Agent"]; !ok {
		h["User-Agent"] = nil // otherwise net/http sends its own
	}
}

var connectionClose = []string{"close"}

// pass returns the values of a header that the upstream gets, nil for none.
//
// Servers that pass headers as variables turn "-" and many other characters into
// "_": under such a name, any client could set X-Forwarded-For.
func (s *setup) pass(name string, values []string, c *client) []string {
	switch {
	case !plain(name):
		return nil
	case strings.IndexByte(name, '_') >= 0:
		if s.KeepUnderscores && s.kindOf(fold(name)) == ordinary {
			return values
		}
		return nil
	}
	switch k := s.kindOf(name); k {
	case ordinary, ownName:
		return values
	case override:
		if s.keepHeaders[name] {
			return values
		}
		s.noteOverride(name, c.method)
	case clientAddr, host, scheme, port, pathPrefix, fromProxy:
		if c.trusted {
			return s.passTrusted(k, values, c)
		}
	}
	return nil
}

// passTrusted is pass for a header of a trusted proxy. Of checked values the last
// one counts, which is from the nearest proxy.
func (s *setup) passTrusted(k kind, values []string, c *client) []string {
	switch k {
	case clientAddr:
		if c.addr != "" {
			return []string{c.addr}
		}
		return nil
	case fromProxy:
		return values
	}
	value := lastOf(values)
	switch {
	case k == host && s.fits(value, c),
		k == scheme && validScheme(value),
		k == port && value != "" && validPort(value),
		k == pathPrefix && validPrefix(value):
		if len(values) == 1 && values[0] == value {
			return values
		}
		return []string{value}
	}
	return nil
}

// fits reports whether a host that a trusted proxy names belongs to the site. Many
// proxies forward the value of their clients, so it must equal Host if rules look at
// hosts or the policy names no hosts. Otherwise X-Forwarded-Host is believed: see
// appendForwarded.
func (s *setup) fits(name string, c *client) bool {
	if s.HostsJudged || s.hosts == nil {
		return sameHost(name, c.host)
	}
	return s.hosts.status(name) == http.StatusOK
}

// validScheme reports whether a value is one that proxies use to report whether the
// client used TLS.
func validScheme(value string) bool {
	switch strings.ToLower(value) {
	case "http", "https", "ws", "wss", "on", "off", "ssl", "1", "0":
		return true
	}
	return false
}

// validPrefix reports whether a value is a path prefix that a proxy may have
// removed: plain segments that cannot lead to another host or folder.
func validPrefix(value string) bool {
	if value == "" || value[0] != '/' || strings.Contains(value, "//") || strings.Contains(value, "/.") {
		return false
	}
	for i := 0; i < len(value); i++ {
		if c := value[i]; !alphanumeric(c) && strings.IndexByte("/-._~", c) < 0 {
			return false
		}
	}
	return true
}

// noteOverride logs once that a method override was removed from a POST. The site's
// own pages may need method overrides; path overrides come from scanners.
func (s *setup) noteOverride(name, method string) {
	switch {
	case method != http.MethodPost:
	case name == "X-Http-Method-Override", name == "X-Http-Method", name == "X-Method-Override":
		s.overrideNoted.Do(func() {
			s.Log.Printf(
				"%s was removed from a POST: rules check only the method of the request line. If the site needs this header, "+
					"like the editor of WordPress, add keep_headers: %s to the policy. This message is not repeated", name,
				name)
		})
	}
}

// listed reports whether a header whose values are lists contains a lower-case
// token.
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

// copyAnswerHeader adds an answer's header to the client's answer, without the
// fields that belong to one connection.
func copyAnswerHeader(to, from http.Header) {
	dropConnectionFields(from)
	add(to, from)
}

// dropConnectionFields removes the fields of an answer that belong to one connection.
func dropConnectionFields(h http.Header) {
	for _, list := range h["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			if name = strings.Trim(name, " \t"); name != "" && name != "keep-alive" {
				h.Del(name)
			}
		}
	}
	for name := range h {
		if httpfield.IsOfConnection(name) {
			delete(h, name)
		}
	}
}

// add adds a header to another. They may share values afterwards.
func add(to, from http.Header) {
	for name, values := range from {
		if prior := to[name]; prior != nil {
			values = append(prior[:len(prior):len(prior)], values...)
		}
		to[name] = values
	}
}
