package fairshare

import (
	"fmt"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strings"
)

// A Match is the yes/no test of a rule: every field given must hold; within a
// field, any value may. The zero Match holds for every request. A text that
// begins with "re:" is an RE2 regexp, unanchored and case-sensitive.
type Match struct {
	Addr      AddrSet             // the client address is in the set; nil means any
	Path      []string            // the path fits as a whole; "*" for any run of characters
	Query     map[string][]string // parameter ("*" means any) → texts that its decoded value contains, any case; "*" means any value
	Host      []string            // the host without port and final dot, any case; "*" as in Path
	Method    []string            // equal, any case
	UserAgent []string            // contains one of the texts, any case; "" means absent or empty
	Cookie    []string            // "none": no valid cookie pair; "any"; else a cookie's name; "*" as in Path
	Header    map[string][]string // header → texts, as UserAgent
	Hostname  []string            // a name that leads back to the address fits, as Host
	Listed    []Listing           // the address is on one of these DNS lists
	Label     []string            // the registry holds one of these labels for the client, any case

	// Bot holds "known", "verified", "forged", names and categories of bots.
	// Where it does a client good to fit (in an allow, in what a ban spares,
	// in Not of a limit or block) only a verified bot does, and none that is
	// steered. Elsewhere "known" is every bot, and names and categories are
	// those of bots that are verified or cannot be checked.
	Bot []string

	Not []Match // none of which may hold
}

// An AddrSet is a set of addresses.
type AddrSet interface {
	// Contains reports whether a valid, unmapped address without zone is in
	// the set. It is safe for concurrent use.
	Contains(netip.Addr) bool
}

// Prefixes is a small AddrSet, searched one by one.
type Prefixes []netip.Prefix

// Contains implements [AddrSet].
func (p Prefixes) Contains(addr netip.Addr) bool {
	for _, prefix := range p {
		if prefix.Contains(addr) {
			return true
		}
	}
	return false
}

// Words of Match.Cookie that are no names.
const (
	noCookie  = "none"
	anyCookie = "any"
)

// A field of a match.
type field uint8

const (
	methodField field = iota
	botField
	addrField
	hostField
	pathField
	cookieField
	userAgentField
	headerField
	queryField
	notField
	hostnameField
	listedField
	labelField
)

// A condition is one compiled field of a match.
type condition struct {
	field    field
	name     string // of the header or query parameter
	patterns []pattern
	addrs    AddrSet
	paths    *pathSet
	bot      *botTest
	listed   []Listing
	none     bool // cookie: "none" is among the values
	any      bool // cookie: "any" is among the values
	not      matcher
	bit      int // user agent: place among the conditions that are remembered, from 1; 0: not remembered
}

// A matcher is a compiled Match: all conditions must hold, the cheap ones
// first.
type matcher []condition

// newMatcher compiles a match. kind says that it does a client good to fit.
func newMatcher(m *Match, kind bool) (matcher, error) {
	var conds matcher
	var errs []error
	add := func(f field, name string, texts []string, kind patternKind) {
		if texts == nil {
			return
		}
		patterns, err := newPatterns(texts, kind)
		if err != nil {
			errs = append(errs, err)
		}
		conds = append(conds, condition{field: f, name: name, patterns: patterns})
	}
	add(methodField, "", m.Method, equalFold)
	if m.Bot != nil {
		bot, err := newBotTest(m.Bot, kind)
		if err != nil {
			errs = append(errs, err)
		}
		conds = append(conds, condition{field: botField, bot: bot})
	}
	if m.Addr != nil {
		conds = append(conds, condition{field: addrField, addrs: m.Addr})
	}
	add(labelField, "", m.Label, equalFold)
	add(hostField, "", m.Host, globFold)
	if m.Path != nil {
		paths, err := newPathSet(m.Path)
		if err != nil {
			errs = append(errs, err)
		}
		conds = append(conds, condition{field: pathField, paths: paths})
	}
	if m.Cookie != nil {
		c := condition{field: cookieField}
		var names []string
		for _, s := range m.Cookie {
			switch s {
			case noCookie:
				c.none = true
			case anyCookie:
				c.any = true
			default:
				names = append(names, s)
			}
		}
		var err error
		if c.patterns, err = newPatterns(names, glob); err != nil {
			errs = append(errs, err)
		}
		conds = append(conds, c)
	}
	add(userAgentField, "", m.UserAgent, contains)
	for _, name := range sortedKeys(m.Header) {
		add(headerField, canonicalHeader(name), m.Header[name], contains)
	}
	for _, name := range sortedKeys(m.Query) {
		add(queryField, name, m.Query[name], anyValue)
	}
	for i := range m.Not {
		not, err := newMatcher(&m.Not[i], !kind)
		if err != nil {
			errs = append(errs, err)
		}
		conds = append(conds, condition{field: notField, not: not})
	}
	// Last, so that others are asked only about whom all else holds for.
	add(hostnameField, "", m.Hostname, globFold)
	if m.Listed != nil {
		conds = append(conds, condition{field: listedField, listed: m.Listed})
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("match: %w", errs[0])
	}
	return conds, nil
}

// holds reports whether every condition does.
func (m matcher) holds(d *decision) bool {
	for i := range m {
		if !m[i].holds(d) {
			return false
		}
	}
	return true
}

func (c *condition) holds(d *decision) bool {
	req := d.req
	switch c.field {
	case methodField:
		return matchAny(c.patterns, req.Method, "")
	case addrField:
		return req.Addr.IsValid() && c.addrs.Contains(req.Addr)
	case botField:
		return c.bot.holds(&req.Bot)
	case labelField:
		return slices.ContainsFunc(req.Word.Labels, func(label string) bool { return matchAny(c.patterns, label, "") })
	case hostField:
		host := plainHost(req.Host)
		return matchAny(c.patterns, host, d.fold(host))
	case pathField:
		return c.paths.match(req.Path)
	case cookieField:
		return c.holdsCookie(d)
	case userAgentField:
		return c.holdsUserAgent(d)
	case headerField:
		return c.holdsHeader(d)
	case queryField:
		return c.holdsQuery(d)
	case hostnameField:
		return c.holdsHostname(d)
	case listedField:
		return c.holdsListed(d)
	case notField:
		return !c.not.holds(d)
	}
	return false
}

func (c *condition) holdsHostname(d *decision) bool {
	req := d.req
	if req.Lookups == nil || !req.Addr.IsValid() || req.Proxy || req.Suspect {
		return false
	}
	for _, name := range req.Lookups.Hostnames(req.Addr) {
		if matchAny(c.patterns, name, name) {
			return true
		}
	}
	return false
}

func (c *condition) holdsListed(d *decision) bool {
	req := d.req
	if req.Lookups == nil || !req.Addr.IsValid() || req.Proxy || req.Suspect {
		return false
	}
	for i := range c.listed {
		if l := &c.listed[i]; l.holds(req.Lookups.Listed(l.List, req.Addr)) {
			return true
		}
	}
	return false
}

func (c *condition) holdsCookie(d *decision) bool {
	has := d.hasCookie()
	if c.none && !has || c.any && has {
		return true
	}
	if !has || len(c.patterns) == 0 {
		return false
	}
	fits := false
	cookies(d.req.Header, func(name, _ string) bool {
		fits = matchAny(c.patterns, name, "")
		return !fits
	})
	return fits
}

func (c *condition) holdsHeader(d *decision) bool {
	values := d.req.values(c.name)
	if len(values) == 0 {
		return matchAny(c.patterns, "", "")
	}
	for _, v := range values {
		if matchAny(c.patterns, v, d.fold(v)) {
			return true
		}
	}
	return false
}

// holdsQuery looks at every value of the parameter, wherever it stands, or of
// all of them. What does not decode is compared as it stands.
func (c *condition) holdsQuery(d *decision) bool {
	for query := d.req.Query; query != ""; {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		key, value, _ := strings.Cut(pair, "=")
		if c.name != "*" && unescape(key) != c.name {
			continue
		}
		value = unescape(value)
		if matchAny(c.patterns, value, d.fold(value)) {
			return true
		}
	}
	return false
}

func unescape(s string) string {
	if strings.IndexByte(s, '%') < 0 && strings.IndexByte(s, '+') < 0 {
		return s
	}
	if u, err := url.QueryUnescape(s); err == nil {
		return u
	}
	return s
}

// same reports whether two matches are certain to hold for the same requests.
func same(m, n *Match) bool { return !m.setOfAddrs() && !n.setOfAddrs() && reflect.DeepEqual(m, n) }

// setOfAddrs reports whether m looks at an AddrSet, which may change, and
// cannot be compared.
func (m *Match) setOfAddrs() bool {
	for i := range m.Not {
		if m.Not[i].setOfAddrs() {
			return true
		}
	}
	return m.Addr != nil
}

// looksAt reports whether f is asked for anywhere in m.
func (m matcher) looksAt(f field) bool {
	for i := range m {
		if m[i].field == f || m[i].not.looksAt(f) {
			return true
		}
	}
	return false
}

// onlyWho reports whether m names clients by who they are alone.
func (m matcher) onlyWho() bool {
	named := false
	for i := range m {
		switch {
		case m[i].field == addrField, m[i].field == botField, m[i].field == hostnameField, m[i].field == labelField:
			named = true
		case m[i].field != notField || !m[i].not.onlyWho():
			return false
		}
	}
	return named
}
