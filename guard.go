package fairshare

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// A Guard runs one policy. It is safe for concurrent use.
type Guard struct {
	policy    *Policy
	limiter   Limiter
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
	agents       []*condition // user agent conditions that agentCache remembers
	agentCache   agentCache
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
	held     bool // see Resource.Held
	costly   bool // see Limit.costly
	picky    bool // it may not count a request, or count it at a rate of the request: see decision.countsUnder
}

// A compiledRule is a rule as the walk needs it.
type compiledRule struct {
	*Rule
	match          matcher
	unless         matcher
	ends           matcher // of a limit that is Last: the match as a permission, since it skips the rules below
	plain          bool    // the rule is a limit, the walk goes on behind it, and it holds if its match does
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
	g := &Guard{policy: policy, limiter: limiter, bans: bans, banFilter: banFilter,
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
		g.uses = append(g.uses, limitUse{key: g.keyNumber(i), resource: l.Resource, held: l.Resource.Held(),
			costly: l.costly(), picky: l.Count == Pages || l.Distinct != EveryRequest || l.CrawlDelay})
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
		if r.Last {
			c.ends, _ = newMatcher(&r.Match, as.not())
		}
		if r.Limit != nil {
			c.limit = limit
			limit++
			c.plain = r.Limit.When != Busy && !r.Limit.CrawlDelay && !r.Last
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
		g.numberAgents(c.match)
		g.numberAgents(c.ends)
		g.numberAgents(c.unless)
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
	g.agentCache.seed = maphash.MakeSeed()
	g.latest.Store(minTime)
	g.claimed.Store(minTime)
	g.decisions.New = func() any { return &decision{guard: g, candidates: make([]uint64, g.indexWords)} }
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
		bits := g.bits6
		if req.Addr.Is4() {
			bits = g.bits4
		}
		client := g.history.name(req.Addr, bits, req.Via)
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

// A decision holds the data of one request between Decide and Settle. Later
// requests reuse it; gen distinguishes them.
type decision struct {
	guard   *Guard
	gen     atomic.Uint64
	req     *Request // during Decide only
	now     time.Time
	takes   []Take
	tallies []Tally
	peeked  []Tally      // the tallies of Peek
	settled []settlement // of each take
	matched []int32      // rules whose match held

	site       int      // of the request, in Policy.Sites; −1: none
	set        *ruleSet // of the site
	candidates []uint64 // of walkIndex
	charges    []Charge
	taken      bool // the enforced takes were charged
	wallTime   bool // the request had no time: now is of the system clock
	tried      bool // the dry takes were charged
	probe      bool // of Usage: nothing is counted
	count      struct {
		charge [1]Charge
		take   [1]Take
		tally  [1]Tally

		refusal Refusal
	} // of countRefusal
	ban BanQuery // of findBan; in here, so that a call of Bans.Find allocates nothing

	page      Page // of the request
	pageKnown bool // page is filled in

	keys    []byte // memory of the keys
	known   uint64 // the numbers of limitUse.key whose keys are in keyOf
	keyOf   [manyKeys][]byte
	buf     []byte // of fold
	agent   []byte // the folded user agent
	folded  bool   // agent is filled in
	cookie  cookieState
	referer refererSet // kinds of its Referer fields; 0 until known

	aged   bool // the client has standing by age
	client clientName
	hashes struct{ page, query uint64 } // of the request for limits with Distinct; 0 until known
	shows  uint64                       // places in guard.seen that an answer 2xx shows to the client
	crowd  int                          // the rule whose bans limit newcomers of the client's network, or −1

	dryBlock *compiledRule // the rule of DryRunFinding, if it is a block; else nil

	paths     []string // readings of an odd path
	complete  bool     // these are all
	canonical string   // the one that limits by path count under
	value     []byte   // a decoded value of the query

	kind      Kind // of the request
	kindKnown bool // kind is filled in
	counts    bool // a limit that counts pages was gathered
	covered   []coveredRequest

	agentHolds uint64 // which of guard.agents hold
	agentKnown bool   // agentHolds is filled in
}

// A settlement says which rule a take is for, and what of it is settled so far.
type settlement struct {
	charged int64  // while the request was in progress
	mark    uint64 // is set when the take is final and not refunded; 0 means none, see countedTable
	rule    int32  // index in guard.rules
	eased   bool   // the take holds less because the request has been in progress for long
	final   bool   // nothing is left to settle
}

type cookieState uint8

const (
	cookieUnknown cookieState = iota
	cookieNone                // none was sent
	cookieInvalid             // servers may see one in what was sent
	cookieValid
)

// Decide judges one request on arrival. The proxy, the middleware, [Guard.Do]
// and replay call it.
//
// An operator's decision comes first, then a ban, then the rules from top to
// bottom: allow and block end the walk, the limits gathered on the way are
// taken together. The zero time means now.
//
// A time earlier than the latest one counts as that one. A request whose time is
// more than a minute ahead of the latest one is judged at its own time. Later
// requests count as of that time only if the next request confirms it. So one
// wrong time does not stop the clock of the guard.
//
// An error comes from the limiter. If the limits could not be tested, the Action
// is Undecided. If only a refusal could not be counted towards a ban, the
// verdict is valid.
//
// The request is not kept. Every verdict is to be handed to [Guard.Settle].
func (g *Guard) Decide(ctx context.Context, req *Request) (v Verdict, err error) {
	d := g.decisions.Get().(*decision)
	at := req.Time
	wallTime := at.IsZero()
	if wallTime {
		at = time.Now()
	}
	d.reset(req, g.arrival(at))
	d.wallTime = wallTime
	v.DryRun, v.d, v.gen = g.policy.DryRun, d, d.gen.Load()
	err = g.decide(ctx, d, &v)
	d.notePages(v.Action == Allow, d.tried || len(d.takes) == 0)
	d.req = nil
	if v.Action == Undecided {
		g.release(d, v.gen)
		return Verdict{}, err
	}
	return v, err
}

func (g *Guard) decide(ctx context.Context, d *decision, v *Verdict) error {
	if override := d.req.override(); override.Action != Undecided {
		v.Finding = override.finding()
		return nil
	}
	d.crowd = -1
	if g.standing {
		d.client = clientName{}
		if d.aged = d.req.Addr.IsValid(); d.aged {
			bits := g.bits6
			if d.req.Addr.Is4() {
				bits = g.bits4
			}
			d.client = g.history.name(d.req.Addr, bits, d.req.Via)
			d.aged = !d.req.Via.IsValid() && g.history.meet(&d.client, d.now)
		}
	}
	if len(d.set.banning) > 0 && g.findBan(d, v) {
		return nil
	}
	if block := g.walk(d, v); block != nil || d.dryBlock != nil {
		return g.decideBlocked(ctx, d, v, block)
	}
	return g.decideLimits(ctx, d, v)
}

// decideBlocked goes on for a request that the rule block has blocked, or one in
// dry run would have blocked.
func (g *Guard) decideBlocked(ctx context.Context, d *decision, v *Verdict, block *compiledRule) (err error) {
	if d.dryBlock != nil {
		err = g.countBlock(ctx, d, d.dryBlock, &v.DryRunFinding)
	}
	if block == nil {
		return errors.Join(err, g.decideLimits(ctx, d, v))
	}
	v.Finding = Finding{Action: Block, Rule: block.Rule}
	return errors.Join(err, g.countBlock(ctx, d, block, &v.Finding))
}

// decideLimits takes the limits that the walk has gathered.
func (g *Guard) decideLimits(ctx context.Context, d *decision, v *Verdict) error {
	if d.crowd >= 0 {
		d.add(d.crowd, g.crowdLimit, false)
	}
	if len(d.takes) == 0 {
		v.Action = Allow
		d.noteShown()
		return nil
	}
	over, dry, err := d.take(ctx)
	if err != nil {
		return fmt.Errorf("limits of client %s: %w", d.req.Addr, err)
	}
	v.Action = Allow
	d.taken, d.tried = over < 0, over < 0 && dry < 0
	if over < 0 && len(g.seen) > 0 {
		d.noteShown()
	}
	if over >= 0 {
		v.Finding = d.refusal(over)
		err = g.countRefusal(ctx, d, over, &v.Finding)
	}
	if dry >= 0 && v.DryRunFinding.Action == Undecided {
		v.DryRunFinding = d.refusal(dry)
		err = errors.Join(err, g.countRefusal(ctx, d, dry, &v.DryRunFinding))
	}
	return err
}

func (d *decision) gather(rule int, r *compiledRule) {
	dry := r.DryRun
	if !d.req.Via.IsValid() || !d.byClient(r.limit) {
		d.add(rule, r.limit, dry)
		return
	}
	if !d.req.unnamed() {
		d.add(rule, r.limit, dry)
	}
	d.add(rule, d.guard.ceilings[r.limit], dry)
}

// add adds a take of a limit, for a rule. It adds none if the limit does not count
// the request.
func (d *decision) add(rule, limit int, dry bool) {
	use := &d.guard.uses[limit]
	var key []byte
	if d.known>>use.key&1 != 0 {
		key = d.keyOf[use.key%manyKeys]
	} else {
		key = d.key(limit)
	}
	mark, every := uint64(0), time.Duration(0)
	if use.picky {
		var counts bool
		if mark, every, counts = d.countsUnder(limit, key, dry); !counts {
			return
		}
	}
	// The next elements are filled in where they are: most requests add ten or more.
	n := len(d.takes)
	if n == cap(d.takes) || n == cap(d.tallies) || n == cap(d.settled) {
		d.takes, d.tallies, d.settled = slices.Grow(d.takes, 8), slices.Grow(d.tallies, 8), slices.Grow(d.settled, 8)
	}
	d.takes, d.tallies, d.settled = d.takes[:n+1], d.tallies[:n+1], d.settled[:n+1]
	take := &d.takes[n]
	take.Limit, take.Key, take.Cost, take.Every, take.DryRun, take.Page = limit, key, 1, every, dry, Page{}
	if use.costly {
		if !d.pageKnown {
			d.page, d.pageKnown = pageOf(d.req.Path).of(d.site), true
		}
		take.Page = d.page
	}
	d.tallies[n] = Tally{}
	d.settled[n] = settlement{rule: int32(rule), mark: mark}
}

// countsUnder reports whether a limit counts the request, with which mark (see settlement) and at which
// rate (see Take.Every).
func (d *decision) countsUnder(limit int, key []byte, dry bool) (mark uint64, every time.Duration, counts bool) {
	lim := &d.guard.limits[limit]
	if !d.probe {
		if d.isCovered(limit, key, dry) {
			return 0, 0, false
		}
		if lim.Distinct != EveryRequest {
			if mark, counts = d.distinctMark(limit, key); !counts {
				return 0, 0, false
			}
		}
	}
	if lim.CrawlDelay {
		every = d.crawlDelay(lim)
	}
	return mark, every, true
}

// ruleOf returns the rule that a take belongs to.
func (d *decision) ruleOf(take int) *Rule { return d.guard.rules[d.settled[take].rule].Rule }

// isCeiling reports whether a limit is that of all provisional clients of a
// peer.
func (g *Guard) isCeiling(limit int) bool { return limit >= g.firstCeiling }

// key returns the request's key of a limit; limits by the same parts share it.
func (d *decision) key(limit int) []byte {
	of := d.guard.uses[limit].key
	if d.known>>of&1 != 0 {
		return d.keyOf[of]
	}
	begin := len(d.keys)
	if by := d.guard.limits[limit].By; len(by) == 1 && by[0].Kind == ByAddr && d.isPlainClient() {
		d.keys = appendAddr(d.keys, ByAddr, d.req.Addr, d.guard.bits4, d.guard.bits6) // as appendKey, and faster
	} else {
		d.keys = d.appendKey(d.keys, by)
	}
	if d.site >= 0 && d.guard.policy.SitesApart {
		d.keys = appendSite(d.keys, d.siteName())
	}
	key := d.keys[begin:len(d.keys):len(d.keys)]
	if of < manyKeys {
		d.known |= 1 << of
		d.keyOf[of] = key
	}
	return key
}

// isPlainClient reports whether nothing but the address is in the request's key by address.
func (d *decision) isPlainClient() bool {
	return !d.req.Via.IsValid() && !d.guard.history.forgotten.any.Load()
}

// byClient reports whether the request's key of a limit tells its address, or
// stands for it.
func (d *decision) byClient(limit int) bool {
	for _, part := range d.guard.limits[limit].By {
		if part.Kind != ByEveryone && d.keyValue(part) == "" {
			return true
		}
	}
	return false
}

// loudest returns the takes with the longest wait among the enforced and
// among the dry ones that are over, the first of them on a tie; −1 when none
// is over.
func (d *decision) loudest() (enforced, dry int) {
	enforced, dry = -1, -1
	for i := range d.tallies {
		if !d.tallies[i].Over {
			continue
		}
		most := &enforced
		if d.takes[i].DryRun {
			most = &dry
		}
		if *most >= 0 && d.lowers(i) != d.lowers(*most) {
			if d.lowers(*most) {
				*most = i
			}
			continue
		}
		if *most < 0 || d.tallies[i].Wait > d.tallies[*most].Wait {
			*most = i
		}
	}
	return enforced, dry
}

func (d *decision) refusal(take int) Finding {
	return Finding{
		Action: Refuse, Rule: d.ruleOf(take), Limit: &d.guard.limits[d.takes[take].Limit],
		Tally: d.tallies[take], Wait: d.tallies[take].Wait,
		Ceiling: d.guard.isCeiling(d.takes[take].Limit),
	}
}

// Settle charges, refunds and releases what Decide took. Once the verdict is
// closed, later calls do nothing. After an error of the limiter the charges are
// lost. Costs known only now are charged, slots of concurrent limits are given
// back, refunds are made. A request that was not allowed costs nothing,
// whatever out says; out.Status and out.Bytes are the upstream's, not those of
// an answer of fairshare's own.
//
// [SettleRest] and [SettleNotForwarded] close the verdict. Other values of
// out.Part settle only that part, and a later call settles the rest. A verdict is
// settled by one goroutine at a time.
//
// A zero out.Time means now, or the request's own time if it had one. The zero
// Outcome says that nothing is known. Then a limit of cost counts 1, limits of
// cpu and time count the time that has passed, and a limit of bytes counts the
// bytes that it expected. Limits of errors and failures count nothing.
//
// In any other Outcome each field counts as it is, and 0 is free. A field below
// zero is unknown: Took then means the time that has passed, CPU means Took, Cost
// means 1, and Bytes means the bytes that the limit expected.
func (g *Guard) Settle(ctx context.Context, v *Verdict, out Outcome) error {
	d := v.d
	if d == nil {
		return nil
	}
	if d.guard != g {
		return errors.New("settle: the verdict is another guard's")
	}
	if out.Part != SettleRest && out.Part != SettleNotForwarded {
		if d.gen.Load() != v.gen {
			return nil
		}
	} else {
		if !d.gen.CompareAndSwap(v.gen, v.gen+1) {
			return nil
		}
		err := g.settle(ctx, d, &out)
		g.decisions.Put(d)
		return err
	}
	return g.settle(ctx, d, &out)
}

// settle is Settle of a decision that v still stands for.
func (g *Guard) settle(ctx context.Context, d *decision, out *Outcome) error {
	unknown := out.isZero()
	if out.Time.IsZero() {
		if out.Time = d.now; d.wallTime {
			out.Time = time.Now()
		}
	}
	if unknown {
		out.Took = max(0, out.Time.Sub(d.now))
		out.Bytes, out.CPU, out.Cost = -1, out.Took, -1
	}
	if out.Took < 0 && out.Part.ends(Time) {
		out.Took = max(0, out.Time.Sub(d.now))
	}
	if out.CPU < 0 && out.Part.ends(CPU) {
		out.CPU = out.Took
	}
	if d.shows != 0 && out.Status != 0 {
		if out.Status >= 200 && out.Status <= 299 || out.Status == 304 {
			g.history.show(&d.client, g.seen, d.shows, out.Time)
		}
		d.shows = 0
	}
	d.gatherCharges(out)
	if len(d.charges) == 0 {
		return nil
	}
	if err := g.limiter.Settle(ctx, g.forward(out.Time), d.charges); err != nil {
		return fmt.Errorf("settling limits: %w", err)
	}
	g.waiting.settled(d.charges)
	return nil
}

// Metered reports whether v has a limit for which something may be settled
// while the request is in progress, with [SettleSoFar]. It may be asked until the
// verdict is settled.
func (g *Guard) Metered(v *Verdict) bool {
	if v.d == nil || !v.d.taken {
		return false
	}
	for i := range v.d.takes {
		if g.limits[v.d.takes[i].Limit].Resource.Held() {
			return true
		}
	}
	return false
}

// isZero is out == Outcome{}, and faster.
func (out *Outcome) isZero() bool {
	return out.Status == 0 && out.Bytes == 0 && out.Took == 0 && out.CPU == 0 && out.Cost == 0 &&
		out.Part == SettleRest && !out.Whole && !out.Failed && out.Time == time.Time{}
}

// gatherCharges fills in what is to be charged for a part of what is left.
func (d *decision) gatherCharges(out *Outcome) {
	d.charges = d.charges[:0]
	if !d.taken {
		return
	}
	for i := range d.takes {
		take, p := &d.takes[i], &d.settled[i]
		if take.DryRun && !d.tried || p.final {
			continue
		}
		use := &d.guard.uses[take.Limit]
		if use.held {
			if charge := d.nextCharge(take); !d.chargeHeld(i, &d.guard.limits[take.Limit], out, charge) {
				d.charges = d.charges[:len(d.charges)-1]
			}
			continue
		}
		if p.final = out.Part.ends(use.resource); !p.final {
			continue
		}
		switch {
		case use.resource == Concurrent:
			d.nextCharge(take).Cost = -1
		case use.resource == Requests && (out.Part == SettleNotForwarded ||
			take.Limit != d.guard.crowdLimit && d.guard.rules[p.rule].Refund.Has(out.Status)) && d.mayRefund(take):
			charge := d.nextCharge(take)
			charge.Cost, charge.At, charge.Every = -take.Cost, d.now, take.Every
		case p.mark != 0:
			d.guard.history.counted.add(p.mark, d.now, d.guard.limits[take.Limit].Window)
		}
	}
}

// nextCharge adds a charge of a take to the charges, and returns it.
func (d *decision) nextCharge(take *Take) *Charge {
	n := len(d.charges)
	if n == cap(d.charges) {
		d.charges = slices.Grow(d.charges, 8)
	}
	d.charges = d.charges[:n+1]
	charge := &d.charges[n]
	*charge = Charge{Limit: take.Limit, Key: take.Key}
	return charge
}

// chargeHeld fills in the charge of a limit that holds something for the take
// i, and reports whether there is one.
func (d *decision) chargeHeld(i int, lim *Limit, out *Outcome, charge *Charge) bool {
	p, held := &d.settled[i], &d.tallies[i].Held
	switch ends := out.Part.ends(lim.Resource); {
	case out.Part == SettleNotForwarded:
		p.final, charge.Held = true, *held
		return *held != 0
	case ends:
		p.final, charge.Held = true, *held
		cost := lim.costOf(out)
		if lim.Resource == Bytes && out.Bytes < 0 {
			cost = d.tallies[i].Expected
		}
		charge.Cost = max(cost-p.charged, 0)
		p.charged += charge.Cost
		charge.Ends, charge.Total, charge.Page = true, p.charged, d.takes[i].Page
		return true
	case out.Part != SettleSoFar && !(out.Part == SettleHeader && lim.Resource == Cost):
		return false
	}
	left := *held // of what it holds
	switch {
	case lim.Resource == Cost && out.Part == SettleHeader: // it is charged at the end, which may tell another one
		if out.Cost >= 0 {
			left = min(left, out.Cost)
		}
	case lim.knows(out): // as much is likely until the next look
		charge.Cost = max(lim.costOf(out)-p.charged, 0)
		p.charged += charge.Cost
		left = min(left, max(charge.Cost, lim.rest()))
	case lim.Resource.CountsAnswers() && out.Whole && out.Took >= easeAfter:
		left = 0 // the client cannot time its answer: it is not one of many guesses that arrive together
	case lim.costly() && out.Took >= easeAfter && !p.eased:
		p.eased = true
		left = max(left/easeTimes, min(left, d.tallies[i].Expected))
	}
	charge.Held = *held - left
	*held = left
	return charge.Cost > 0 || charge.Held > 0
}

// A request that has been in progress for easeAfter holds only 1/easeTimes of
// what it held, if its cost cannot be measured before it ends. Otherwise the long
// polls of an office would keep the office out.
const (
	easeAfter = 5 * time.Second
	easeTimes = 8
)

// rest returns what a measured request holds at least while it is in progress.
// One that has cost nothing so far may have a client that stalls it on purpose.
func (l *Limit) rest() int64 {
	_, most := l.AtOnce()
	return max(l.Allowed()/(most*easeTimes), 1)
}

// costly reports whether requests in progress are held at what they may cost,
// which differs from page to page.
func (l *Limit) costly() bool { return l.Resource.Held() && !l.Resource.CountsAnswers() }

// knows reports whether the cost so far is known of the limit's resource.
func (l *Limit) knows(out *Outcome) bool {
	switch l.Resource {
	case Bytes:
		return out.Bytes >= 0
	case CPU:
		return out.CPU >= 0
	}
	return l.Resource == Time && out.Took >= 0
}

// costOf returns what a request has cost of the limit's resource.
func (l *Limit) costOf(out *Outcome) int64 {
	switch l.Resource {
	case Bytes:
		return max(out.Bytes, 0)
	case CPU:
		return max(out.CPU.Microseconds(), 0)
	case Time:
		return max(out.Took.Microseconds(), 0)
	case Cost:
		if out.Cost < 0 {
			return 1
		}
		return min(out.Cost, MaxBytes)
	case Errors:
		if l.Statuses.Has(out.Status) {
			return 1
		}
	case Failures:
		if out.Failed {
			return 1
		}
	}
	return 0
}

// ends reports whether a resource is finally settled with a part.
func (p Part) ends(r Resource) bool {
	switch p {
	case SettleSlots:
		return r == Concurrent
	case SettleCosts:
		return r != Concurrent
	case SettleAllButCPU:
		return r != CPU
	case SettleHeader:
		return r == Errors
	case SettleSoFar:
		return false
	}
	return true
}

// release gives a decision back without settling it.
func (g *Guard) release(d *decision, gen uint64) {
	if d.gen.CompareAndSwap(gen, gen+1) {
		g.decisions.Put(d)
	}
}

// farAhead is how far the time of a request may be ahead of the latest accepted
// time before the next request must confirm it.
const farAhead = time.Minute

// arrival returns the time at which a request that arrives at t is judged: t, or
// the latest time believed if that is later. Time never runs backwards in a
// guard.
//
// One request far ahead is judged at its own time, but only a second one in a
// row moves the latest time there: else one wrong time would stop the clock for
// all later requests.
func (g *Guard) arrival(t time.Time) time.Time {
	ns := t.UnixNano()
	for {
		latest := g.latest.Load()
		if ns < latest {
			return time.Unix(0, latest)
		}
		if !isFarAhead(ns, latest) {
			if g.claimed.Load() != minTime {
				g.claimed.Store(minTime)
			}
			if ns == latest || g.latest.CompareAndSwap(latest, ns) {
				return t
			}
			continue
		}
		claimed := g.claimed.Load()
		if claimed == minTime || isFarAhead(claimed, ns) {
			g.claimed.Store(ns)
			return t
		}
		judged, believed, next := max(ns, claimed), max(ns, claimed), int64(minTime)
		if isFarAhead(ns, claimed) { // as after each pause of a site with few requests
			believed, next = claimed, ns
		}
		if g.latest.CompareAndSwap(latest, believed) {
			g.claimed.Store(next)
			return time.Unix(0, judged)
		}
	}
}

// isFarAhead reports whether time a is far ahead of time b, both in Unix ns.
func isFarAhead(a, b int64) bool { return a > b && uint64(a)-uint64(b) > uint64(farAhead) }

// forward returns t, or the latest time believed if that is later. Unlike
// arrival it moves that time only if t is not far ahead.
func (g *Guard) forward(t time.Time) time.Time {
	ns := t.UnixNano()
	for {
		latest := g.latest.Load()
		switch {
		case ns < latest:
			return time.Unix(0, latest)
		case ns == latest || isFarAhead(ns, latest) || g.latest.CompareAndSwap(latest, ns):
			return t
		}
	}
}

func (d *decision) reset(req *Request, now time.Time) {
	d.req, d.now = req, now
	d.takes, d.tallies, d.settled = d.takes[:0], d.tallies[:0], d.settled[:0]
	d.matched, d.charges = d.matched[:0], d.charges[:0]
	d.taken, d.tried, d.probe, d.shows = false, false, false, 0
	d.hashes.page, d.hashes.query, d.dryBlock = 0, 0, nil
	d.keys, d.known = d.keys[:0], 0
	d.folded, d.agentKnown, d.pageKnown, d.cookie, d.referer = false, false, false, cookieUnknown, 0
	d.covered, d.counts, d.kindKnown = d.covered[:0], false, false
	d.paths, d.canonical = nil, ""
	d.setSite()
}

// readings returns those of the request's path, which is odd.
func (d *decision) readings() (paths []string, complete bool) {
	if d.paths == nil {
		d.paths, d.complete = d.req.Readings()
	}
	return d.paths, d.complete
}

// fold returns s in lower case. The text is good until the next call.
func (d *decision) fold(s string) string {
	for i := 0; i < len(s); i++ {
		if s[i] >= 'A' && s[i] <= 'Z' {
			d.buf = appendLower(d.buf[:0], s)
			return unsafe.String(unsafe.SliceData(d.buf), len(d.buf))
		}
	}
	return s
}

func (d *decision) foldedUserAgent() string {
	if !d.folded {
		d.agent, d.folded = appendLower(d.agent[:0], d.req.UserAgent), true
	}
	return unsafe.String(unsafe.SliceData(d.agent), len(d.agent))
}

func (d *decision) cookies() cookieState {
	if d.cookie == cookieUnknown {
		switch {
		case hasPair(d.req.Header):
			d.cookie = cookieValid
		case sentCookie(d.req.Header):
			d.cookie = cookieInvalid
		default:
			d.cookie = cookieNone
		}
	}
	return d.cookie
}
