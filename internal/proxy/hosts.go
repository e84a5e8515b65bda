package proxy

import (
	"net/netip"
	"strings"
)

// longestHost is a DNS name's length at most (RFC 1035 §2.3.4), without the
// final dot.
const longestHost = 253

// hosts are the names that a site is asked by.
type hosts struct {
	names map[string]bool
	below map[string]bool // domains, with the leading dot: any name below them
}

// newHosts reads names and "*.example.org". nil means any host at all.
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

// HasHost reports whether a request for host reaches a site with these
// Config.Hosts.
func HasHost(list []string, host string) bool {
	h := newHosts(list)
	return h == nil || h.have(host)
}

// have reports whether host, as a request names it, is one of them. Case, port
// and final dot are passed over.
func (h *hosts) have(host string) bool {
	name, ok := hostName(host)
	if !ok {
		return false
	}
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

// hostName returns a host in lower case without port and final dot. It is not
// ok when that cannot be told apart for certain.
func hostName(host string) (name string, ok bool) {
	if inside, found := strings.CutPrefix(host, "["); found {
		addr, port, found := strings.Cut(inside, "]")
		a, err := netip.ParseAddr(addr)
		return a.String(), found && err == nil && a.Is6() && (port == "" || port[0] == ':' && digits(port[1:]))
	}
	name, port, _ := strings.Cut(host, ":")
	name = strings.TrimSuffix(name, ".")
	if len(name) > longestHost {
		return "", false
	}
	name = strings.ToLower(name)
	return name, name != "" && name[len(name)-1] != '.' && digits(port)
}

func digits(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}
