package fairshare

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairshare/internal/network"
)

// A Policy is the list of all rules of a site, in order. It must not change while
// a [Guard] uses it.
type Policy struct {
	Rules []Rule
	Sites []Site // empty means that all requests are for one site
	// SitesApart says that rules without a Site count the requests of each site apart.
	SitesApart bool
	DryRun     bool // verdicts are as usual, but every request passes
	// IPv4Prefix and IPv6Prefix are prefix lengths in bits. The addresses of one
	// prefix count as one client. 0 means 32 and 64, since each IPv6 customer has
	// at least a /64.
	IPv4Prefix, IPv6Prefix int
	// FoldPaths says that paths which differ only in case are the same page.
	FoldPaths bool

	// Ready returns an error if rules need facts that the program does not
	// provide, such as a list that was not loaded: they would never hold. NewGuard
	// calls it and returns its error. nil means that nothing is missing.
	Ready func() error
}

// A Rule is one step of the walk. It does exactly one of these: allow, block, or
// limit.
type Rule struct {
	Name   string    // unique in its policy, not empty
	Match  Match     // zero means every request
	Action Action    // Allow or Block; Undecided for a limit
	Limit  *Limit    // nil for allow and block; its Name and DryRun are ignored: those of the rule count
	Last   bool      // limit only: the walk ends after it, if the match also holds as a permission; not in DryRun
	Refund StatusSet // limit of requests only: answers that give back what was charged on arrival
	Ban    *BanTerms // of a block, or of a limit with the key ByAddr, ByNetwork or ByBot; nil means no bans
	Answer *Answer   // nil means the usual answer
	DryRun bool      // decide and report, enforce nothing; not with Allow

	// Site is the only site for whose requests the rule and its bans hold; it has OwnRules.
	// "" means those of all other sites, and of hosts that no site has.
	Site string
}

// BanTerms say when refusals of a rule become a ban, and how long it lasts.
//
// What a block refuses counts unless a page elsewhere, a sent link or a prefetch
// may have caused it, and unless the ban would not hold for the request. So a block
// with a ban of After 1 bans no client for what others made it request. The blocked
// request that starts a ban gets the answer of the block.
type BanTerms struct {
	After   int64         // refusals that start a ban; 1 to MaxN
	Within  time.Duration // the window they are counted in; 0 means 10 minutes
	For     time.Duration // length of the first ban
	Growth  float64       // each ban is this many times as long as the previous one; 1 to 1000; 0 means 1
	Max     time.Duration // the longest ban; 0 means 24 hours, or For if that is longer
	Forgive time.Duration // each such time without a refusal takes one step of growth back; 0 means 24 hours
	All     bool          // the ban holds for every request of the key, not only for those that the rule matches
	Unless  *Match        // requests that pass in spite of the ban; nil means none
	By      KeyKind       // block only: what is banned: ByAddr, ByNetwork or ByBot; 0 means ByAddr
}

// An Answer changes what a refused or blocked client gets. Body and Redirect may
// contain "{wait}", "{until}", "{rule}", "{id}", "{client}" and "{contact}", which
// are replaced by the facts of the refusal.
type Answer struct {
	Status     int           // 200 to 599; 0 means 429 for a refusal, 403 for a block, 303 with Redirect
	Body       string        // "" means the usual body, unless Empty
	Empty      bool          // the answer has no body; Body is ""
	Redirect   string        // where to send the client instead; "" means nowhere
	RetryAfter time.Duration // the Retry-After header; 0 means the wait, below 0 no header

	// Header holds more headers of the answer, by name. Headers that an answer sets
	// itself (Content-Type, Location, Retry-After, …) must not be among them.
	Header map[string][]string
}

// A RuleError is an error of one rule.
type RuleError struct {
	Rule int    // its index in Policy.Rules
	Name string // of the rule
	Err  error
}

func (e *RuleError) Error() string { return fmt.Sprintf("rule %d (%s): %v", e.Rule+1, e.Name, e.Err) }

func (e *RuleError) Unwrap() error { return e.Err }

// favorable reports whether the rule is a permission.
func (r *Rule) favorable() bool { return r.Action == Allow }

// Limits returns the limits that a [Limiter] for the policy must count, in this
// order:
//
//   - one for each rule with a limit, in the order of the rules,
//   - one for each rule with a ban: it counts the rule's refusals,
//   - one for each limit with Newcomers,
//   - one for newcomers from networks of banned clients, if bans are possible that
//     lead to it,
//   - a ceiling for each limit that may count by address, and then one for each
//     limit of newcomers. A ceiling holds for all provisional clients of a peer
//     together, and allows 256 times as much.
func (p *Policy) Limits() []Limit {
	var limits, bans, newcomers, ceilings, ofNewcomers []Limit
	for i := range p.Rules {
		r := &p.Rules[i]
		if r.Ban != nil {
			bans = append(bans, Limit{Name: r.Name, Resource: Refusals, N: r.Ban.After, Window: r.Ban.within(),
				By: r.banBy()})
		}
		if r.Limit == nil {
			continue
		}
		l := *r.Limit
		l.Name, l.DryRun = r.Name, r.DryRun
		if len(l.By) == 0 {
			l.By = []KeyPart{{Kind: ByAddr}}
		}
		if l.Resource == Errors && l.Statuses.Empty() {
			l.Statuses.Add(400, 499)
		}
		limits = append(limits, l)
		if l.lowers() {
			n := *l.Newcomers
			n.Name, n.DryRun, n.Statuses, n.By = l.Name, l.DryRun, l.Statuses, []KeyPart{{Kind: ByAddr}}
			n.Distinct = l.Distinct
			newcomers = append(newcomers, n)
			ofNewcomers = append(ofNewcomers, n.ceiling())
		}
		if l.countsClients() {
			ceilings = append(ceilings, l.ceiling())
		}
	}
	limits = append(append(limits, bans...), newcomers...)
	if p.bansCrowds() {
		limits = append(limits, newcomersOfCrowd)
	}
	return append(append(limits, ceilings...), ofNewcomers...)
}

// bansCrowds reports whether many bans in one network may lead to a limit for the
// network's newcomers.
func (p *Policy) bansCrowds() bool {
	_, bits6 := p.prefixes()
	return bits6 > network.Bits6 && slices.ContainsFunc(p.Rules, func(r Rule) bool {
		return r.Ban != nil && r.banBy()[0].Kind == ByAddr
	})
}

// BanKind returns what the rule bans: ByAddr, ByNetwork or ByBot; 0 if it has no
// ban.
func (r *Rule) BanKind() KeyKind {
	if r.Ban == nil {
		return 0
	}
	return r.banBy()[0].Kind
}

// banBy returns the key that the rule, which has a ban, bans.
func (r *Rule) banBy() []KeyPart {
	switch {
	case r.Limit != nil && len(r.Limit.By) > 0:
		return r.Limit.By
	case r.Limit == nil && r.Ban.By != 0:
		return []KeyPart{{Kind: r.Ban.By}}
	}
	return []KeyPart{{Kind: ByAddr}}
}

// prefixes returns IPv4Prefix and IPv6Prefix, or what they mean if zero.
func (p *Policy) prefixes() (bits4, bits6 int) {
	return network.ClientBits(p.IPv4Prefix, p.IPv6Prefix)
}

// Client returns the prefix whose addresses count as the same client as addr; the
// zero Prefix if addr is invalid.
func (p *Policy) Client(addr netip.Addr) netip.Prefix {
	bits4, bits6 := p.prefixes()
	return network.Cut(addr, bits4, bits6) // Check bounds the bits
}

// Check returns all errors of the policy, joined, or nil. An error of a rule is a
// [*RuleError].
func (p *Policy) Check() error {
	errs := []error{p.checkSites()}
	names := map[string]bool{}
	for i := range p.Rules {
		r := &p.Rules[i]
		fault := func(format string, args ...any) {
			errs = append(errs, &RuleError{Rule: i, Name: r.Name, Err: fmt.Errorf(format, args...)})
		}
		switch {
		case r.Name == "" || strings.ContainsFunc(r.Name, control):
			fault("a name is needed, without control characters")
		case names[r.Name]:
			fault("the name is not unique")
		case isReserved(r.Name):
			fault("the name is reserved")
		}
		names[r.Name] = true
		switch {
		case r.Limit == nil && r.Action != Allow && r.Action != Block, r.Limit != nil && r.Action != Undecided:
			fault("one of allow, block or limit is needed")
		case r.Limit != nil && r.Limit.When == Busy && r.Last:
			fault("last: the rules below would hold only while the upstream is not busy")
		case r.Limit == nil && (!r.Refund.Empty() || r.Last):
			fault("refund and last belong to a limit")
		case r.Action == Allow && r.Ban != nil:
			fault("ban belongs to a limit or a block")
		case r.Action == Allow && r.DryRun:
			fault("dry_run is not possible for allow")
		}
		if r.Limit != nil {
			if err := r.Limit.Check(); err != nil {
				fault("%w", err)
			}
			if !r.Refund.Empty() && r.Limit.Resource != Requests {
				fault("only requests are refunded")
			}
			if r.Ban != nil && r.Limit.Newcomers != nil {
				fault("a limit with newcomers refuses nobody for what others did, and bans nobody")
			}
		}
		if r.Ban != nil {
			if err := r.Ban.check(r); err != nil {
				fault("%w", err)
			}
		}
		if err := r.Match.check(r.favorable()); err != nil {
			fault("match: %w", err)
		}
	}
	if p.IPv4Prefix < 0 || p.IPv4Prefix > 32 || p.IPv6Prefix < 0 || p.IPv6Prefix > 128 {
		errs = append(errs, errors.New("a prefix length is 1 to 32 for IPv4, 1 to 128 for IPv6"))
	}
	return errors.Join(errs...)
}

func (t *BanTerms) check(r *Rule) error {
	var errs []error
	switch by := r.banBy(); {
	case r.Limit != nil && t.By != 0:
		errs = append(errs, errors.New("ban: by belongs to a block; a limit bans its own key"))
	case r.Limit != nil && (len(by) > 1 || !by[0].Kind.bans()):
		errs = append(errs, errors.New("ban: the limit's key must be addr, network or bot"))
	case !by[0].Kind.bans():
		errs = append(errs, errors.New("ban: by must be addr, network or bot"))
	}
	if t.After < 1 || t.After > MaxN {
		errs = append(errs, fmt.Errorf("ban: after: %d is not between 1 and %d", t.After, MaxN))
	}
	if w := t.within(); w < MinWindow || w > MaxWindow {
		errs = append(errs, fmt.Errorf("ban: within: %v is not between 1ms and 31d", w))
	}
	if t.For <= 0 || t.Max < 0 || t.Forgive < 0 {
		errs = append(errs, errors.New("ban: for, max and forgive are above zero"))
	}
	if t.Growth != 0 && !(t.Growth >= 1 && t.Growth <= 1000) {
		errs = append(errs, fmt.Errorf("ban: growth: %v is not between 1 and 1000", t.Growth))
	}
	if t.Unless != nil {
		if err := t.Unless.check(true); err != nil {
			errs = append(errs, fmt.Errorf("ban: unless: match: %w", err))
		}
	}
	return errors.Join(errs...)
}

func (t *BanTerms) within() time.Duration {
	if t.Within == 0 {
		return 10 * time.Minute
	}
	return t.Within
}

func control(r rune) bool { return r < 0x20 || r >= 0x7F && r < 0xA0 }

func sortedKeys(m map[string][]string) []string { return slices.Sorted(maps.Keys(m)) }

// canonicalHeader spells a header name as net/http does: "Sec-Fetch-Site".
func canonicalHeader(name string) string {
	b := appendLower(nil, name)
	up := true
	for i, c := range b {
		if up && c >= 'a' && c <= 'z' {
			b[i] = c - 0x20
		}
		up = c == '-'
	}
	return string(b)
}
