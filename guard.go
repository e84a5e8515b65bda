package fairshare

import (
	"errors"
	"fmt"
	"hash/maphash"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
)

// A Guard runs one policy. It is safe for concurrent use.
type Guard struct {
	policy    *Policy
	limiter   Limiter
	preparer  Preparer  // limiter, if it is one; else nil
	bans      Bans      // nil only if no rule has a ban
	banFilter BanFilter // bans, if it is one; else nil
	rules     []compiledRule
	limits    []Limit
	banning   []int // rules with a ban

	sites      *Sites    // nil: the policy has none
	sets       []ruleSet // of rules; the first is for requests of no site, too
	setOf      []int32   // the set of each site
	indexWords int       // of the largest set's index

	uses         []limitUse // by limit
	distinct     []uint64   // by limit: see Limit.distinctID; 0 without Distinct; nil if no limit has it
	ceilings     []int      // place in limits of the ceiling of each rule's limit, or −1
	firstCeiling int        // place in limits; those before it are of rules and bans
	bits4, bits6 int
	latest       atomic.Int64 // the latest time that is believed, Unix ns
	claimed      atomic.Int64 // the time of the last request, if it is far ahead of latest; else minTime
	decisions    sync.Pool
	seed         maphash.Seed // of textSlots
	agents       textCache
	queries      textCache
	paths        textSlots // the path sets of walkIndex.paths
	groups       groups
	begun        begunWalks
	waiting      waiting
	busy         atomic.Pointer[func(site string) bool] // nil: UseBusy was not called

	pages      pageTable
	history    *History
	seen       []seenList // of the conditions on what clients have seen
	standing   bool       // some limit or ban asks for the standing of clients
	crowdLimit int        // index in limits of the limit for newcomers of a network with bans, or −1
}

// A limitUse is what takes and charges of a limit need to know of it, in few bytes.
type limitUse struct {
	key      uint8 // limits with the same key have the same number, see decision.known
	resource Resource
	held     bool    // see Resource.Held
	costly   bool    // see Limit.costly
	only     KeyKind // the key is an address, a visitor or a usual network, and nothing else; 0: it is not
	picky    bool    // it may not count a request, or count it at a rate of the request: see decision.countsUnder
}

// A compiledRule is a rule as the walk needs it.
type compiledRule struct {
	*Rule
	match          matcher
	unless         matcher
	ends           matcher // of a limit that is Last: the match as a permission, since it skips the rules below
	limit          int     // place in limits, or −1
	lowered        int     // place of the limit for newcomers, or −1
	loweredCeiling int     // its ceiling
	banLimit       int     // place of the limit that counts refusals towards the ban, or −1
	banID          uint32
}

// NewGuard returns a guard for a policy. The limiter is made for
// policy.Limits(). bans may be shared by the guards of several policies; it may
// be nil if no rule has a Ban. The policy must not change afterwards. Package
// memlimit has a shorter NewGuard, which keeps everything in memory.
//
// NewGuard returns an error if the policy is invalid, if its rules need something
// that is missing (see Policy.Ready, and bans), or if the limiter is nil or was made for
// other limits. For the last check it calls the limiter's method
// MadeFor([]Limit) error, if there is one.
func NewGuard(policy *Policy, limiter Limiter, bans Bans) (*Guard, error) {
	if policy == nil {
		return nil, errors.New("the policy is nil")
	}
	if err := policy.Check(); err != nil {
		return nil, err
	}
	if policy.Ready != nil {
		if err := policy.Ready(); err != nil {
			return nil, err
		}
	}
	if isNil(limiter) {
		return nil, errors.New("the limiter is nil")
	}
	if l, ok := limiter.(interface{ MadeFor([]Limit) error }); ok {
		if err := l.MadeFor(policy.Limits()); err != nil {
			return nil, err
		}
	}
	if isNil(bans) {
		if i := slices.IndexFunc(policy.Rules, func(r Rule) bool { return r.Ban != nil }); i >= 0 {
			return nil, &RuleError{Rule: i, Name: policy.Rules[i].Name, Err: errNoBans}
		}
		bans = nil
	}
	banFilter, _ := bans.(BanFilter)
	preparer, _ := limiter.(Preparer)
	if preparer != nil && !preparer.PreparesFor(limiter) {
		preparer = nil
	}
	g := &Guard{policy: policy, limiter: limiter, preparer: preparer, bans: bans, banFilter: banFilter,
		limits: policy.Limits(), history: new(History),
		crowdLimit: -1}
	g.bits4, g.bits6 = policy.prefixes()
	for i := range g.limits {
		for j, part := range g.limits[i].By {
			if part.Kind == ByHeader {
				g.limits[i].By = slices.Clone(g.limits[i].By)
				g.limits[i].By[j].Name = canonicalHeader(part.Name)
			}
		}
	}
	for i := range g.limits {
		l := &g.limits[i]
		g.uses = append(g.uses, limitUse{key: g.keyNumber(i), only: onlyKind(l.By),
			resource: l.Resource, held: l.Resource.Held(), costly: l.costly(),
			picky: l.Count == Pages || l.Distinct != EveryRequest || l.CrawlDelay})
		if g.limits[i].Distinct != EveryRequest {
			if g.distinct == nil {
				g.distinct = make([]uint64, len(g.limits))
			}
			g.distinct[i] = max(g.limits[i].distinctID(), 1)
		}
	}
	limit := 0 // index in g.limits of the next limit
	g.rules = make([]compiledRule, len(policy.Rules))
	for i := range policy.Rules {
		r := &policy.Rules[i]
		c := compiledRule{Rule: r, limit: -1, lowered: -1, banLimit: -1}
		as := standing{favorable: r.favorable(), foldPaths: policy.FoldPaths}
		c.match, _ = newMatcher(&r.Match, as) // checked above
		if r.Last && !r.DryRun {
			c.ends, _ = newMatcher(&r.Match, as.not())
		}
		if r.Limit != nil {
			c.limit = limit
			limit++
		}
		if r.Ban != nil && r.Ban.Unless != nil {
			c.unless, _ = newMatcher(r.Ban.Unless, as.not())
		}
		if err := g.numberSeen(&r.Match, c.match); err != nil {
			return nil, &RuleError{Rule: i, Name: r.Name, Err: err}
		}
		if err := g.numberSeen(&r.Match, c.ends); err != nil {
			return nil, &RuleError{Rule: i, Name: r.Name, Err: err}
		}
		if r.Ban != nil && r.Ban.Unless != nil {
			if err := g.numberSeen(r.Ban.Unless, c.unless); err != nil {
				return nil, &RuleError{Rule: i, Name: r.Name, Err: err}
			}
		}
		g.number(c.match)
		g.number(c.ends)
		g.number(c.unless)
		g.rules[i] = c
	}
	for i := range g.rules {
		if g.rules[i].Ban != nil {
			g.rules[i].banLimit = limit
			g.rules[i].banID = bans.RuleNumber(g.rules[i].Name)
			limit++
			g.banning = append(g.banning, i)
		}
	}
	for i := range g.rules {
		if r := &g.rules[i]; r.Limit != nil && r.Limit.Newcomers != nil {
			g.standing = true
			if r.Limit.lowers() {
				r.lowered = limit
				limit++
			}
		}
	}
	if policy.bansCrowds() {
		g.crowdLimit = limit
		limit++
		g.standing = true
	}
	g.firstCeiling = limit
	for i := range g.rules {
		if r := &g.rules[i]; r.limit >= 0 {
			g.ceilings = append(g.ceilings, -1)
			if g.limits[r.limit].countsClients() {
				g.ceilings[r.limit] = limit
				limit++
			}
		}
	}
	for i := range g.rules {
		if r := &g.rules[i]; r.lowered >= 0 {
			r.loweredCeiling = limit
			limit++
		}
	}
	g.sortSites()
	g.seed = maphash.MakeSeed()
	g.latest.Store(minTime)
	g.claimed.Store(minTime)
	g.decisions.New = func() any {
		return &decision{guard: g, candidates: make([]uint64, g.indexWords), hold: make([]uint64, g.indexWords)}
	}
	return g, nil
}

// manyKeys is how many different keys of a request are kept. Policies with more make the others again
// for each limit.
const manyKeys = 32

// keyNumber returns the number of the key of limit i, below manyKeys; manyKeys for all that have none.
func (g *Guard) keyNumber(i int) uint8 {
	next := uint8(0)
	for j := range i {
		if slices.Equal(g.limits[j].By, g.limits[i].By) {
			return g.uses[j].key
		}
		next = max(next, min(g.uses[j].key+1, manyKeys))
	}
	return next
}

// onlyKind returns the kind of a key that is an address, a visitor or a network of the usual size,
// and nothing else; 0 for other keys.
func onlyKind(by []KeyPart) KeyKind {
	if len(by) == 1 {
		switch by[0] {
		case KeyPart{Kind: ByAddr}, KeyPart{Kind: ByVisitor}, KeyPart{Kind: ByNetwork}:
			return by[0].Kind
		}
	}
	return 0
}

var errNoBans = errors.New("the rule bans clients, but the guard has no Bans: pass membans.New(0) to NewGuard")

// isNil reports whether v is nil or holds a nil pointer.
func isNil(v any) bool {
	value := reflect.ValueOf(v)
	return !value.IsValid() || value.Kind() == reflect.Pointer && value.IsNil()
}

const minTime = -1 << 63

// Policy returns the policy that the guard runs. It must not be changed.
func (g *Guard) Policy() *Policy { return g.policy }

// numberSeen assigns an index in guard.seen to each condition of m on what clients
// have seen. Equal conditions get the same index.
func (g *Guard) numberSeen(match *Match, m matcher) error {
	not := 0
	for i := range m {
		switch c := &m[i]; c.field {
		case seenField:
			place := slices.IndexFunc(g.seen, func(l seenList) bool { return slices.Equal(l.texts, match.Seen) })
			if place < 0 {
				if place = len(g.seen); place == maxSeen {
					return fmt.Errorf("match: more than %d different lists of seen", maxSeen)
				}
				g.seen, g.standing = append(g.seen, newSeenList(match.Seen, c.paths)), true
			}
			c.seen = uint8(place)
		case notField:
			if err := g.numberSeen(&match.Not[not], c.not); err != nil {
				return err
			}
			not++
		}
	}
	return nil
}

// maxSeen is how many different lists of Match.Seen a policy may have.
const maxSeen = 64

// UseHistory makes the guard use a history that several guards share, instead of
// its own. Call it before the first request. h must not be nil.
func (g *Guard) UseHistory(h *History) { g.history, g.standing = h, true }

// HasStanding reports whether the client of a request has standing: an operator
// has given it a label, it is a verified bot, or it has been known for a while.
// The last needs UseHistory or a limit that asks for standing. HasStanding changes
// nothing.
func (g *Guard) HasStanding(req *Request) bool {
	d := decision{guard: g, req: req}
	if g.standing && req.Addr.IsValid() && !req.Via.IsValid() {
		client := g.clientOf(req)
		d.aged = g.history.knows(&client, req.Time)
	}
	return d.hasStanding()
}

// IsExempt reports whether an allow rule names the client of a request by its identity
// alone: address, owner, bot, host name or label. It changes nothing.
func (g *Guard) IsExempt(req *Request) bool {
	d := decision{guard: g, req: req}
	d.setSite()
	return g.isAllowed(&d)
}

// UseBusy gives the guard a function that reports whether the upstream is busy,
// for limits with the When [Busy]. The guard calls it for requests that reach such
// a limit, from many goroutines; it must return at once. Without it the upstream
// never counts as busy. IsBusy of a share.Queue is such a function.
//
// A function that changes its answer with each request makes such limits count
// only some requests: it needs a hysteresis.
func (g *Guard) UseBusy(busy func() bool) { g.UseBusyOf(func(string) bool { return busy() }) }

// UseBusyOf is UseBusy for a policy with sites that have upstreams of their own. busy gets
// the name of the request's site, "" if it has none.
func (g *Guard) UseBusyOf(busy func(site string) bool) { g.busy.Store(&busy) }

// HasBusy reports whether UseBusy or UseBusyOf was called.
func (g *Guard) HasBusy() bool { return g.busy.Load() != nil }

func (d *decision) isBusy() bool {
	busy := d.guard.busy.Load()
	return busy != nil && (*busy)(d.siteName())
}
