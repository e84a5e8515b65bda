package policyfile

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"fairshare"
	"fairshare/internal/prose"
)

const (
	maxListings = 64  // conditions on DNS lists in one match
	maxCodes    = 256 // codes of one condition
)

func listingKeys() []key[fairshare.Listing] {
	type listing = fairshare.Listing
	return []key[listing]{
		{"codes", func(r *reader, n *node, d *listing) { d.Codes = r.codes(n) }},
		{"type", func(r *reader, n *node, d *listing) { d.Types = r.listingTypes(n) }},
		{"threat", func(r *reader, n *node, d *listing) { d.Threat = uint8(r.integer(n, "threat", 1, 255)) }},
		{"wait", func(r *reader, n *node, d *listing) {
			d.Wait = r.duration(n, "wait", time.Millisecond, fairshare.MaxListWait)
		}},
		{"age", func(r *reader, n *node, d *listing) { d.Days = r.days(n) }},
	}
}

// listings reads names of DNS lists, or a map of names to the answers that count.
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
				r.fault(e.key, "a list of maps can name it twice: [{…}, {…}]", "listed: %s is in this map twice",
					quote(e.key.text))
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

// listing appends the condition on one DNS list. terms is nil if every answer
// counts.
func (r *reader) listing(list []fairshare.Listing, at *node, name string, terms *node) []fairshare.Listing {
	from, known := r.file.DNS.Lists[name]
	if !known && r.tooManyFaults() {
		r.omitted++
		return list
	}
	if !known {
		hint := prose.DidYouMean(name, slices.Sorted(maps.Keys(r.file.DNS.Lists)))
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
			hint = "dns: {lists: {" + shorten(name) + ": {zone: …}}} defines it"
		}
		if !r.broken {
			r.fault(at, hint, "listed: there is no DNS list %s", quote(name))
		}
		return list
	}
	l := fairshare.Listing{List: name, HTTPBL: from.KeyFile != ""}
	if terms != nil {
		got := readMap(r, terms, "listed", "{"+shorten(name)+": {codes: [3, 5]}}", listingKeys(), &l)
		switch {
		case got == nil:
		case from.KeyFile != "" && got.has("codes"):
			r.fault(got.at("codes"), "use type, threat and age",
				"codes: %s uses http:BL, whose answers are not codes", quote(name))
		case from.Zone != "" && (got.has("type") || got.has("threat") || got.has("age")):
			r.fault(got.at("type", "threat", "age"), "use codes",
				"type, threat and age belong to http:BL, and %s is a zone", quote(name))
		}
	}
	return append(list, l)
}

// listingBits are the bits of http:BL's visitor types.
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
		hint := prose.DidYouMean(s, []string{"suspicious", "harvester", "spammer"})
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
			hint = "remove the key"
		}
		r.fault(item, hint, "type: suspicious, harvester or spammer is needed, not %s", quote(s))
	}
	return types
}

// days reads an age of whole days.
func (r *reader) days(n *node) uint8 {
	const day = 24 * time.Hour
	if n.kind == scalarNode && plainDigits(n.text) {
		r.fault(n, "age: "+shorten(n.text)+"d", "age: a duration is needed, such as 30d, not %s", n.describe())
		return 0
	}
	d := r.duration(n, "age", day, 255*day)
	if d%day != 0 {
		r.fault(n, fmt.Sprintf("age: %dd", d/day+1), "age: whole days are needed, not %s", n.describe())
	}
	return uint8(d / day)
}

// codes reads answers of a DNS list: the last byte, an address or a prefix.
func (r *reader) codes(n *node) []netip.Prefix {
	list := []netip.Prefix{}
	for _, item := range r.list(n, "codes") {
		if len(list) > maxCodes {
			r.fault(item, "a prefix such as 127.0.0.0/28", "codes: more than %d", maxCodes)
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
			r.fault(item, "", "codes: %s means that the list refuses to answer", s)
			continue
		case err == nil && p.Addr().Is4() && p.Bits() >= 8 && p.Addr().As4()[0] == 127:
			list = append(list, p)
			continue
		}
		r.fault(item, hint, "codes: a number from 1 to 255, or an answer such as 127.0.0.5, is needed, not %s",
			quote(s))
	}
	return list
}

// refusals are answers by which a list refuses to serve the client.
var refusals = netip.MustParsePrefix("127.255.255.0/24")

// warnListed warns of a rule by which a third party, the operator of a DNS list,
// learns the addresses of all visitors. n is the node of the match m.
func (r *reader) warnListed(n *node, m *fairshare.Match) {
	at := listedNode(n)
	if at == nil {
		return
	}
	reads := m.Method == nil || slices.ContainsFunc(m.Method, func(s string) bool {
		return isRegexp(s) || strings.EqualFold(s, "GET") || strings.EqualFold(s, "HEAD")
	})
	everywhere := m.Path == nil || slices.ContainsFunc(m.Path,
		func(s string) bool { return isRegexp(s) || globCovers(s, "/some/page") })
	if reads && everywhere && m.Attempt == nil && m.Addr == nil && !m.TestsBots() && m.Label == nil {
		r.warn(at, "add method: POST, to look up only clients that send data",
			"listed: the operator of the list learns the address of every visitor")
	}
}

// listedNode returns the first condition on a DNS list in a match, also in not.
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
