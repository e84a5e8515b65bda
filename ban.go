package fairshare

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strings"
	"time"
)

// Bans holds bans in force and former bans. Several guards may share one.
// Package membans keeps them in memory, and membans/bantest tests what every
// implementation must keep. It is safe for concurrent use.
//
// A ban in dry run is counted and found like another, but has no effect on
// enforced bans.
type Bans interface {
	// RuleNumber returns the number that stands for the name of a rule in all
	// other methods.
	RuleNumber(name string) uint32

	// Len returns the number of bans in force and former bans. While it is 0, a
	// guard calls neither Find nor LimitsNewcomers.
	Len() int

	// Find returns how much longer a ban holds for a client at time now, 0 if
	// there is none. If several bans hold, it returns the longest time. It does
	// not keep q and allocates nothing.
	Find(q *BanQuery, now time.Time) time.Duration

	// LimitsNewcomers reports whether so many clients of a client's network are
	// banned that its newcomers are limited, and by which rule. It does not keep
	// client and allocates nothing.
	LimitsNewcomers(client *BanKey, now time.Time) (rule uint32, limited bool)

	// CountRefusal is called for each refusal that counts towards a ban. If
	// reached is set and no ban is in force, it starts a ban, and returns how
	// long the client is banned from now on. Otherwise it returns 0: then the
	// refusal only delays when a former ban is forgiven.
	CountRefusal(r *Refusal, reached bool) time.Duration

	// Lift ends all bans [BanKey.Within] a client that began at a time or before,
	// and forgets that there were any. It returns how many enforced bans were in
	// force at that time. It calls each for every ban and former ban that it
	// ends; each may be nil and must not use the Bans.
	Lift(client ClientID, at time.Time, each func(key BanKey, rule string)) (lifted int)
}

// A BanFilter is a [Bans] that tells for all rules at once which of them do not ban a client. With
// many rules that ban, a decision costs less. NewGuard finds it by a type assertion. So a Bans that
// embeds another one inherits its MayBan. If its Find returns bans that the other one does not have,
// it needs its own MayBan, or a guard misses them.
type BanFilter interface {
	// MayBan returns a set of bits. If bit n is not set, Find returns 0 for the key and all rules with
	// number n modulo 64, in dry run and not. The newcomer is that of BanQuery. MayBan does not keep
	// key and allocates nothing.
	MayBan(key *BanKey, newcomer bool) (rules uint64)
}

// A BanQuery asks [Bans] for a ban.
type BanQuery struct {
	Key      BanKey
	Rule     uint32 // see Bans.RuleNumber
	DryRun   bool   // find a ban in dry run, not an enforced one
	Newcomer bool   // the ban of the client's IPv6 network holds for the client too
}

// A Refusal counts towards a ban.
type Refusal struct {
	Key          BanKey
	Rule         uint32 // see Bans.RuleNumber
	DryRun       bool
	Terms        *BanTerms
	At           time.Time
	Bot          string // name of the client's bot, for reports; "" means none
	Bits4, Bits6 int    // bits of an address that make one client
}

// findBan looks for a ban in force that holds for the request. If an enforced
// one does, it fills v and returns true. Of several, the longest counts.
func (g *Guard) findBan(d *decision, v *Verdict) bool {
	if g.bans.Len() == 0 || d.req.Proxy || d.req.unnamed() {
		return false
	}
	newcomer := !d.hasStanding()
	if g.banFilter != nil && len(d.set.banning) > 1 && !g.mayBan(d, newcomer) {
		d.crowd = g.findCrowd(d, newcomer)
		return false
	}
	var longest, trial Finding
	asked, rules := -1, ^uint64(0) // the number of the key in d.ban, and the rules that may ban it
	for _, i := range d.set.banning {
		r := &g.rules[i]
		if number := int(g.uses[r.banLimit].key); number != asked || number == manyKeys {
			asked, d.ban.Key = number, d.banKey(r)
			if g.banFilter != nil && len(d.set.banning) > 1 { // otherwise Find alone is faster
				rules = g.banFilter.MayBan(&d.ban.Key, newcomer)
			}
		}
		if rules>>(r.banID%64)&1 == 0 {
			continue
		}
		d.ban.Rule, d.ban.DryRun, d.ban.Newcomer = r.banID, g.dry(r), newcomer
		wait := g.bans.Find(&d.ban, d.now)
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
		if most == &longest && !g.policy.DryRun && !d.probe { // requests during a ban give no standing
			g.history.forget(&d.client)
		}
	}
	v.DryRunFinding = trial
	if longest.Rule == nil {
		d.crowd = g.findCrowd(d, newcomer)
		return false
	}
	v.Finding = longest
	return true
}

// mayBan reports whether a rule may ban the client of the request. There are mostly many such rules, and few keys.
func (g *Guard) mayBan(d *decision, newcomer bool) bool {
	for i := range d.set.bannedBy {
		b := &d.set.bannedBy[i]
		d.ban.Key = d.banKey(&g.rules[b.rule])
		if g.banFilter.MayBan(&d.ban.Key, newcomer)&b.numbers != 0 {
			return true
		}
	}
	return false
}

// findCrowd returns the rule whose bans limit newcomers of the client's network;
// −1 if there is none that holds for the request.
func (g *Guard) findCrowd(d *decision, newcomer bool) int {
	if g.crowdLimit < 0 || !newcomer || !d.req.Addr.Is6() {
		return -1
	}
	d.ban.Key = BanKey{}
	appendAddr(d.ban.Key[:0], ByAddr, d.req.Addr, g.bits4, g.bits6)
	rule, limited := g.bans.LimitsNewcomers(&d.ban.Key, d.now)
	if !limited {
		return -1
	}
	for _, i := range d.set.banning {
		if r := &g.rules[i]; r.banID == rule && (r.Ban.All || r.match.holds(d)) && !g.dry(r) && !g.isExempt(d, r) {
			return i
		}
	}
	return -1
}

// dry reports whether bans of the rule are in dry run.
func (g *Guard) dry(r *compiledRule) bool { return r.DryRun || g.policy.DryRun }

// isExempt reports whether bans of rule r do not hold for the request.
func (g *Guard) isExempt(d *decision, r *compiledRule) bool {
	if r.unless != nil && r.unless.holds(d) {
		return true
	}
	return g.isAllowed(d)
}

// isAllowed reports whether an allow rule names the client by its identity alone.
func (g *Guard) isAllowed(d *decision) bool {
	return slices.ContainsFunc(d.set.exempt, func(m matcher) bool { return m.holds(d) })
}

// banKey returns the key that r bans.
func (d *decision) banKey(r *compiledRule) (key BanKey) {
	of := d.key(r.banLimit)
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
		return nil // requests in progress keep it out by what they may cost, not by what they have cost
	}
	return g.countTowardsBan(ctx, d, r, f)
}

// countBlock counts a blocked request towards the ban of the rule, unless the
// ban would not hold for it. A provisional client counts if its peer named it.
func (g *Guard) countBlock(ctx context.Context, d *decision, r *compiledRule, f *Finding) error {
	if r.Ban == nil || !d.req.Addr.IsValid() || d.req.Proxy || d.req.unnamed() || d.maybeSentHere() ||
		g.isExempt(d, r) {
		return nil
	}
	return g.countTowardsBan(ctx, d, r, f)
}

// countTowardsBan counts a refusal or a blocked request. If it starts a ban, f
// gets the ban and its length.
func (g *Guard) countTowardsBan(ctx context.Context, d *decision, r *compiledRule, f *Finding) error {
	c, key := &d.count, d.key(r.banLimit)
	c.charge[0] = Charge{Limit: r.banLimit, Key: key, Cost: 1}
	c.take[0], c.tally[0] = Take{Limit: r.banLimit, Key: key}, Tally{}
	err := g.limiter.Settle(ctx, d.now, c.charge[:])
	if err == nil {
		err = g.limiter.Take(ctx, d.now, c.take[:], c.tally[:])
	}
	if err != nil {
		return fmt.Errorf("refusals of client %s: %w", d.req.Addr, err)
	}
	c.refusal = Refusal{
		Key: d.banKey(r), Rule: r.banID, DryRun: g.dry(r), Terms: r.Ban, At: d.now,
		Bot: d.req.Bot.Name, Bits4: g.bits4, Bits6: g.bits6,
	}
	length := g.bans.CountRefusal(&c.refusal, c.tally[0].Over)
	if length > 0 {
		f.Ban, f.Wait = BanStarted, length
		if !g.dry(r) {
			g.history.forget(&d.client)
		}
	}
	return nil
}

// Lift calls [Bans.Lift]. It also forgets the refusals that led to these bans,
// and those of the client itself, as counted at time now: the next ban needs as
// many refusals as the first.
func (g *Guard) Lift(ctx context.Context, client ClientID, at, now time.Time) (lifted int, err error) {
	type counted struct {
		key  BanKey
		rule string
	}
	var all []counted
	if g.bans != nil {
		lifted = g.bans.Lift(client, at, func(key BanKey, rule string) { all = append(all, counted{key, rule}) })
	}
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
// at time now. It keeps those of other clients within its prefix.
func (g *Guard) Forgive(ctx context.Context, client ClientID, now time.Time) (err error) {
	for _, kind := range [...]KeyKind{ByAddr, ByNetwork, ByBot} {
		key, ok := NewBanKey(kind, client)
		if !ok || key.Client(client.Bot, g.bits4, g.bits6) != client {
			continue
		}
		for _, i := range g.banning {
			if r := &g.rules[i]; key[0]&sized == 0 || g.limits[r.banLimit].By[0].Kind == ByNetwork {
				err = errors.Join(err, g.forgive(ctx, r, key, now))
			}
		}
	}
	return err
}

func (g *Guard) forgive(ctx context.Context, r *compiledRule, key BanKey, now time.Time) error {
	counted := appendTime(key.bytes(), g.history.forgotten.ofBanKey(&key, g.bits4, g.bits6))
	var charges []Charge
	add := func(key []byte) {
		last := Charge{Limit: r.banLimit, Key: key, Cost: -MaxN, At: now}
		before := last
		before.At = now.Add(-g.limits[r.banLimit].Window)
		charges = append(charges, last, before)
	}
	add(counted)
	if g.policy.SitesApart {
		for i := range g.policy.Sites {
			if site := &g.policy.Sites[i]; site.OwnRules && r.Site == site.Name || !site.OwnRules && r.Site == "" {
				add(appendSite(slices.Clip(counted), site.Name))
			}
		}
	}
	return g.limiter.Settle(ctx, g.forward(now), charges)
}

// elsewhere reports whether a page of another site may have caused the request.
// Such refusals do not count towards a ban: otherwise any page could get its
// readers banned here (W3C Fetch Metadata).
func (d *decision) elsewhere() bool {
	if d.req.Header == nil {
		return false
	}
	site, mode := d.req.Header.Values("Sec-Fetch-Site"), d.req.Header.Values("Sec-Fetch-Mode")
	return slices.Contains(site, "cross-site") && !slices.Contains(mode, "navigate")
}

// maybeSentHere reports whether someone else may have caused the request: a page of
// another site, or a link in a message or an app. A prefetch is such a request, too:
// nobody has followed the link. These do not count towards a ban by a block, which
// one request may start (W3C Fetch Metadata; Sec-Purpose of the HTML Standard).
// Old browsers, and all browsers over plain HTTP, send no Fetch Metadata: then a
// Referer of another host is such a page.
func (d *decision) maybeSentHere() bool {
	if d.req.Header == nil {
		return false
	}
	for _, name := range [...]string{"Sec-Purpose", "Purpose", "X-Moz"} {
		for _, value := range d.req.Header.Values(name) {
			if strings.HasPrefix(value, "prefetch") {
				return true
			}
		}
	}
	if sites := d.req.Header.Values("Sec-Fetch-Site"); len(sites) > 0 {
		return !slices.Contains(sites, "same-origin") && !slices.Contains(sites, "same-site")
	}
	for _, referer := range d.req.Header.Values("Referer") {
		if _, after, found := strings.Cut(referer, "://"); found && d.req.Host != "" {
			host, _, _ := strings.Cut(after, "/")
			return !strings.EqualFold(plainHost(host), plainHost(d.req.Host))
		}
	}
	return false
}

// Length returns the length of ban number n (from 0) of a key by a rule: Growth
// times the length of the ban before, at most Max, and up to a tenth more.
// Because of that tenth, clients that are banned together do not return
// together. It depends on t, key, rule and n alone, so a replay gives the same
// length.
func (t *BanTerms) Length(key BanKey, rule string, n int) time.Duration {
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
	return time.Duration(min(length*(1+tenth), float64(maxBan)))
}

// ForgiveAfter returns the time without a refusal after which one former ban is
// forgiven: Forgive, or its default.
func (t *BanTerms) ForgiveAfter() time.Duration {
	if t.Forgive == 0 {
		return 24 * time.Hour
	}
	return t.Forgive
}

// maxBan bounds the length of a ban, so that its end is a time that can be
// written.
const maxBan = 100 * 365 * 24 * time.Hour

// A BanRecord is a ban that refusals by a rule caused, or a former one.
type BanRecord struct {
	Client ClientID
	Rule   string  // its name
	Kind   KeyKind // of what is banned: ByAddr, ByNetwork or ByBot
	Number int     // bans so far, less the steps forgiven
	Began  time.Time
	Until  time.Time
	Since  time.Time // from when forgiveness counts
	DryRun bool      // nobody was banned: the rule is in dry run
}
