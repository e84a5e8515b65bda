package policyfile

import (
	"fmt"
	"net/netip"
	"strings"

	"fairshare"
)

const (
	maxHost  = 253 // bytes of a name (RFC 1035 §2.3.4)
	maxHosts = 10_000
)

// readHosts reads the host names of the site.
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

// host reads a name, an address, or "*." and a name. It returns a name in lower
// case without a final dot, and an IPv6 address as netip writes it, in brackets.
func (r *reader) host(n *node) (string, bool) {
	s, ok := r.text(n, "hosts")
	if !ok {
		return "", false
	}
	if addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]")); err == nil &&
		addr.Zone() == "" {
		if s = addr.String(); addr.Is6() {
			s = "[" + s + "]"
		}
		return s, true
	}
	if _, rest, found := strings.Cut(s, "://"); found {
		name, _, _ := strings.Cut(rest, "/")
		r.fault(n, "hosts: "+name, "hosts: a name without anything else is needed, not %s", quote(s))
		return "", false
	}
	if name, port, found := strings.Cut(s, ":"); found && plainDigits(port) {
		r.fault(n, "hosts: "+name, "hosts: a name without port: the port of a request is ignored")
		return "", false
	}
	if name, port, found := strings.Cut(s, "]:"); found && plainDigits(port) {
		r.fault(n, fmt.Sprintf("hosts: %q", name+"]"),
			"hosts: an address without port: the port of a request is ignored")
		return "", false
	}
	host := strings.ToLower(strings.TrimSuffix(s, "."))
	name := strings.TrimPrefix(host, "*.")
	hint := ""
	switch {
	case s == "*":
		r.fault(n, "remove the key: every host is served by default", "hosts: * means every host")
		return "", false
	case isRegexp(s):
		hint = `use names, and "*.shop.example" for all names below one`
	case strings.Contains(name, "*"):
		hint = `a star stands for whole labels at the beginning: "*.shop.example"`
	case strings.HasPrefix(name, "."):
		hint = fmt.Sprintf("%q matches all names below it", "*"+name)
	case strings.ContainsAny(name, ", "):
		hint = "write several values in brackets: [a, b]"
	case strings.Contains(name, "/"):
		name, _, _ := strings.Cut(name, "/")
		hint = "hosts: " + name
	case strings.ContainsFunc(name, func(c rune) bool { return c >= 0x80 }):
		hint = "write it in ASCII, as browsers send it: xn--…"
	}
	if hint != "" || !hostName(name) {
		r.fault(n, hint, "hosts: %s is not a host name", quote(s))
		return "", false
	}
	return host, true
}

// hostName reports whether s is a host name in lower case: labels joined by dots.
// A label has letters, digits, "_" and, not at its ends, "-". The last label is
// not a number.
func hostName(s string) bool {
	if len(s) > maxHost {
		return false
	}
	last := ""
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" ||
			label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		last = label
	}
	if hex, found := strings.CutPrefix(last, "0x"); found && strings.Trim(hex, "0123456789abcdef") == "" {
		return false
	}
	return !plainDigits(last)
}

// warnHosts warns of a rule that never matters: serve answers all requests for its
// hosts with 421, because they are not in hosts.
func (r *reader) warnHosts(i int) {
	hosts, only := r.file.Hosts, r.file.Policy.Rules[i].Match.Host
	if len(hosts) == 0 || only == nil || len(hosts)*len(only) > maxCompared*maxCompared {
		return
	}
	if overlap(condition{Match: &fairshare.Match{Host: hosts}}, condition{Match: &fairshare.Match{Host: only}}) {
		return
	}
	at := firstNode(find(r.rules[i].match, "host"), r.rules[i].node)
	r.warn(at, "add it to hosts, or remove the rule",
		"host: none of these is in hosts: requests for them are answered with 421")
}
