package fairshare

import (
	"cmp"
	"fmt"
	"net/netip"
	"reflect"
)

// A Match is the yes/no test of a rule. Every field that is set must hold; a field
// holds if one of its values fits. The zero Match holds for every request. A text
// that begins with "re:" is an RE2 regexp, unanchored and case-sensitive.
//
// Servers may read a request in several ways (see [Request.Readings]), and a
// header, cookie, parameter or field may be sent twice or spelled differently. A match of
// a limit or a block is a restriction: a field holds if any reading fits. A match
// of an allow or of [BanTerms.Unless] is a permission: all readings must fit. Not
// turns a restriction into a permission, and a permission into a restriction.
type Match struct {
	Addr AddrSet  // the client address is in the set; nil means any
	Path []string // the whole path fits; "*" stands for any run of characters

	// Query maps the name of a parameter, with "*" as in Path, to texts. The
	// decoded value contains one of them, any case; "*" means any value.
	Query map[string][]string

	// Form maps the name of a field of the request's form to texts, as in Query. It holds in
	// a restriction, and not in a permission, if the fields are unknown: see [Request.Form].
	Form map[string][]string

	Host      []string            // the host without port and final dot, any case; "*" as in Path
	Method    []string            // equal, any case
	UserAgent []string            // contains one of the texts, any case; "" means absent or empty
	Cookie    []string            // "none": no valid cookie pair; "any"; else the name of a cookie, "*" as in Path
	Header    map[string][]string // name of a header → texts, as in UserAgent
	Hostname  []string            // a host name of the address (Lookups.Hostnames) fits, as in Host
	Listed    []Listing           // the address is on one of these DNS lists
	Label     []string            // the client has one of these labels, any case

	// Referer holds "none" (no Referer field, or one that is not a URL), "self" (the URL of
	// the request itself), "own" (another URL of the same host) and "other". A client can send
	// any Referer. While the host of a request is unknown, no URL is "own".
	Referer []string

	// ASN holds numbers of autonomous systems ("AS64500"), and texts that fit the
	// type or the name of the address's owner as a whole, any case; "*" as in Path.
	ASN []string

	// Seen holds for a client that got a page within the last day: its GET of a
	// path that fits, as in Path, was answered with a status from 200 to 299,
	// or 304.
	Seen []string

	// Bot holds "known", "verified", "forged", names and categories of bots. In a
	// permission they hold only for a verified bot that is not user-triggered. In a
	// restriction "known", names and categories hold for every client that claims
	// to be such a bot, whatever its state.
	Bot []string

	// State holds "verified", "pending", "forged" and "known" (it cannot be
	// verified), as [BotState.String] spells them. Operator holds operators of bots
	// (Bot.Operator), any case. Both hold for bots only. In a permission they hold
	// only for a verified bot that is not user-triggered.
	State, Operator []string

	// Browser holds "likely", "claimed" and "contradicted". In a restriction
	// "claimed" holds for each client whose user agent is that of a browser and that
	// is not likely to be one. In a permission only "likely" holds, and not for a
	// provisional client: the client makes up everything else.
	Browser []string

	// Robots holds "disallowed": Request.Robots says that the bot may not fetch this. It
	// holds for bots only, whatever their state. In a permission it holds only for a verified
	// bot that is not user-triggered.
	Robots []string

	// Attempt holds "login", "comment", "credentials", "excess" and "known". The first
	// three hold for a request that sends a login form, a comment, or
	// Basic or Bearer credentials. The word "excess" holds at a login or form under attack, if clients
	// like this one have used their budget. The word "known" holds for a client that has logged in
	// before.
	Attempt []string

	Not []Match // none of these holds
}

// An AddrSet is a set of addresses.
type AddrSet interface {
	// Contains reports whether a valid, unmapped address without zone is in
	// the set. It is safe for concurrent use.
	Contains(netip.Addr) bool
}

// Prefixes is an AddrSet for a few prefixes: it tests one after another.
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

// Values of Match.Cookie that are not names.
const (
	noCookie  = "none"
	anyCookie = "any"
)

// A field of a match.
type field uint8

// In the order in which newMatcher puts them: the cheap ones first.
const (
	methodField field = iota
	botField
	addrField
	ownerField
	browserField
	robotsField
	attemptField
	labelField
	hostField
	pathField
	cookieField
	refererField
	userAgentField
	headerField
	queryField
	formField
	notField
	seenField
	hostnameField
	listedField
)

// A condition is one compiled field of a match.
type condition struct {
	field    field
	name     string  // of the header, query parameter or field
	param    pattern // the name of the query parameter or field
	spelling string  // the name as appendSpelling has it; "" when param has several names
	patterns []pattern
	filter   *textFilter // of patterns; nil: it has none
	addrs    AddrSet
	paths    *pathSet
	bot      *botTest
	owner    *ownerTest
	listed   []Listing
	browsers browserSet
	attempts attemptSet
	referers refererSet
	none     bool // cookie: "none" is among the values
	any      bool // cookie: "any" is among the values
	not      matcher
	seen     uint8 // place in guard.seen
	standing
	bit int // user agent and query: place in textCache.conditions, from 1; 0: not remembered
}

// A matcher is a compiled Match: all conditions must hold, the cheap ones
// first.
type matcher []condition

// check returns the first fault of a match: what newMatcher would return. It
// reads regexps and does not compile them, which takes ten times as long.
func (m *Match) check(favorable bool) error {
	for _, texts := range [...][]string{m.Method, m.Label, m.Host, m.Path, m.Cookie, m.UserAgent, m.Hostname} {
		if err := checkPatterns(texts); err != nil {
			return err
		}
	}
	for _, texts := range m.Header {
		if err := checkPatterns(texts); err != nil {
			return err
		}
	}
	for _, parameters := range [...]map[string][]string{m.Query, m.Form} {
		for name, texts := range parameters {
			if err := cmp.Or(CheckPattern(name), checkPatterns(texts)); err != nil {
				return err
			}
		}
	}
	if _, err := newBotTest(m, favorable); err != nil {
		return err
	}
	if _, err := newOwnerTest(m.ASN); err != nil {
		return err
	}
	if _, err := newBrowserSet(m.Browser); err != nil {
		return err
	}
	if err := checkRobots(m.Robots); err != nil {
		return err
	}
	if _, err := newRefererSet(m.Referer); err != nil {
		return err
	}
	if _, err := newAttemptSet(m.Attempt); err != nil {
		return err
	}
	for _, l := range m.Listed {
		if l.Wait < 0 || l.Wait > MaxListWait {
			return fmt.Errorf("listed: %v is not between 0 and %v", l.Wait, MaxListWait)
		}
	}
	for i := range m.Not {
		if err := m.Not[i].check(!favorable); err != nil {
			return fmt.Errorf("match: %w", err)
		}
	}
	return nil
}

// A standing says what a match is for.
type standing struct {
	favorable bool // a permission: every reading of a request has to fit
	foldPaths bool // paths that differ in case only are the same
}

// not returns the standing of a match in Not.
func (s standing) not() standing {
	s.favorable = !s.favorable
	return s
}

// newMatcher compiles a match.
func newMatcher(m *Match, as standing) (matcher, error) {
	var conds matcher
	var errs []error
	add := func(f field, name string, texts []string, how patternKind) {
		if texts == nil {
			return
		}
		patterns, err := newPatterns(texts, how)
		if err != nil {
			errs = append(errs, err)
		}
		conds = append(conds, condition{field: f, name: name, patterns: patterns, filter: newTextFilter(patterns),
			standing: as})
	}
	add(methodField, "", m.Method, equalFold)
	if bot, err := newBotTest(m, as.favorable); err != nil {
		errs = append(errs, err)
	} else if bot != nil {
		conds = append(conds, condition{field: botField, bot: bot})
	}
	if m.Addr != nil {
		conds = append(conds, condition{field: addrField, addrs: m.Addr, standing: as})
	}
	if m.ASN != nil {
		owner, err := newOwnerTest(m.ASN)
		if err != nil {
			errs = append(errs, err)
		}
		conds = append(conds, condition{field: ownerField, owner: owner, standing: as})
	}
	if m.Browser != nil {
		browsers, err := newBrowserSet(m.Browser)
		if err != nil {
			errs = append(errs, err)
		}
		conds = append(conds, condition{field: browserField, browsers: browsers, standing: as})
	}
	if m.Robots != nil {
		if err := checkRobots(m.Robots); err != nil {
			errs = append(errs, err)
		}
		conds = append(conds, condition{field: robotsField, standing: as})
	}
	if m.Attempt != nil {
		attempts, err := newAttemptSet(m.Attempt)
		if err != nil {
			errs = append(errs, err)
		}
		conds = append(conds, condition{field: attemptField, attempts: attempts, standing: as})
	}
	add(labelField, "", m.Label, equalFold)
	add(hostField, "", m.Host, globFold)
	if m.Path != nil {
		paths, err := newPathSet(m.Path, as.foldPaths)
		if err != nil {
			errs = append(errs, err)
		}
		conds = append(conds, condition{field: pathField, paths: paths, standing: as})
	}
	if m.Cookie != nil {
		c := condition{field: cookieField, standing: as}
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
	if m.Referer != nil {
		referers, err := newRefererSet(m.Referer)
		if err != nil {
			errs = append(errs, err)
		}
		conds = append(conds, condition{field: refererField, referers: referers, standing: as})
	}
	add(userAgentField, "", m.UserAgent, contains)
	for _, name := range sortedKeys(m.Header) {
		add(headerField, canonicalHeader(name), m.Header[name], contains)
	}
	addParameters := func(f field, parameters map[string][]string) {
		for _, name := range sortedKeys(parameters) {
			param, err := newPattern(name, glob)
			if err != nil {
				errs = append(errs, err)
			}
			before := len(conds)
			add(f, name, parameters[name], anyValue)
			for i := range conds[before:] {
				c := &conds[before+i]
				if c.param = param; param.re == nil && len(param.parts) == 1 {
					c.spelling = string(appendSpelling(nil, name))
				}
			}
		}
	}
	addParameters(queryField, m.Query)
	addParameters(formField, m.Form)
	for i := range m.Not {
		not, err := newMatcher(&m.Not[i], as.not())
		if err != nil {
			errs = append(errs, err)
		}
		conds = append(conds, condition{field: notField, not: not})
	}
	if m.Seen != nil {
		paths, err := newPathSet(m.Seen, as.foldPaths)
		if err != nil {
			errs = append(errs, err)
		}
		conds = append(conds, condition{field: seenField, paths: paths})
	}
	// These are last: DNS is queried only for clients that everything else holds for.
	add(hostnameField, "", m.Hostname, globFold)
	if m.Listed != nil {
		conds = append(conds, condition{field: listedField, listed: m.Listed, standing: as})
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
		return c.holdsAddr(req)
	case botField:
		return c.bot.holds(&req.Bot)
	case ownerField:
		return c.holdsOwner(d)
	case browserField:
		return c.holdsBrowser(req)
	case robotsField:
		return c.holdsRobots(req)
	case attemptField:
		return c.attempts.holds(req)
	case labelField:
		return req.hasLabel(c.favorable, func(label string) bool { return matchAny(c.patterns, label, "") })
	case hostField:
		host := plainHost(req.Host)
		return matchAny(c.patterns, host, d.fold(host))
	case pathField:
		return c.holdsPath(d)
	case cookieField:
		return c.holdsCookie(d)
	case userAgentField, queryField:
		return c.holdsText(d)
	case headerField:
		return c.holdsHeader(d)
	case refererField:
		return c.holdsReferer(d)
	case formField:
		return c.holdsForm(d)
	case hostnameField:
		return c.holdsHostname(d)
	case listedField:
		return c.holdsListed(d)
	case seenField:
		return d.hasSeen(c.seen)
	case notField:
		return !c.not.holds(d)
	}
	return false
}

// holdsAddr looks at both addresses of a provisional client: one of them is
// enough for a restriction, a permission needs both.
func (c *condition) holdsAddr(req *Request) bool {
	client := req.Addr.IsValid() && c.addrs.Contains(req.Addr)
	if !req.Via.IsValid() || client != c.favorable {
		return client
	}
	return req.Via != ThroughSocket && c.addrs.Contains(req.Via)
}

// looksUp reports whether DNS facts about the address count. A provisional
// address never has a permission by them.
func (c *condition) looksUp(req *Request) bool {
	return req.Lookups != nil && req.Addr.IsValid() && !req.Proxy && !req.unnamed() &&
		!(c.favorable && req.Via.IsValid())
}

func (c *condition) holdsHostname(d *decision) bool {
	req := d.req
	if !c.looksUp(req) {
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
	if !c.looksUp(req) {
		return false
	}
	for i := range c.listed {
		if l := &c.listed[i]; l.holds(req.Lookups.Listed(l.List, req.Addr)) {
			return true
		}
	}
	return false
}

// holdsPath looks at every reading of an odd path.
func (c *condition) holdsPath(d *decision) bool {
	if !d.req.OddPath {
		return c.fitsPath(d, d.req.Path)
	}
	paths, complete := d.readings()
	if !complete {
		return !c.favorable
	}
	for _, path := range paths {
		if c.fitsPath(d, path) != c.favorable {
			return !c.favorable
		}
	}
	return c.favorable
}

// fitsPath looks at one reading. In a restriction "/login/" is "/login" too, as
// it is to many applications.
func (c *condition) fitsPath(d *decision, path string) bool {
	if c.paths.match(d, path) {
		return true
	}
	if c.favorable || len(path) < 2 || path[len(path)-1] != '/' {
		return false
	}
	return c.paths.match(d, trimSlash(path))
}

// holdsCookie takes a cookie as sent in a restriction when any server might; in
// a permission it has to be valid.
func (c *condition) holdsCookie(d *decision) bool {
	state := d.cookies()
	valid, sent := state == cookieValid, state != cookieNone
	if c.none && !(valid || c.favorable && sent) || c.any && (valid || !c.favorable && sent) {
		return true
	}
	if !sent || len(c.patterns) == 0 {
		return false
	}
	fits := false
	fit := func(name string) bool {
		fits = matchAny(c.patterns, name, "")
		return !fits
	}
	if c.favorable {
		cookies(d.req.Header, func(name, _ string) bool { return fit(name) })
	} else {
		cookieNames(d.req.Header, fit)
	}
	return fits
}

func (c *condition) holdsHeader(d *decision) bool {
	values := d.req.values(c.name)
	if len(values) == 0 {
		return matchAny(c.patterns, "", "")
	}
	for _, v := range values {
		if c.matchesText(v, d.fold(v)) != c.favorable {
			return !c.favorable
		}
	}
	return c.favorable
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

// isIdentityOnly reports whether m tests only the identity of clients: address,
// bot, host name or label.
func (m matcher) isIdentityOnly() bool {
	named := false
	for i := range m {
		switch {
		case m[i].field == addrField, m[i].field == botField, m[i].field == hostnameField, m[i].field == labelField,
			m[i].field == ownerField:
			named = true
		case m[i].field != notField || !m[i].not.isIdentityOnly():
			return false
		}
	}
	return named
}
