package fairshare

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// A Guard runs one policy. It is safe for concurrent use.
type Guard struct {
	policy  *Policy
	limiter Limiter
	bans    *Bans
	rules   []compiledRule
	limits  []Limit
	spares  []matcher // of allow rules that name clients by who they are alone
	banning []int     // rules with a ban

	limitRule    []*Rule // the rule of each limit
	keyOf        []int   // the first limit with the same key as each limit
	bits4, bits6 int
	latest       atomic.Int64 // the latest time judged, Unix ns
	decisions    sync.Pool
	agents       []*condition // user agent conditions that agentCache remembers
	agentCache   agentCache
}

// A compiledRule is a rule as the walk needs it.
type compiledRule struct {
	*Rule
	match    matcher
	unless   matcher
	again    bool // the match is that of the rule above, as of a limit by addr and one by network
	sober    bool // an allow that looks at the path: never for an odd one
	limit    int  // place in limits, or −1
	banLimit int  // place of the limit that counts refusals towards the ban, or −1
	banID    uint32
}

// NewGuard returns a guard for a policy. The limiter is made for
// policy.Limits(); bans may be shared by the guards of several policies, nil
// means new ones. The policy must not change afterwards. The error tells what
// is wrong with the policy.
func NewGuard(policy *Policy, limiter Limiter, bans *Bans) (*Guard, error) {
	if err := policy.Check(); err != nil {
		return nil, err
	}
	if bans == nil {
		bans = NewBans(0)
	}
	g := &Guard{policy: policy, limiter: limiter, bans: bans, limits: policy.Limits()}
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
		g.keyOf = append(g.keyOf, slices.IndexFunc(g.limits, func(l Limit) bool { return slices.Equal(l.By, g.limits[i].By) }))
	}
	g.rules = make([]compiledRule, len(policy.Rules))
	for i := range policy.Rules {
		r := &policy.Rules[i]
		c := compiledRule{Rule: r, limit: -1, banLimit: -1}
		c.match, _ = newMatcher(&r.Match, r.kind()) // checked above
		if r.Limit != nil {
			c.limit = len(g.limitRule)
			g.limitRule = append(g.limitRule, r)
		}
		if r.Ban != nil && r.Ban.Unless != nil {
			c.unless, _ = newMatcher(r.Ban.Unless, true)
		}
		c.again = i > 0 && r.kind() == policy.Rules[i-1].kind() && same(&r.Match, &policy.Rules[i-1].Match)
		if r.Action == Allow {
			c.sober = c.match.looksAt(pathField)
			if c.match.onlyWho() {
				g.spares = append(g.spares, c.match)
			}
		}
		g.numberAgents(c.match)
		g.numberAgents(c.unless)
		g.rules[i] = c
	}
	for i := range g.rules {
		if g.rules[i].Ban != nil {
			g.rules[i].banLimit = len(g.limitRule)
			g.rules[i].banID = bans.ruleID(g.rules[i].Name)
			g.limitRule = append(g.limitRule, g.rules[i].Rule)
			g.banning = append(g.banning, i)
		}
	}
	g.agentCache.seed = maphash.MakeSeed()
	g.latest.Store(minTime)
	g.decisions.New = func() any { return &decision{guard: g} }
	return g, nil
}

const minTime = -1 << 63

// Policy returns the policy that the guard runs. It must not be changed.
func (g *Guard) Policy() *Policy { return g.policy }

// A decision is what one request needs from Decide to Settle. It is used
// again for later ones; gen tells them apart.
type decision struct {
	guard   *Guard
	gen     atomic.Uint64
	req     *Request // during Decide only
	now     time.Time
	takes   []Take
	tallies []Tally
	paid    []paid  // what is settled of each take
	takers  []int32 // the rule of each take
	matched []int32 // rules whose match held
	charges []Charge
	taken   bool // the enforced takes were charged
	tried   bool // the dry takes were charged
	count   struct {
		charge [1]Charge
		take   [1]Take
		tally  [1]Tally
	} // of countRefusal

	keys   []byte // memory of the keys
	known  []knownKey
	buf    []byte // of fold
	agent  []byte // the folded user agent
	folded bool   // agent is filled in
	cookie cookieState

	agentHolds uint64 // which of guard.agents hold
	agentKnown bool   // agentHolds is filled in
}

// paid is what is settled of a take.
type paid struct {
	charged int64 // while the request was in progress
	settled bool  // for good
}

type cookieState uint8

const (
	cookieUnknown cookieState = iota
	cookieNone
	cookieSome
)

// Decide judges one request on arrival. The proxy, the middleware,
// forward-auth and replay all come through here.
//
// An operator's word speaks first, then a ban, then the rules from top to
// bottom: allow and block end the walk, the limits gathered on the way are
// taken together. A time earlier than the latest one judged counts as that one.
//
// Errors are about the limiter. When the limits could not be taken the verdict
// is Undecided; when only refusals could not be counted towards a ban, it
// stands.
//
// The request is not kept. Every verdict is to be handed to [Guard.Settle].
func (g *Guard) Decide(ctx context.Context, req *Request) (Verdict, error) {
	d := g.decisions.Get().(*decision)
	d.reset(req, g.forward(req.Time))
	v := Verdict{DryRun: g.policy.DryRun, d: d, gen: d.gen.Load()}
	err := g.decide(ctx, d, &v)
	d.req = nil
	if v.Action == Undecided {
		g.release(d, v.gen)
		return Verdict{}, err
	}
	return v, err
}

func (g *Guard) decide(ctx context.Context, d *decision, v *Verdict) error {
	if word := &d.req.Word; word.Action != Undecided {
		v.Finding = word.finding()
		return nil
	}
	if len(g.banning) > 0 && g.findBan(d, v) {
		return nil
	}
	if block := g.walk(d, v); block != nil {
		v.Finding = Finding{Action: Block, Rule: block}
		return nil
	}
	if len(d.takes) == 0 {
		v.Action = Allow
		return nil
	}
	if err := g.limiter.Take(ctx, d.now, d.takes, d.tallies); err != nil {
		return fmt.Errorf("limits of client %s: %w", d.req.Addr, err)
	}
	v.Action = Allow
	over, dry := d.loudest()
	d.taken, d.tried = over < 0, over < 0 && dry < 0
	var err error
	if over >= 0 {
		v.Finding = d.refusal(over)
		err = g.countRefusal(ctx, d, over, &v.Finding)
	}
	if dry >= 0 && v.Trial.Action == Undecided {
		v.Trial = d.refusal(dry)
		err = errors.Join(err, g.countRefusal(ctx, d, dry, &v.Trial))
	}
	return err
}

// walk goes through the rules and gathers the takes. It returns the rule that
// blocks, if one does.
func (g *Guard) walk(d *decision, v *Verdict) *Rule {
	held := false
	for i := range g.rules {
		r := &g.rules[i]
		if !r.again {
			held = !(r.sober && d.req.OddPath) && r.match.holds(d)
		}
		if !held {
			continue
		}
		d.matched = append(d.matched, int32(i))
		switch {
		case r.Action == Allow:
			return nil
		case r.Action == Block && r.DryRun:
			if v.Trial.Action == Undecided {
				v.Trial = Finding{Action: Block, Rule: r.Rule}
			}
		case r.Action == Block:
			return r.Rule
		default:
			d.gather(i, r)
			if r.Last {
				return nil
			}
		}
	}
	return nil
}

func (d *decision) gather(rule int, r *compiledRule) {
	dry := d.guard.limits[r.limit].DryRun || d.req.Suspect && d.byClient(r.limit)
	d.takes = append(d.takes, Take{Limit: r.limit, Key: d.key(r.limit), Cost: 1, DryRun: dry})
	d.tallies = append(d.tallies, Tally{})
	d.paid = append(d.paid, paid{})
	d.takers = append(d.takers, int32(rule))
}

// key returns the request's key of a limit; limits by the same parts share it.
func (d *decision) key(limit int) []byte {
	of := d.guard.keyOf[limit]
	for i := range d.known {
		if d.known[i].of == of {
			return d.known[i].key
		}
	}
	begin := len(d.keys)
	d.keys = d.appendKey(d.keys, d.guard.limits[limit].By)
	key := d.keys[begin:len(d.keys):len(d.keys)]
	d.known = append(d.known, knownKey{of, key})
	return key
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

// A knownKey is a key that was made for one of the limits that share it.
type knownKey struct {
	of  int // keyOf of these limits
	key []byte
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
		if *most < 0 || d.tallies[i].Wait > d.tallies[*most].Wait {
			*most = i
		}
	}
	return enforced, dry
}

func (d *decision) refusal(take int) Finding {
	return Finding{Action: Refuse, Rule: d.guard.rules[d.takers[take]].Rule, Tally: d.tallies[take], Wait: d.tallies[take].Wait}
}

// Settle ends what Decide began, once for each verdict: later calls do
// nothing. Costs known only now are charged, slots of concurrent limits are
// given back, refunds are made. A request that was not allowed costs nothing,
// whatever out says; out.Status and out.Bytes are the upstream's, not those of
// an answer of fairshare's own.
//
// With out.Part the verdict stays open, but for [Undone]: what was not asked
// for is left for one more Settle, what was is settled once. A verdict is
// settled by one goroutine at a time.
func (g *Guard) Settle(ctx context.Context, v *Verdict, out Outcome) error {
	d := v.d
	if d == nil {
		return nil
	}
	if d.guard != g {
		return errors.New("settle: the verdict is another guard's")
	}
	if out.Part != Rest && out.Part != Undone {
		if d.gen.Load() != v.gen {
			return nil
		}
	} else {
		if !d.gen.CompareAndSwap(v.gen, v.gen+1) {
			return nil
		}
		defer g.decisions.Put(d)
	}
	d.gatherCharges(out)
	if len(d.charges) == 0 {
		return nil
	}
	if err := g.limiter.Settle(ctx, g.forward(out.Time), d.charges); err != nil {
		return fmt.Errorf("settling limits: %w", err)
	}
	return nil
}

// Metered reports whether v has a limit that is to be charged while the
// request is in progress, with [SoFar]. It may be asked until the verdict is
// settled.
func (g *Guard) Metered(v *Verdict) bool {
	if v.d == nil || !v.d.taken {
		return false
	}
	for i := range v.d.takes {
		if g.limits[v.d.takes[i].Limit].Resource.Metered() {
			return true
		}
	}
	return false
}

// gatherCharges fills in what is to be charged for a part of what is left.
func (d *decision) gatherCharges(out Outcome) {
	d.charges = d.charges[:0]
	if !d.taken {
		return
	}
	for i := range d.takes {
		if d.takes[i].DryRun && !d.tried || d.paid[i].settled {
			continue
		}
		lim := &d.guard.limits[d.takes[i].Limit]
		charge := Charge{Limit: d.takes[i].Limit, Key: d.takes[i].Key}
		if lim.Resource.Held() {
			if !d.chargeHeld(i, lim, &out, &charge) {
				continue
			}
		} else {
			d.paid[i].settled = out.Part.ends(lim.Resource)
			switch {
			case !d.paid[i].settled:
			case lim.Resource == Concurrent:
				charge.Cost = -1
			case lim.Resource == Requests && (out.Part == Undone || d.guard.rules[d.takers[i]].Refund.Has(out.Status)):
				charge.Cost, charge.At = -d.takes[i].Cost, d.now
			}
			if charge.Cost == 0 {
				continue
			}
		}
		d.charges = append(d.charges, charge)
	}
}

// chargeHeld fills in the charge of a limit that holds something for the take
// i, and reports whether there is one.
func (d *decision) chargeHeld(i int, lim *Limit, out *Outcome, charge *Charge) bool {
	p, held := &d.paid[i], &d.tallies[i].Held
	ends := out.Part.ends(lim.Resource)
	if !ends && !(out.Part == SoFar && lim.Resource.Metered()) {
		return false
	}
	if p.settled = ends; out.Part == Undone {
		charge.Held = *held
		return *held != 0
	}
	charge.Cost = max(lim.costOf(out)-p.charged, 0)
	p.charged += charge.Cost
	if charge.Held = *held; !ends {
		charge.Held = min(*held, charge.Cost)
		*held -= charge.Held
		return charge.Cost > 0
	}
	charge.Ends, charge.Total = true, p.charged
	return true
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
	}
	return 0
}

// ends reports whether a resource is settled for good with a part.
func (p Part) ends(r Resource) bool {
	switch p {
	case SlotsOnly:
		return r == Concurrent
	case CostsOnly:
		return r != Concurrent
	case AllButCPU:
		return r != CPU
	case SoFar:
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

// forward returns t, or the latest time judged if that is later: time never
// runs backwards in a guard.
func (g *Guard) forward(t time.Time) time.Time {
	ns := t.UnixNano()
	for {
		latest := g.latest.Load()
		if ns < latest {
			return time.Unix(0, latest)
		}
		if ns == latest || g.latest.CompareAndSwap(latest, ns) {
			return t
		}
	}
}

func (d *decision) reset(req *Request, now time.Time) {
	d.req, d.now = req, now
	d.takes, d.tallies, d.paid, d.takers = d.takes[:0], d.tallies[:0], d.paid[:0], d.takers[:0]
	d.matched, d.charges = d.matched[:0], d.charges[:0]
	d.taken, d.tried = false, false
	d.keys, d.known = d.keys[:0], d.known[:0]
	d.folded, d.agentKnown, d.cookie = false, false, cookieUnknown
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

func (d *decision) hasCookie() bool {
	if d.cookie == cookieUnknown {
		d.cookie = cookieNone
		if hasPair(d.req.Header) {
			d.cookie = cookieSome
		}
	}
	return d.cookie == cookieSome
}
