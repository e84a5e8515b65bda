package fairshare

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unsafe"
)

// A Site is one of several sites behind the same guard. A request belongs to the site
// that has its host.
type Site struct {
	Name string // unique in its policy, not empty; see also Rule.Site

	// Hosts are exact names, "*.example.org" for any name below it, and "*" for every host
	// that no other site has. Case and the final dot do not matter. No two sites have the
	// same host.
	Hosts []string

	// OwnRules says that only the rules with this Site hold for its requests. Otherwise
	// only the rules without a Site do.
	OwnRules bool
}

// Sites finds the site of a host. A nil *Sites has no site. It is safe for concurrent use.
type Sites struct {
	names map[string]int32
	below map[string]int32 // by domain with the leading dot
	any   int32            // of "*"; −1: none
}

// longestSiteHost bounds the hosts that are looked up: RFC 1035 §2.3.4.
const longestSiteHost = 253

// NewSites returns the table of all hosts of sites. The error names a host that is empty or
// that two sites have. Without sites the result is nil.
func NewSites(sites []Site) (*Sites, error) {
	if len(sites) == 0 {
		return nil, nil
	}
	s := &Sites{names: map[string]int32{}, below: map[string]int32{}, any: -1}
	var errs []error
	for i, site := range sites {
		for _, host := range site.Hosts {
			name, table := strings.ToLower(strings.TrimSuffix(host, ".")), s.names
			if below, found := strings.CutPrefix(name, "*."); found {
				name, table = "."+below, s.below
			}
			if inside, found := strings.CutPrefix(name, "["); found {
				if a, err := netip.ParseAddr(strings.TrimSuffix(inside, "]")); err == nil {
					name = "[" + a.String() + "]"
				}
			}
			first, twice := table[name]
			if name == "*" {
				first, twice = s.any, s.any >= 0
				s.any = int32(i)
			}
			switch {
			case name == "" || name == "." || len(name) > longestSiteHost:
				errs = append(errs, fmt.Errorf("site %s: %q is not a host", site.Name, host))
			case twice && int(first) != i:
				errs = append(errs, fmt.Errorf("site %s: site %s has the host %s too", site.Name, sites[first].Name,
					host))
			case name != "*":
				table[name] = int32(i)
			}
		}
	}
	return s, errors.Join(errs...)
}

// Find returns the index of the site of a host as sent in a request, −1 if there is none.
// Port, case and final dot do not matter. An exact name comes first, then the longest
// "*." pattern, then "*". A request without a host has no site.
func (s *Sites) Find(host string) int {
	if s == nil || host == "" {
		return -1
	}
	name := plainHost(host)
	if len(name) > longestSiteHost {
		return int(s.any)
	}
	for i := 0; i < len(name); i++ {
		if c := name[i]; c >= 'A' && c <= 'Z' || c == '[' {
			var space [longestSiteHost]byte
			if c == '[' {
				if a, err := netip.ParseAddr(strings.TrimSuffix(name[1:], "]")); err == nil {
					return s.find(append(a.AppendTo(append(space[:0], '[')), ']'))
				}
			}
			return s.find(appendLower(space[:0], name))
		}
	}
	return s.find(unsafe.Slice(unsafe.StringData(name), len(name)))
}

// find is Find for a name in lower case. It does not change name.
func (s *Sites) find(name []byte) int {
	if i, ok := s.names[string(name)]; ok {
		return int(i)
	}
	for i := 1; i < len(name) && len(s.below) > 0; i++ {
		if name[i] == '.' {
			if site, ok := s.below[string(name[i:])]; ok {
				return int(site)
			}
		}
	}
	return int(s.any)
}

// checkSites returns the errors of the policy's sites, and of rules that name none of them.
func (p *Policy) checkSites() error {
	_, err := NewSites(p.Sites)
	errs := []error{err}
	names := map[string]bool{}
	for i := range p.Sites {
		name := p.Sites[i].Name
		if name == "" || strings.ContainsFunc(name, control) {
			errs = append(errs, fmt.Errorf("site %d: a name is needed, without control characters", i+1))
		}
		if names[name] {
			errs = append(errs, fmt.Errorf("site %s: the name is not unique", name))
		}
		names[name] = true
	}
	for i := range p.Rules {
		if r := &p.Rules[i]; r.Site != "" && !names[r.Site] {
			errs = append(errs, &RuleError{Rule: i, Name: r.Name, Err: fmt.Errorf("there is no site %q", r.Site)})
		}
	}
	return errors.Join(errs...)
}

// RulesOf returns the rules that hold for requests of a site, in order; those without a
// site if site is "".
func (p *Policy) RulesOf(site string) []*Rule {
	own := slices.ContainsFunc(p.Sites, func(s Site) bool { return s.Name == site && s.OwnRules })
	if !own {
		site = ""
	}
	var rules []*Rule
	for i := range p.Rules {
		if p.Rules[i].Site == site {
			rules = append(rules, &p.Rules[i])
		}
	}
	return rules
}

// A ruleSet has the rules that hold for the requests of one or several sites.
type ruleSet struct {
	rules     []int32 // places in Guard.rules, in order
	sameMatch []bool  // of each: the match is that of the rule above, as of a limit by addr and one by network
	index     *walkIndex
	exempt    []matcher // of allow rules that name clients by identity alone
	banning   []int     // rules with a ban
	bannedBy  []keyBans // of these: by the key that is banned
	awaiting  []int     // rules that restrict, and wait for a DNS list
}

// keyBans are the rules that ban the same key.
type keyBans struct {
	key     uint8  // as limitUse.key
	rule    int32  // one of them: place in Guard.rules
	numbers uint64 // a bit for each, as in BanFilter.MayBan
}

// addBan adds rule i to bannedBy.
func (s *ruleSet) addBan(key uint8, i int, r *compiledRule) {
	n := slices.IndexFunc(s.bannedBy, func(b keyBans) bool { return b.key == key && key != manyKeys })
	if n < 0 {
		n = len(s.bannedBy)
		s.bannedBy = append(s.bannedBy, keyBans{key: key, rule: int32(i)})
	}
	s.bannedBy[n].numbers |= 1 << (r.banID % 64)
}

// sortSites assigns each rule to the sets of the sites for which it holds. Set 0 has the
// rules without a site.
func (g *Guard) sortSites() {
	g.sites, _ = NewSites(g.policy.Sites) // checked before
	g.sets = make([]ruleSet, 1, 1+len(g.policy.Sites))
	numbers := map[string]int32{}
	for i := range g.policy.Sites {
		site := &g.policy.Sites[i]
		if site.OwnRules {
			numbers[site.Name] = int32(len(g.sets))
			g.sets = append(g.sets, ruleSet{})
		}
		g.setOf = append(g.setOf, numbers[site.Name])
	}
	compiled := make([][]compiledRule, len(g.sets))
	for i := range g.rules {
		r := &g.rules[i]
		number, ok := numbers[r.Site]
		if !ok && r.Site != "" {
			continue // the site has no rules of its own
		}
		set := &g.sets[number]
		repeats := len(set.rules) > 0
		if repeats {
			above := &g.rules[set.rules[len(set.rules)-1]]
			repeats = r.favorable() == above.favorable() && same(&r.Match, &above.Match)
		}
		set.rules, set.sameMatch = append(set.rules, int32(i)), append(set.sameMatch, repeats)
		compiled[number] = append(compiled[number], *r)
		if r.Action == Allow && r.match.isIdentityOnly() {
			set.exempt = append(set.exempt, r.match)
		}
		if r.Ban != nil {
			set.banning = append(set.banning, i)
			set.addBan(g.uses[r.banLimit].key, i, r)
		}
		if r.Action != Allow && !r.DryRun && !g.policy.DryRun &&
			slices.ContainsFunc(r.Match.Listed, func(l Listing) bool { return l.Wait > 0 }) {
			set.awaiting = append(set.awaiting, i)
		}
	}
	for i := range g.sets {
		g.sets[i].index = newWalkIndex(compiled[i], g.sets[i].rules, g.policy.FoldPaths)
		g.indexWords = max(g.indexWords, len(g.sets[i].index.anyPath))
	}
}

// SiteOf returns the name of the site of a host, "" if there is none.
func (g *Guard) SiteOf(host string) string {
	if i := g.sites.Find(host); i >= 0 {
		return g.policy.Sites[i].Name
	}
	return ""
}

// setSite finds the site of the request, and its rules.
func (d *decision) setSite() {
	d.site, d.set = -1, &d.guard.sets[0]
	if d.guard.sites == nil {
		return
	}
	if d.site = d.guard.sites.Find(d.req.Host); d.site >= 0 {
		d.set = &d.guard.sets[d.guard.setOf[d.site]]
	}
}

// siteName returns the name of the request's site, "" if it has none.
func (d *decision) siteName() string {
	if d.site < 0 {
		return ""
	}
	return d.guard.policy.Sites[d.site].Name
}
