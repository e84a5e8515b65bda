package policyfile

import (
	"fmt"
	"net/netip"
	"strings"

	"fairshare"
)

const (
	maxHost  = 253 // how long a name may be (RFC 1035 §2.3.4)
	maxHosts = 10_000
)

// readHosts reads the names that the site is asked by.
func readHosts(r *reader, n *node, f *File) {
	f.Hosts = []string{}
	seen := map[string]bool{}
	items := r.list(n, "hosts")
	if len(items) > maxHosts {
		r.fault(n, "", "hosts: more than %d names", maxHosts)
		return
	}
	for _, item := range items {
		host, ok := r.host(item)
		if ok && !seen[host] {
			seen[host] = true
			f.Hosts = append(f.Hosts, host)
		}
	}
}

// host reads a name, an address, or "*." and a name. It is returned in lower
// case without a final dot; an IPv6 address as netip writes it, in brackets.
func (r *reader) host(n *node) (string, bool) {
	s, ok := r.text(n, "hosts")
	if !ok {
		return "", false
	}
	if addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]")); err == nil && addr.Zone() == "" {
		if s = addr.String(); addr.Is6() {
			s = "[" + s + "]"
		}
		return s, true
	}
	if _, rest, found := strings.Cut(s, "://"); found {
		name, _, _ := strings.Cut(rest, "/")
		r.fault(n, "hosts: "+name, "hosts: a name alone is needed, not %s", quote(s))
		return "", false
	}
	if name, port, found := strings.Cut(s, ":"); found && plainDigits(port) {
		r.fault(n, "hosts: "+name, "hosts: a name without port: a request's port is passed over")
		return "", false
	}
	if name, port, found := strings.Cut(s, "]:"); found && plainDigits(port) {
		r.fault(n, fmt.Sprintf("hosts: %q", name+"]"), "hosts: an address without port: a request's port is passed over")
		return "", false
	}
	host := strings.ToLower(strings.TrimSuffix(s, "."))
	name := strings.TrimPrefix(host, "*.")
	hint := ""
	switch {
	case s == "*":
		r.fault(n, "leave the key out: then every host is", "hosts: * is every host")
		return "", false
	case isRegexp(s):
		hint = `names, and "*.shop.example" for all below one`
	case strings.Contains(name, "*"):
		hint = `a star stands for whole names, in front: "*.shop.example"`
	case strings.HasPrefix(name, "."):
		hint = fmt.Sprintf("%q is all below it", "*"+name)
	case strings.ContainsAny(name, ", "):
		hint = "several values stand in brackets: [a, b]"
	case strings.Contains(name, "/"):
		name, _, _ := strings.Cut(name, "/")
		hint = "hosts: " + name
	case strings.ContainsFunc(name, func(c rune) bool { return c >= 0x80 }):
		hint = "as browsers send it, in ASCII: xn--…"
	}
	if hint != "" || !hostName(name) {
		r.fault(n, hint, "hosts: %s is no name of a host", quote(s))
		return "", false
	}
	return host, true
}

// hostName reports whether s is a name in lower case: labels of letters,
// digits, "-" and "_", joined by dots.
func hostName(s string) bool {
	if len(s) > maxHost {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
	}
	return true
}

// warnHosts tells of a rule whose hosts are all answered 421 if it lets them
// through.
func (r *reader) warnHosts(i int) {
	hosts, only := r.file.Hosts, r.file.Policy.Rules[i].Match.Host
	if len(hosts) == 0 || only == nil || len(hosts)*len(only) > maxCompared*maxCompared {
		return
	}
	if overlap(test{Match: &fairshare.Match{Host: hosts}}, test{Match: &fairshare.Match{Host: only}}) {
		return
	}
	at := place(find(r.rules[i].match, "host"), r.rules[i].node)
	r.warn(at, "add it to hosts, or leave the rule out", "host: none of these is among hosts: what comes through is answered 421")
}
