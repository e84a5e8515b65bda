// Package census counts the clients that were seen and refused recently. It
// warns the operator if too many are refused, and summarizes what a dry run would
// have refused. Start with [New].
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
)

// A Census counts clients: all that were seen, and those refused or blocked.
// It keeps no address, only hashes with a secret seed. It is safe for
// concurrent use.
//
// Its memory is bounded for any number of clients: 190 KiB at first; when thousands of
// clients are refused or blocked at most 1 MiB, and 256 KiB for each rule that
// does it.
type Census struct {
	state atomic.Pointer[state] // what requests are noted in

	mu     sync.Mutex // held by Tick, End and Replace
	seed   [2]uint64
	start  time.Time
	latest time.Time // that was handed in
	at     time.Time // when the present period began
	last   *period   // the one before it, which began at lastAt
	lastAt time.Time
	owed   bool    // last is not in the sums yet
	hour   *period // the sum of those since hourAt
	hourAt time.Time
	run    *period // the sum of all
	spoken [kinds]warning

	engines  engines  // that were refused
	heavy    heavy    // clients that take most of the upstream's time
	guesses  guesses  // failed logins
	checkers checkers // clients that look like link checkers
}

// How time is cut. The last and the present period together are recent.
const (
	periodLength = 5 * time.Minute
	hourLength   = time.Hour
)

// A kind is why a client was or was not refused.
type kind int

const (
	enforced  kind = iota // refused or blocked
	dryPolicy             // let through, as the whole policy is in dry run
	dryRules              // let through, as the rule is
	busy                  // refused, as a busy upstream had no turn for it
	dryBusy               // let through, as the whole policy is in dry run
	kinds
)

// A state is what is read for each request. It is replaced, never changed.
type state struct {
	*period
	seed  [2]uint64
	mask4 uint64 // of what a client is known by
	mask6 [2]uint64
	bits4 int // of the prefix of a client
	bits6 int
	dry   [kinds]bool // of dryPolicy and dryRules, which there are
}

// A period is what was seen in some time.
type period struct {
	seen      seen
	tallies   [kinds]tally
	operators count // bans of theirs in a policy in dry run
}

// join adds what was seen in another period.
func (p *period) join(other *period) {
	p.seen.join(&other.seen)
	p.operators.join(&other.operators)
	for k := range p.tallies {
		p.tallies[k].join(&other.tallies[k])
	}
}

// New returns a Census for a policy, that begins at a time.
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

// Replace goes on with another policy. What was counted stays.
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

// hash returns what a client is known by: the hash of its address, cut to
// the policy's prefix.
// One that a peer named counts with that peer.
func (s *state) hash(addr, via netip.Addr) uint64 {
	var hi, lo uint64
	if addr.Is4() {
		a := addr.As4()
		lo = (0xFFFF<<32 | uint64(binary.BigEndian.Uint32(a[:]))) & s.mask4
	} else {
		a := addr.As16()
		hi, lo = binary.BigEndian.Uint64(a[:8])&s.mask6[0], binary.BigEndian.Uint64(a[8:])&s.mask6[1]
	}
	// Two rounds of the multiplication that wyhash is made of.
	h, l := bits.Mul64(hi^s.seed[0], lo^s.seed[1])
	h, l = bits.Mul64(h^l^s.seed[1], lo^0x9E3779B97F4A7C15)
	if via.IsValid() {
		return h ^ l ^ s.hash(via, netip.Addr{})
	}
	return h ^ l
}

// Saw notes that a client asked, whatever became of its request. It takes
// some nanoseconds. Clients without an address count as one. via is as in a
// [fairshare.Request].
func (c *Census) Saw(addr, via netip.Addr) {
	s := c.state.Load()
	s.seen.add(s.hash(addr, via))
}

// Refused notes that a rule refused or blocked a request, or would have if
// dry. Bans by operators are meant, however many they turn away:
// only that they would have is summed up. Refusals of a busy upstream are told
// apart: no rule is too tight then. Nothing of the request is kept.
func (c *Census) Refused(req *fairshare.Request, found *fairshare.Finding, dry bool) {
	if found.Rule == nil {
		return
	}
	s := c.state.Load()
	if !dry && found.Rule != fairshare.OperatorBan && found.Rule != fairshare.BusyUpstream {
		c.guesses.refused(req, s)
		c.checkers.refused(req, found, s)
	}
	if found.Rule == fairshare.OperatorBan {
		if dry {
			s.operators.requests.Add(1)
			s.operators.clients.add(s.hash(req.Addr, req.Via), false)
		}
		return
	}
	k := enforced
	switch {
	case found.Rule == fairshare.BusyUpstream && dry:
		k = dryBusy
	case found.Rule == fairshare.BusyUpstream:
		k = busy
	case !dry:
	case found.Rule.DryRun:
		k = dryRules
	default:
		k = dryPolicy
	}
	all := &s.tallies[k]
	rule := all.rule(found.Rule.Name)
	all.requests.Add(1)
	all.bots.add(&req.Bot)
	if engine(&req.Bot) {
		c.engines.add(away{bot: req.Bot.Name, rule: found.Rule.Name, action: found.Action, dry: dry})
	}
	rule.requests.Add(1)
	hash := s.hash(req.Addr, req.Via)
	if rule.clients.knows(hash, true) {
		return
	}
	person := Person(req)
	if rule.clients.knows(hash, person) {
		return
	}
	all.clients.add(hash, person)
	rule.clients.add(hash, person)
}

// Tick returns what is to be said now, one line each, mostly nothing. It is
// to be called every few seconds: periods end with it.
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

// End returns what is to be said when serving ends: of what was in dry run,
// the rest of the last hour, and all since the start.
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

// clamp keeps time from running backwards.
func (c *Census) clamp(now time.Time) time.Time {
	if now.After(c.latest) {
		c.latest = now
	}
	return c.latest
}

// turn begins a new period. The one before is folded a Tick later, when
// nobody writes into it any more.
func (c *Census) turn(now time.Time) {
	next := *c.state.Load()
	c.last, c.lastAt, c.owed = next.period, c.at, true
	next.period = &period{}
	c.state.Store(&next)
	c.at = now.Add(-(now.Sub(c.start) % periodLength))
}

// fold adds the period before the present one to the sums, once.
func (c *Census) fold() {
	if c.owed {
		c.hour.join(c.last)
		c.run.join(c.last)
		c.owed = false
	}
}
