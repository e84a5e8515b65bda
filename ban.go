package fairshare

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"time"
)

// findBan looks for a ban in force that holds for the request; it fills v and
// returns true if an enforced one does. Of several, the longest counts.
func (g *Guard) findBan(d *decision, v *Verdict) bool {
	if g.bans.Len() == 0 || d.req.Proxy || d.req.Unnamed() {
		return false
	}
	var longest, trial Finding
	for _, i := range g.banning {
		r := &g.rules[i]
		key := d.banKey(r)
		wait := g.bans.find(&key, r.banID, d.now, g.dry(r))
		if key.via().IsValid() { // a ban of the address itself holds too
			key = key.direct()
			wait = max(wait, g.bans.find(&key, r.banID, d.now, g.dry(r)))
		}
		if g.bans.networks.Load() && key.crowds() && !d.hasStanding() {
			network := key.network()
			wait = max(wait, g.bans.find(&network, r.banID, d.now, g.dry(r)))
		}
		if wait == 0 || !r.Ban.All && !r.match.holds(d) || g.isExempt(d, r) {
			continue
		}
		f := Finding{Action: Refuse, Rule: r.Rule, Wait: wait, Ban: BanInForce}
		most := &longest
		if r.DryRun {
			most = &trial
		}
		if f.Wait > most.Wait {
			*most = f
		}
		if most == &longest && !g.policy.DryRun { // nobody gains standing by requests during a ban
			g.history.forget(&d.client)
		}
	}
	v.DryRunFinding = trial
	if longest.Rule == nil {
		d.crowd = g.findCrowd(d)
		return false
	}
	v.Finding = longest
	return true
}

// findCrowd returns the rule by whose bans newcomers of the client's network are
// limited; −1 when there is none that holds for the request.
func (g *Guard) findCrowd(d *decision) int {
	if g.crowdLimit < 0 || !g.bans.limiting.Load() || !d.req.Addr.Is6() || d.hasStanding() {
		return -1
	}
	var key banKey
	copy(key[:], appendAddr(nil, ByAddr, d.req.Addr, g.bits4, g.bits6))
	rule, found := g.bans.limits(&key, d.now)
	if !found {
		return -1
	}
	for _, i := range g.banning {
		if r := &g.rules[i]; r.banID == rule && (r.Ban.All || r.match.holds(d)) && !g.dry(r) && !g.isExempt(d, r) {
			return i
		}
	}
	return -1
}

// dry reports whether a ban of the rule is a trial.
func (g *Guard) dry(r *compiledRule) bool { return r.DryRun || g.policy.DryRun }

// isExempt reports whether bans of rule r do not hold for the request.
func (g *Guard) isExempt(d *decision, r *compiledRule) bool {
	if r.unless != nil && r.unless.holds(d) {
		return true
	}
	return slices.ContainsFunc(g.exempt, func(m matcher) bool { return m.holds(d) })
}

// banKey returns the key that r bans.
func (d *decision) banKey(r *compiledRule) (key banKey) {
	of := d.key(r.limit)
	key[0] = of[0]
	copy(key.bytes(), of) // without the time at which the client was forgotten
	return key
}

// countRefusal counts a refusal towards the ban of the rule that refused. The
// refusal that reaches After starts the ban and gets its wait.
func (g *Guard) countRefusal(ctx context.Context, d *decision, take int, f *Finding) error {
	r := &g.rules[d.settled[take].rule]
	if r.Ban == nil || d.takes[take].Limit != r.limit || d.req.Proxy || d.elsewhere() {
		return nil
	}
	if d.tallies[take].Wait == 0 && r.Limit.Resource.Held() {
		return nil // what its requests in progress may cost is in the way, not what they did
	}
	c := &d.count
	c.charge[0] = Charge{Limit: r.banLimit, Key: d.takes[take].Key, Cost: 1}
	c.take[0], c.tally[0] = Take{Limit: r.banLimit, Key: d.takes[take].Key}, Tally{}
	err := g.limiter.Settle(ctx, d.now, c.charge[:])
	if err == nil {
		err = g.limiter.Take(ctx, d.now, c.take[:], c.tally[:])
	}
	if err != nil {
		return fmt.Errorf("refusals of client %s: %w", d.req.Addr, err)
	}
	length := g.bans.refused(&refused{
		key: d.banKey(r), rule: r.banID, dry: g.dry(r), terms: r.Ban, at: d.now.UnixNano(),
		bot: d.req.Bot.Name, bits4: g.bits4, bits6: g.bits6,
	}, c.tally[0].Over)
	if length > 0 {
		f.Ban, f.Wait = BanStarted, length
		if !g.dry(r) {
			g.history.forget(&d.client)
		}
	}
	return nil
}

// Lift does what [Bans.Lift] does, and forgets the refusals that led to these
// bans, and those of the client itself, as counted at time now: the next ban
// takes as many as the first.
func (g *Guard) Lift(ctx context.Context, client ClientID, at, now time.Time) (lifted int, err error) {
	type counted struct {
		key  banKey
		rule string
	}
	var all []counted
	lifted = g.bans.lift(client, at, func(key banKey, rule string) { all = append(all, counted{key, rule}) })
	for _, c := range all {
		for _, i := range g.banning {
			if r := &g.rules[i]; r.Name == c.rule {
				err = errors.Join(err, g.forgive(ctx, r, c.key, now))
			}
		}
	}
	return lifted, errors.Join(err, g.Forgive(ctx, client, now))
}

// Forgive forgets the refusals of a client that count towards bans, as counted
// at time now: not those of other clients within its prefix.
func (g *Guard) Forgive(ctx context.Context, client ClientID, now time.Time) (err error) {
	for _, kind := range [...]KeyKind{ByAddr, ByNetwork, ByBot} {
		key, ok := keyOf(kind, client)
		if !ok || key.client(client.Bot, g.bits4, g.bits6) != client {
			continue
		}
		for _, i := range g.banning {
			if r := &g.rules[i]; key[0]&sized == 0 || g.limits[r.limit].By[0].Kind == ByNetwork {
				err = errors.Join(err, g.forgive(ctx, r, key, now))
			}
		}
	}
	return err
}

func (g *Guard) forgive(ctx context.Context, r *compiledRule, key banKey, now time.Time) error {
	of := g.bans.forgotten.ofBanKey(&key, g.bits4, g.bits6)
	last := Charge{Limit: r.banLimit, Key: appendTime(key.bytes(), of), Cost: -MaxN, At: now}
	before := last
	before.At = now.Add(-g.limits[r.banLimit].Window)
	return g.limiter.Settle(ctx, g.forward(now), []Charge{last, before})
}

// elsewhere reports whether a page of another site may have caused the
// request: such refusals do not count towards a ban, else any page could get
// its readers banned here (W3C Fetch Metadata).
func (d *decision) elsewhere() bool {
	if d.req.Header == nil {
		return false
	}
	site, mode := d.req.Header.Values("Sec-Fetch-Site"), d.req.Header.Values("Sec-Fetch-Mode")
	return slices.Contains(site, "cross-site") && !slices.Contains(mode, "navigate")
}

// length returns how long ban number n (from 0) of a key is: Growth times the
// one before, up to Max, and up to a tenth more, so that many banned at once
// do not return at once. The same ban is as long in a replay.
func (t *BanTerms) length(key banKey, rule string, n int) time.Duration {
	growth, most := max(t.Growth, 1), t.Max
	if most == 0 {
		most = max(24*time.Hour, t.For)
	}
	length := min(float64(t.For)*math.Pow(growth, float64(n)), float64(max(most, t.For)))
	h := fnv.New64a()
	h.Write(key.bytes())
	h.Write([]byte(rule))
	h.Write([]byte{byte(n), byte(n >> 8)})
	tenth := float64(h.Sum64()>>11) / (1 << 53) / 10
	return time.Duration(min(length*(1+tenth), float64(banForever)))
}

// banForever bounds a ban, so that its end is a time that can be written.
const banForever = 100 * 365 * 24 * time.Hour
