package proxy

import (
	"net/http"
	"net/netip"
	"strconv"
	"strings"
)

// Bounds of a DNS name without the final dot, of its labels (RFC 1035 §2.3.4), and
// of the digits of a port.
const (
	longestHost  = 253
	longestLabel = 63
	longestPort  = 5
)

// hosts are the names of a site.
type hosts struct {
	names map[string]bool
	below map[string]bool // domains, with the leading dot: any name below them
}

// newHosts reads names and "*.example.org". nil means any host.
func newHosts(list []string) *hosts {
	if list == nil {
		return nil
	}
	h := &hosts{names: make(map[string]bool), below: make(map[string]bool)}
	for _, host := range list {
		if below, found := strings.CutPrefix(host, "*."); found {
			h.below["."+strings.ToLower(strings.TrimSuffix(below, "."))] = true
		} else if a, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
			h.names[a.String()] = true
		} else {
			h.names[strings.ToLower(strings.TrimSuffix(host, "."))] = true
		}
	}
	return h
}

// HostStatus returns the status of a request for host at a proxy with these
// Config.Hosts: 400 if it is not a host, 421 if it is another host, else 200.
func HostStatus(list []string, host string) int { return newHosts(list).status(host) }

// HostTest returns a function that reports whether a host is one of Config.Hosts.
func HostTest(list []string) func(host string) bool {
	hosts := newHosts(list)
	return func(host string) bool { return host != "" && hosts.status(host) == http.StatusOK }
}

// status returns the same. A request of HTTP/1.0 may have no host.
func (h *hosts) status(host string) int {
	name, ok := hostName(host)
	switch {
	case !ok && host != "":
		return http.StatusBadRequest
	case h != nil && !h.have(name):
		return http.StatusMisdirectedRequest
	}
	return http.StatusOK
}

// have reports whether a name in the form of hostName is one of the hosts.
func (h *hosts) have(name string) bool {
	if h.names[name] {
		return true
	}
	for i := 1; i < len(name) && len(h.below) > 0; i++ {
		if name[i] == '.' && h.below[name[i:]] {
			return true
		}
	}
	return false
}

// hostName returns a host in lower case without port and final dot. A host is a
// name, an IPv4 address, or an IPv6 address in brackets; otherwise ok is false.
// Labels have letters, digits, "-" inside (RFC 1123 §2.1), and "_", which many sites
// use. Clients parse a name whose last label is a number as an IPv4 address, so such
// a name must be one in the usual form.
func hostName(host string) (name string, ok bool) {
	if inside, found := strings.CutPrefix(host, "["); found {
		addr, port, found := strings.Cut(inside, "]")
		a, err := netip.ParseAddr(addr)
		if !found || err != nil || !a.Is6() || a.Zone() != "" ||
			port != "" && (port[0] != ':' || !validPort(port[1:])) {
			return "", false
		}
		return a.String(), true
	}
	name, port, _ := strings.Cut(host, ":")
	name = strings.TrimSuffix(name, ".")
	if len(name) > longestHost || !validPort(port) {
		return "", false
	}
	last := name // the last label
	for rest, more := name, true; more; {
		last, rest, more = strings.Cut(rest, ".")
		if !validLabel(last) {
			return "", false
		}
	}
	if isNumber(last) {
		if a, err := netip.ParseAddr(name); err != nil || !a.Is4() {
			return "", false
		}
	}
	return strings.ToLower(name), true
}

// sameHost reports whether two hosts are equal apart from case, port and final dot.
func sameHost(a, b string) bool {
	nameA, okA := hostName(a)
	nameB, okB := hostName(b)
	return okA && okB && nameA == nameB
}

func validLabel(label string) bool {
	if label == "" || len(label) > longestLabel || label[0] == '-' || label[len(label)-1] == '-' {
		return false
	}
	for i := 0; i < len(label); i++ {
		if c := label[i]; !alphanumeric(c) && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// isNumber reports whether a label is a number in the syntax of addresses, such as
// in "1.2.3.4" and "0x7f000001".
func isNumber(label string) bool {
	if hex, found := strings.CutPrefix(strings.ToLower(label), "0x"); found {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

// validPort reports whether s is a port, or the empty text that may follow a host's
// colon (RFC 3986 §3.2.3).
func validPort(s string) bool {
	if s == "" {
		return true
	}
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0 && len(s) <= longestPort
}
