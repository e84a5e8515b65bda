// Package census counts the clients that were seen and refused recently. It
// warns the operator if too many are refused, and summarizes what was refused or a
// dry run would have refused. Start with [New].
package census

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"fairshare"
	"fairshare/internal/network"
	"fairshare/internal/prose"
	"fairshare/internal/reports"
)

// A Census counts all clients, and those refused or blocked. It stores no address,
// only seeded hashes. It is safe for concurrent use.
//
// Its memory is bounded for any number of clients: 190 KiB at first. If thousands of
// clients are refused or blocked it grows to at most 1 MiB, and 256 KiB for each rule
// that refuses them.
type Census struct {
	state atomic.Pointer[state] // in which requests are recorded

	mu       sync.Mutex // held by Tick, End and Replace
	seed     [2]uint64
	start    time.Time
	latest   time.Time // the latest time of a call
	at       time.Time // when the present period began
	last     *period   // the previous period, which began at lastAt
	lastAt   time.Time
	owed     bool    // last is not in the sums yet
	hour     *period // the sum of the periods since hourAt
	hourAt   time.Time
	run      *period // the sum of all periods
	warnedOf [kinds]warning

	engines  engines  // search engines that were refused
	heavy    heavy    // clients that take most of the upstream's time
	guesses  guesses  // failed logins
	checkers checkers // clients that look like link checkers
}

// Lengths of periods. Warnings cover the present and the previous period.
const (
	periodLength = 5 * time.Minute
	hourLength   = time.Hour
)

// A kind is a reason why a client was refused, or would have been.
type kind int

const (
	enforced  kind = iota // refused or blocked
	dryPolicy             // passed, because the whole policy is in dry run
	dryRules              // passed, because the rule is in dry run
	busy                  // refused, because a busy upstream had no turn for it
	dryBusy               // the same, but passed, because the whole policy is in dry run
	kinds
)

// kindOf returns why a rule refused a request, or would have with dry; kinds if no tally counts that.
func kindOf(rule *fairshare.Rule, dry bool) kind {
	switch {
	case rule == nil || rule == fairshare.AttackMode || rule == fairshare.OperatorBan:
		return kinds
	case rule == fairshare.BusyUpstream && dry:
		return dryBusy
	case rule == fairshare.BusyUpstream:
		return busy
	case !dry:
		return enforced
	case rule.DryRun:
		return dryRules
	}
	return dryPolicy
}

// A state holds the values that each request needs. It is replaced, never changed.
type state struct {
	*period
	seed  [2]uint64
	mask4 uint64 // of the prefix of a client
	mask6 [2]uint64
	bits4 int // of the prefix of a client
	bits6 int
	dry   [kinds]bool // which of dryPolicy and dryRules apply
}

// A period holds the counts of a time.
type period struct {
	seen      seen
	requests  [stripes]stripe // of all clients, spread by their hash
	waited    atomic.Int64    // requests that waited
	tallies   [kinds]tally
	operators [2]count // requests that operators' bans refused, and would have refused in dry run
}

// stripes is the number of counters for one sum, so that cores do not wait for each other.
const stripes = 8

// A stripe is a counter with a cache line of its own.
type stripe struct {
	atomic.Int64
	_ [56]byte
}

// join adds the counts of another period.
func (p *period) join(other *period) {
	p.seen.join(&other.seen)
	for i := range p.operators {
		p.operators[i].join(&other.operators[i])
	}
	for i := range p.requests {
		p.requests[i].Add(other.requests[i].Load())
	}
	p.waited.Add(other.waited.Load())
	for k := range p.tallies {
		p.tallies[k].join(&other.tallies[k])
	}
}

// New returns a Census for a policy that begins at now.
func New(policy *fairshare.Policy, now time.Time) *Census {
	return newCensus(policy, now, [2]uint64{rand.Uint64(), rand.Uint64()})
}

func newCensus(policy *fairshare.Policy, now time.Time, seed [2]uint64) *Census {
	c := &Census{
		seed: seed, start: now, latest: now,
		at: now, last: &period{}, lastAt: now,
		hour: &period{}, hourAt: now, run: &period{},
		engines: engines{idle: now},
		heavy:   heavy{since: now},
		guesses: guesses{at: now, lastAt: now, present: &guessTable{}, last: &guessTable{}},
	}
	c.state.Store(c.stateOf(policy, &period{}))
	return c
}

// Replace changes the policy. All counts stay.
func (c *Census) Replace(policy *fairshare.Policy) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.Store(c.stateOf(policy, c.state.Load().period))
}

func (c *Census) stateOf(policy *fairshare.Policy, p *period) *state {
	s := &state{period: p, seed: c.seed}
	s.bits4, s.bits6 = network.ClientBits(policy.IPv4Prefix, policy.IPv6Prefix)
	s.mask4 = network.Mask(32+s.bits4) & (1<<48 - 1)
	s.mask6 = [2]uint64{network.Mask(s.bits6), network.Mask(s.bits6 - 64)}
	s.dry[dryPolicy] = policy.DryRun
	for i := range policy.Rules {
		s.dry[dryRules] = s.dry[dryRules] || policy.Rules[i].DryRun
	}
	return s
}

// client returns the prefix of an address that limits count as one client.
func (s *state) client(addr netip.Addr) netip.Prefix {
	return network.Cut(addr, s.bits4, s.bits6)
}

// hash returns the hash of a client: of the prefix of its address, and of the peer
// that named it, if any.
func (s *state) hash(addr, via netip.Addr) uint64 {
	var hi, lo uint64
	if addr.Is4() {
		a := addr.As4()
		lo = (0xFFFF<<32 | uint64(binary.BigEndian.Uint32(a[:]))) & s.mask4
	} else {
		a := addr.As16()
		hi, lo = binary.BigEndian.Uint64(a[:8])&s.mask6[0], binary.BigEndian.Uint64(a[8:])&s.mask6[1]
	}
	// Two rounds of the multiplication of wyhash.
	h, l := bits.Mul64(hi^s.seed[0], lo^s.seed[1])
	h, l = bits.Mul64(h^l^s.seed[1], lo^0x9E3779B97F4A7C15)
	if via.IsValid() {
		return h ^ l ^ s.hash(via, netip.Addr{})
	}
	return h ^ l
}

// Saw records a request of a client, with any verdict. It takes some nanoseconds.
// Clients without an address count as one. via is as in a [fairshare.Request].
func (c *Census) Saw(addr, via netip.Addr) {
	s := c.state.Load()
	hash := s.hash(addr, via)
	s.seen.add(hash)
	s.requests[hash%stripes].Add(1)
}

// Waited records that a request has waited for its turn or for other requests to end.
func (c *Census) Waited() { c.state.Load().waited.Add(1) }

// Refused records that a rule refused or blocked requests, or would have in dry run.
// Bans by operators cause no warning, since operators intend them; they are only
// in the summaries. The same applies to newcomers that the attack mode holds.
// Refusals by a busy upstream are counted separately, since no rule causes them.
func (c *Census) Refused(g *reports.Refusals) {
	if g.Rule == nil || g.Rule == fairshare.AttackMode {
		return
	}
	s, k := c.state.Load(), kindOf(g.Rule, g.DryRun)
	hash := s.hash(g.Addr, g.Via)
	if !g.DryRun && g.Rule != fairshare.OperatorBan && g.Rule != fairshare.BusyUpstream {
		c.guesses.refused(g, hash)
		c.checkers.refused(g, s)
	}
	if k == kinds {
		of := &s.operators[0]
		if g.DryRun {
			of = &s.operators[1]
		}
		of.requests.Add(g.N)
		of.clients.add(hash, false)
		return
	}
	all := &s.tallies[k]
	rule := all.rule(g.Rule.Name)
	all.requests.Add(g.N)
	if g.Ban == fairshare.BanStarted {
		all.bans.Add(g.N)
	}
	all.bots.add(&g.Bot, g.N)
	if engine(&g.Bot) {
		c.engines.add(refusedEngine{bot: g.Bot.Name, rule: g.Rule.Name, action: g.Action, dry: g.DryRun}, g.N)
	}
	rule.requests.Add(g.N)
	if rule.clients.knows(hash, g.Person) {
		return
	}
	all.clients.add(hash, g.Person)
	rule.clients.add(hash, g.Person)
}

// Tick returns the messages that are due now, one line each; usually there are none.
// Call it every few seconds, since it ends the periods.
func (c *Census) Tick(now time.Time) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	now = c.clamp(now)
	lines := append(c.warnings(now), c.engines.warnings(now)...)
	lines = append(lines, c.guesses.warnings(now)...)
	lines = append(lines, c.checkers.lines(now)...)
	c.fold()
	if c.at.Sub(c.hourAt) >= hourLength {
		lines = append(lines, c.summaries(c.hour, prose.Last(c.at.Sub(c.hourAt)))...)
		c.hour, c.hourAt = &period{}, c.at
	}
	if now.Sub(c.at) >= periodLength {
		c.turn(now)
	}
	return lines
}

// End returns the messages at the end of serving: the summaries, for the rest of the last
// hour and for the whole time since the start.
func (c *Census) End(now time.Time) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	now = c.clamp(now)
	c.fold()
	c.turn(now)
	c.fold()
	var lines []string
	if c.hourAt.After(c.start) && now.After(c.hourAt) {
		lines = c.summaries(c.hour, prose.Last(now.Sub(c.hourAt)))
	}
	return append(lines, c.summaries(c.run, "from start to end, "+prose.Duration(now.Sub(c.start)))...)
}

// clamp returns now, or the latest time of a call if that is later.
func (c *Census) clamp(now time.Time) time.Time {
	if now.After(c.latest) {
		c.latest = now
	}
	return c.latest
}

// turn begins a new period. The previous one is added to the sums at the next Tick,
// when no request is recorded in it any more.
func (c *Census) turn(now time.Time) {
	next := *c.state.Load()
	c.last, c.lastAt, c.owed = next.period, c.at, true
	next.period = &period{}
	c.state.Store(&next)
	c.at = now.Add(-(now.Sub(c.start) % periodLength))
}

// fold adds the previous period to the sums, once.
func (c *Census) fold() {
	if c.owed {
		c.hour.join(c.last)
		c.run.join(c.last)
		c.owed = false
	}
}
