package policyfile

import (
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// DNS names the DNS server and the DNS lists.
type DNS struct {
	Server string // address and port; "" means the system's
	Lists  map[string]DNSList
}

// A DNSList has either the zone of a DNSBL, or the file with an access key for
// Project Honey Pot's http:BL.
type DNSList struct {
	Zone    string // lower case, no final dot
	KeyFile string // see File.ResolvePath
}

const maxDNSLists = 16

func dnsKeys() []key[DNS] {
	return []key[DNS]{
		{"server", func(r *reader, n *node, d *DNS) { d.Server = r.dnsServer(n) }},
		{"lists", readDNSLists},
	}
}

func dnsListKeys() []key[DNSList] {
	return []key[DNSList]{
		{"zone", func(r *reader, n *node, d *DNSList) { d.Zone = r.zone(n) }},
		{"httpbl", func(r *reader, n *node, d *DNSList) { d.KeyFile = r.keyFile(n) }},
	}
}

func readDNS(r *reader, n *node, f *File) {
	example := "{server: 127.0.0.1:53}"
	if n.kind == scalarNode && n.text != "" {
		example = "{server: " + shorten(n.text) + "}"
	}
	if got := readMap(r, n, "dns", example, dnsKeys(), &f.DNS); got != nil && len(n.entries) == 0 {
		r.fault(n, "dns: "+example, "dns: the map is empty")
	}
}

// dnsServer reads the address of a DNS server; the port may be left out.
func (r *reader) dnsServer(n *node) string {
	s := r.line(n, "server")
	if s == "" {
		return ""
	}
	if addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]")); err == nil {
		return netip.AddrPortFrom(addr, 53).String()
	}
	if addr, err := netip.ParseAddrPort(s); err == nil && addr.Port() > 0 {
		return addr.String()
	}
	hint := "server: 127.0.0.1:53"
	switch scheme, rest, found := strings.Cut(s, "://"); {
	case found && (scheme == "https" || scheme == "tls" || scheme == "quic"):
		hint = "only plain DNS is supported: name a local resolver that encrypts"
	case found:
		hint = "server: " + shorten(strings.TrimRight(rest, "/"))
	case slices.Contains([]string{"system", "default", "auto", "none"}, strings.ToLower(s)):
		hint = "remove the key to use the system's resolver"
	case strings.Contains(s, ","):
		hint = "name one server; a local resolver can ask several"
	}
	r.fault(n, hint, "server: an address with a port is needed, not %s", quote(s))
	return ""
}

func readDNSLists(r *reader, n *node, d *DNS) {
	if n.kind != mapNode || len(n.entries) == 0 {
		r.fault(n, "lists: {dronebl: {zone: dnsbl.dronebl.org}}",
			"dns: lists: a map of names and zones is needed, not %s", n.describe())
		return
	}
	d.Lists = map[string]DNSList{}
	for i, e := range n.entries {
		name := e.key.text
		if _, twice := d.Lists[name]; twice {
			r.fault(e.key, "", "the DNS list %s is listed twice", quote(name))
			continue
		}
		switch {
		case i == maxDNSLists:
			r.fault(e.key, "", "dns: more than %d lists", maxDNSLists)
			return
		case name == "" || strings.ContainsFunc(name, control):
			r.fault(e.key, "", "a DNS list needs a name, without control characters")
			continue
		case len(n.entries) == 1 && (name == "zone" || name == "httpbl"):
			r.fault(e.key, "lists: {NAME: {"+name+": …}}", "dns: lists: a name is needed first")
			continue
		}
		var list DNSList
		if e.value.kind == scalarNode && httpblKey.MatchString(e.value.text) {
			list.KeyFile = r.keyFile(e.value)
			d.Lists[name] = list
			continue
		}
		example := "{zone: dnsbl.dronebl.org}"
		if e.value.kind == scalarNode && strings.Contains(e.value.text, ".") {
			example = "{zone: " + shorten(e.value.text) + "}"
		}
		got := readMap(r, e.value, name, example, dnsListKeys(), &list)
		switch {
		case got == nil:
		case got.has("zone") && got.has("httpbl"):
			r.fault(got.at("httpbl"), "make it two lists", "dns: httpbl and zone: a list has only one of them")
		case !got.has("zone") && !got.has("httpbl"):
			r.missing(e.value, name+": {zone: dnsbl.dronebl.org}", "dns: a list needs a zone or httpbl")
		}
		d.Lists[name] = list
	}
}

// zone reads the domain of a DNS list. Queries are for names below it.
func (r *reader) zone(n *node) string {
	s := r.line(n, "zone")
	if s == "" {
		return ""
	}
	zone := strings.ToLower(strings.TrimSuffix(s, "."))
	hint := ""
	switch {
	case zone == "dnsbl.httpbl.org" || strings.HasSuffix(zone, ".dnsbl.httpbl.org"):
		if key, _, _ := strings.Cut(zone, "."); httpblKey.MatchString(key) {
			r.hideSecret(key)
		}
		r.fault(n, "httpbl: honeypot.key, a file with the key", "zone: Project Honey Pot needs a key")
		return ""
	case strings.Contains(s, "://"):
		if u, err := url.Parse(s); err == nil {
			hint = "zone: " + shorten(u.Hostname())
		}
	case strings.HasPrefix(zone, "*.") || strings.HasPrefix(zone, "."):
		hint = "zone: " + shorten(strings.TrimLeft(zone, "*."))
	}
	// A query is the reversed address and the zone, at most 253 bytes in total.
	if hint != "" || !hostName(zone) || !strings.Contains(zone, ".") || len(zone) > maxHost-2*32 {
		r.fault(n, hint, "zone: a name such as dnsbl.dronebl.org is needed, not %s", quote(s))
		return ""
	}
	return zone
}

// httpblKey matches an access key of Project Honey Pot.
var httpblKey = regexp.MustCompile(`^[a-z]{12}$`)

// keyFile reads the name of a file with an access key. The key itself is a fault.
func (r *reader) keyFile(n *node) string {
	if n.kind == scalarNode && httpblKey.MatchString(n.text) {
		r.hideSecret(n.text)
		r.fault(n, "write the key into a file that only fairshare can read, and name the file: httpbl: honeypot.key",
			"httpbl: the name of a file is needed, not the key itself: policies get shared")
		return ""
	}
	return r.fileName(n, "httpbl", "")
}

// hideSecret registers a text that messages must not show.
func (r *reader) hideSecret(s string) { r.secrets = append(r.secrets, s) }

// publicResolvers have so many users that DNS lists refuse to answer them.
var publicResolvers = []string{
	"8.8.8.8", "8.8.4.4", "2001:4860:4860::8888", "2001:4860:4860::8844",
	"1.1.1.1", "1.0.0.1", "2606:4700:4700::1111", "2606:4700:4700::1001",
	"9.9.9.9", "149.112.112.112", "2620:fe::fe", "208.67.222.222", "208.67.220.220",
}

// warnDNS warns of DNS lists behind a public resolver: their answers would be
// refusals, so conditions on them would never hold.
func (r *reader) warnDNS() {
	n := find(r.root, "dns")
	server, err := netip.ParseAddrPort(r.file.DNS.Server)
	if err == nil && len(r.file.DNS.Lists) > 0 && slices.Contains(publicResolvers, server.Addr().String()) {
		r.warn(firstNode(find(n, "server")), "use your own resolver",
			"server: many DNS lists refuse to answer public resolvers such as %s", server.Addr())
	}
}
