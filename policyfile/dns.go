package policyfile

import (
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"fairshare"
)

// DNS says whom names and lists are asked of.
type DNS struct {
	Server string // address and port; "" means the system's
	Lists  map[string]DNSList
}

// A DNSList is one of a DNSBL's zone and the file of a key for Project Honey
// Pot's http:BL.
type DNSList struct {
	Zone    string // lower case, no final dot
	KeyFile string // see File.Beside
}

const (
	maxDNSLists = 16
	maxListings = 64  // of one match
	maxCodes    = 256 // of one condition
)

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
		r.fault(n, "dns: "+example, "dns: an empty map says nothing")
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
		hint = "plain DNS is spoken: name a resolver nearby that encrypts for you"
	case found:
		hint = "server: " + shorten(strings.TrimRight(rest, "/"))
	case slices.Contains([]string{"system", "default", "auto", "none"}, strings.ToLower(s)):
		hint = "leave the key out: then the system's is asked"
	case strings.Contains(s, ","):
		hint = "one server; a resolver nearby can ask several"
	}
	r.fault(n, hint, "server: an address with a port is needed, not %s", quote(s))
	return ""
}

func readDNSLists(r *reader, n *node, d *DNS) {
	if n.kind != mapNode || len(n.entries) == 0 {
		r.fault(n, "lists: {dronebl: {zone: dnsbl.dronebl.org}}", "dns: lists: a map of names and zones is needed, not %s", n.describe())
		return
	}
	d.Lists = map[string]DNSList{}
	for i, e := range n.entries {
		name := e.key.text
		if _, twice := d.Lists[name]; twice {
			r.fault(e.key, "", "the DNS list %s stands twice", quote(name))
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
			r.fault(got.at("httpbl"), "make it two lists", "dns: httpbl beside zone: a list is one of them")
		case !got.has("zone") && !got.has("httpbl"):
			r.missing(e.value, name+": {zone: dnsbl.dronebl.org}", "dns: a list needs a zone or httpbl")
		}
		d.Lists[name] = list
	}
}

// zone reads the name that a DNS list is asked below.
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
			r.secret(key)
		}
		r.fault(n, "httpbl: honeypot.key, a file with the key", "zone: Project Honey Pot is asked with a key")
		return ""
	case strings.Contains(s, "://"):
		if u, err := url.Parse(s); err == nil {
			hint = "zone: " + shorten(u.Hostname())
		}
	case strings.HasPrefix(zone, "*.") || strings.HasPrefix(zone, "."):
		hint = "zone: " + shorten(strings.TrimLeft(zone, "*."))
	}
	// The query is the reversed address and the zone, within 253 letters.
	if hint != "" || !hostName(zone) || !strings.Contains(zone, ".") || len(zone) > maxHost-2*32 {
		r.fault(n, hint, "zone: a name as dnsbl.dronebl.org is needed, not %s", quote(s))
		return ""
	}
	return zone
}

// httpblKey is what a key of Project Honey Pot looks like.
var httpblKey = regexp.MustCompile(`^[a-z]{12}$`)

// keyFile reads the name of a file with a key; the key itself is a fault.
func (r *reader) keyFile(n *node) string {
	if n.kind == scalarNode && httpblKey.MatchString(n.text) {
		r.secret(n.text)
		r.fault(n, "write it into a file that fairshare alone may read, and name that: httpbl: honeypot.key", "httpbl: the name of a file is needed, not the key: a policy is shown and passed on")
		return ""
	}
	return r.fileName(n, "httpbl", "")
}

// secret notes what must not be shown with a fault.
func (r *reader) secret(s string) { r.secrets = append(r.secrets, s) }

// hostnames reads patterns for the names of addresses.
func (r *reader) hostnames(n *node) []string {
	list := []string{}
	for _, item := range r.list(n, "hostname") {
		s, ok := r.pattern(item, "hostname")
		if !ok {
			continue
		}
		name := strings.ToLower(strings.TrimSuffix(s, "."))
		hint := ""
		switch {
		case isRegexp(s):
			list = append(list, s)
			continue
		case strings.Contains(s, "://"):
			_, rest, _ := strings.Cut(s, "://")
			rest, _, _ = strings.Cut(rest, "/")
			hint = "hostname: " + shorten(rest)
		case looksLikeAddr(s):
			hint = "addr: " + shorten(s)
		case strings.HasPrefix(s, "."):
			hint = fmt.Sprintf("%q is all below it", "*"+shorten(s))
		case strings.ContainsAny(s, ", "):
			hint = "several values stand in brackets: [a, b]"
		}
		if hint != "" || !hostName(strings.ReplaceAll(name, "*", "x")) {
			r.fault(item, hint, "hostname: %s is no name of a host", quote(s))
			continue
		}
		list = append(list, name)
	}
	return list
}

// Domains whose names tell nothing of who is there: their addresses are let
// to anybody.
var rented = []string{"googleusercontent.com", "1e100.net", "amazonaws.com", "your-server.de", "linode.com", "vultr.com", "digitalocean.com", "cloudapp.azure.com"}

// crawlerDomains are the domains of addresses that a bot is verified by.
var crawlerDomains = map[string]string{
	"googlebot.com": "googlebot", "google.com": "googlebot", "search.msn.com": "bingbot", "applebot.apple.com": "applebot",
	"yandex.com": "yandexbot", "yandex.ru": "yandexbot", "yandex.net": "yandexbot", "crawl.baidu.com": "baiduspider", "crawl.baidu.jp": "baiduspider",
}

// warnHostnames looks at the hostnames of a match that does good.
func (r *reader) warnHostnames(n *node) {
	for _, item := range items(find(n, "hostname")) {
		s := strings.ToLower(item.text)
		if isRegexp(s) {
			if !strings.HasSuffix(s, "$") && !strings.HasSuffix(s, `\z`) {
				r.warn(item, "end it with $", `hostname: %s has no end: it fits names below other domains too, as example.org.example.net`, quote(item.text))
			}
			continue
		}
		domain := strings.TrimLeft(s, "*.")
		below := func(d string) bool { return domain == d || strings.HasSuffix(domain, "."+d) }
		bot := crawlerDomains[domain]
		switch {
		case domain == "":
			r.warn(item, "", "hostname: %s fits every address that has a name", quote(item.text))
		case bot != "":
			r.warn(item, "bot: "+bot, "hostname: %s is told from all that is below a domain: a bot is verified by the crawlers' addresses alone", quote(item.text))
		case slices.ContainsFunc(rented, below):
			r.warn(item, "", "hostname: %s: anybody can rent a machine with such a name", quote(item.text))
		case strings.HasPrefix(s, "*") && !strings.HasPrefix(s, "*."):
			r.warn(item, fmt.Sprintf("%q", "*."+domain), "hostname: %s fits the domains of others that end so", quote(item.text))
		case strings.HasSuffix(s, "*"):
			r.warn(item, "", "hostname: %s fits the domains of others that begin so", quote(item.text))
		}
	}
}

func listingKeys() []key[fairshare.Listing] {
	type listing = fairshare.Listing
	return []key[listing]{
		{"codes", func(r *reader, n *node, d *listing) { d.Codes = r.codes(n) }},
		{"type", func(r *reader, n *node, d *listing) { d.Types = r.listingTypes(n) }},
		{"threat", func(r *reader, n *node, d *listing) { d.Threat = uint8(r.integer(n, "threat", 1, 255)) }},
		{"age", func(r *reader, n *node, d *listing) { d.Days = r.days(n) }},
	}
}

// listings reads names of DNS lists, or a map of them and what counts.
func (r *reader) listings(n *node) []fairshare.Listing {
	list := []fairshare.Listing{}
	for _, item := range r.list(n, "listed") {
		if len(list) > maxListings {
			r.fault(item, "", "listed: more than %d conditions", maxListings)
			break
		}
		if item.kind != mapNode {
			if s, ok := r.text(item, "listed"); ok {
				list = r.listing(list, item, s, nil)
			}
			continue
		}
		if len(item.entries) == 0 {
			r.fault(item, "listed: dronebl", "listed: the name of a DNS list is needed")
		}
		seen := map[string]bool{}
		for _, e := range item.entries {
			if seen[e.key.text] {
				r.fault(e.key, "a list of maps can name it twice: [{…}, {…}]", "listed: %s stands twice in this map", quote(e.key.text))
				continue
			}
			seen[e.key.text] = true
			value := e.value
			if value.kind == nullNode {
				value = nil // {dronebl: } is dronebl
			}
			list = r.listing(list, e.key, e.key.text, value)
		}
	}
	return list
}

// listing appends the condition on one DNS list. terms is nil when it has
// none.
func (r *reader) listing(list []fairshare.Listing, at *node, name string, terms *node) []fairshare.Listing {
	from, known := r.file.DNS.Lists[name]
	if !known && r.full() {
		r.untold++
		return list
	}
	if !known {
		hint := didYouMean(name, slices.Sorted(maps.Keys(r.file.DNS.Lists)))
		switch {
		case r.file.Lists[name] != nil:
			hint = "addr: " + name
		case name == "zone" || name == "httpbl":
			hint = "dns: {lists: {NAME: {" + name + ": …}}}, then listed: NAME"
		case slices.Contains(names(listingKeys()), name):
			hint = "listed: {NAME: {" + name + ": …}}"
		case hint == "" && strings.Contains(name, ".") && hostName(name):
			hint = "dns: {lists: {NAME: {zone: " + shorten(name) + "}}}, then listed: NAME"
		case hint == "" && len(r.file.DNS.Lists) == 0:
			hint = "dns: {lists: {" + shorten(name) + ": {zone: …}}} says where it is asked"
		}
		if !r.broken {
			r.fault(at, hint, "listed: no DNS list is called %s", quote(name))
		}
		return list
	}
	l := fairshare.Listing{List: name, HTTPBL: from.KeyFile != ""}
	if terms != nil {
		got := readMap(r, terms, "listed", "{"+shorten(name)+": {codes: [3, 5]}}", listingKeys(), &l)
		switch {
		case got == nil:
		case from.KeyFile != "" && got.has("codes"):
			r.fault(got.at("codes"), "type, threat and age are for it", "codes: %s is asked by http:BL, whose answers are no codes", quote(name))
		case from.Zone != "" && (got.has("type") || got.has("threat") || got.has("age")):
			r.fault(got.at("type", "threat", "age"), "codes are for it", "type, threat and age are of http:BL, and %s is a zone", quote(name))
		}
	}
	return append(list, l)
}

// listingBits are the types of http:BL.
var listingBits = map[string]uint8{"suspicious": 1, "harvester": 2, "spammer": 4}

func (r *reader) listingTypes(n *node) uint8 {
	var types uint8
	for _, item := range r.list(n, "type") {
		s, ok := r.text(item, "type")
		if !ok {
			continue
		}
		if listingBits[s] != 0 {
			types |= listingBits[s]
			continue
		}
		hint := didYouMean(s, []string{"suspicious", "harvester", "spammer"})
		switch strings.ToLower(s) {
		case "search", "search engine", "search_engine", "0":
			hint = "search engines are never listed"
		case "1":
			hint = `did you mean "suspicious"?`
		case "2":
			hint = `did you mean "harvester"?`
		case "4", "spam", "comment spammer", "comment_spammer", "comment-spammer":
			hint = `did you mean "spammer"?`
		case "any", "all", "*":
			hint = "leave the key out"
		}
		r.fault(item, hint, "type: suspicious, harvester or spammer is needed, not %s", quote(s))
	}
	return types
}

// days reads an age of whole days.
func (r *reader) days(n *node) uint8 {
	const day = 24 * time.Hour
	if n.kind == scalarNode && plainDigits(n.text) {
		r.fault(n, "age: "+shorten(n.text)+"d", "age: a duration is needed, as 30d, not %s", n.describe())
		return 0
	}
	d := r.duration(n, "age", day, 255*day)
	if d%day != 0 {
		r.fault(n, fmt.Sprintf("age: %dd", d/day+1), "age: whole days are needed, not %s", n.describe())
	}
	return uint8(d / day)
}

// codes reads answers of a DNS list: the last number, an address or a prefix.
func (r *reader) codes(n *node) []netip.Prefix {
	list := []netip.Prefix{}
	for _, item := range r.list(n, "codes") {
		if len(list) > maxCodes {
			r.fault(item, "a prefix, as 127.0.0.0/28", "codes: more than %d", maxCodes)
			break
		}
		s, ok := r.text(item, "codes")
		if !ok {
			continue
		}
		if plainDigits(s) {
			if code, err := strconv.Atoi(s); err == nil && code >= 1 && code <= 255 {
				list = append(list, netip.PrefixFrom(netip.AddrFrom4([4]byte{127, 0, 0, byte(code)}), 32))
				continue
			}
		}
		p, err := parsePrefix(s)
		hint := ""
		switch first, last, found := strings.Cut(s, "-"); {
		case found && plainDigits(first) && plainDigits(last):
			hint = "each of them: [3, 5, 6]"
		case err == nil && refusals.Overlaps(p) && p.Bits() > 8:
			r.fault(item, "", "codes: with %s a list refuses to answer", s)
			continue
		case err == nil && p.Addr().Is4() && p.Bits() >= 8 && p.Addr().As4()[0] == 127:
			list = append(list, p)
			continue
		}
		r.fault(item, hint, "codes: a number from 1 to 255, or an answer as 127.0.0.5, is needed, not %s", quote(s))
	}
	return list
}

// refusals are answers of lists that do not serve who asks.
var refusals = netip.MustParsePrefix("127.255.255.0/24")

// publicResolvers are asked by so many that DNS lists refuse to answer them.
var publicResolvers = []string{
	"8.8.8.8", "8.8.4.4", "2001:4860:4860::8888", "2001:4860:4860::8844",
	"1.1.1.1", "1.0.0.1", "2606:4700:4700::1111", "2606:4700:4700::1001",
	"9.9.9.9", "149.112.112.112", "2620:fe::fe", "208.67.222.222", "208.67.220.220",
}

func (r *reader) warnDNS() {
	n := find(r.root, "dns")
	server, err := netip.ParseAddrPort(r.file.DNS.Server)
	if err == nil && len(r.file.DNS.Lists) > 0 && slices.Contains(publicResolvers, server.Addr().String()) {
		r.warn(place(find(n, "server")), "a resolver of your own", "server: many DNS lists refuse to answer public resolvers as %s", server.Addr())
	}
}

// warnListed tells when the addresses of all visitors are told to a third
// party. m is the match of a rule and n where it stands.
func (r *reader) warnListed(n *node, m *fairshare.Match) {
	at := listedNode(n)
	if at == nil {
		return
	}
	reads := m.Method == nil || slices.ContainsFunc(m.Method, func(s string) bool {
		return isRegexp(s) || strings.EqualFold(s, "GET") || strings.EqualFold(s, "HEAD")
	})
	everywhere := m.Path == nil || slices.ContainsFunc(m.Path, func(s string) bool { return isRegexp(s) || globCovers(s, "/some/page") })
	if reads && everywhere && m.Addr == nil && m.Bot == nil {
		r.warn(at, "method: POST, for those alone who send something", "listed: the address of every visitor is told to whoever runs the list")
	}
}

// listedNode returns where a match asks a DNS list, also below not.
func listedNode(n *node) *node {
	if at := find(n, "listed"); at != nil {
		return at
	}
	for _, not := range items(find(n, "not")) {
		if at := listedNode(not); at != nil {
			return at
		}
	}
	return nil
}
