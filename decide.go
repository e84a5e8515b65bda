package fairshare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
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
	d.remember()
	d.notePages(v.Action == Allow, d.tried || len(d.takes) == 0)
	d.forgetTexts()
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
			d.client = g.history.nameOf(d.cutAddr(), d.req.Via)
			d.aged = !d.req.Via.IsValid() && g.history.meet(&d.client, d.now)
		}
	}
	if len(d.set.banning) > 0 && g.findBan(d, v) {
		return nil
	}
	if block := g.walk(d, v); block != nil || d.dryBlock != nil {
		d.fill()
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
		d.fill()
		d.add(d.crowd, g.crowdLimit, false)
	}
	if len(d.takes) == 0 && (d.group == nil || len(d.group.takes) == 0) {
		v.Action = Allow
		d.noteShown()
		return nil
	}
	if d.group != nil && d.takePrepared() {
		v.Action, d.taken, d.tried = Allow, true, true
		d.noteShown()
		return nil
	}
	d.fill()
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
	use := &d.guard.uses[limit]
	of := use.key
	if d.known>>of&1 != 0 {
		return d.keyOf[of]
	}
	// As appendKey, and faster. A client without a visitor's ID has the same key by visitor as by address.
	isAddr := use.only == ByAddr || use.only == ByVisitor && d.req.Visitor.ID == 0
	plain := (isAddr || use.only == ByNetwork) && d.isPlainClient()
	key := d.addrKey
	if !plain || !isAddr || key == nil {
		begin := len(d.keys)
		switch {
		case !plain:
			d.keys = d.appendKey(d.keys, d.guard.limits[limit].By)
		case isAddr:
			d.keys = d.cutAddr().own.appendKey(d.keys, ByAddr)
		default:
			d.keys = d.cutAddr().network.appendKey(d.keys, ByNetwork)
		}
		d.keys = d.appendSite(d.keys)
		if key = d.keys[begin:len(d.keys):len(d.keys)]; plain && isAddr {
			d.addrKey = key
		}
	}
	if of < manyKeys {
		d.known |= 1 << of
		d.keyOf[of] = key
	}
	return key
}

// cutAddr returns the request's address, cut to the client and to its network.
func (d *decision) cutAddr() *cutAddr {
	if !d.isCut {
		d.isCut, d.addr = true, cut(d.req.Addr, d.guard.bits4, d.guard.bits6)
	}
	return &d.addr
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

// release gives a decision back without settling it.
func (g *Guard) release(d *decision, gen uint64) {
	if d.gen.CompareAndSwap(gen, gen+1) {
		g.decisions.Put(d)
	}
}
