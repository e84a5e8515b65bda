package fairshare

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"fairshare/internal/network"
)

// A Resource is what a limit counts.
type Resource uint8

const (
	Requests   Resource = iota + 1 // one for each request, charged on arrival
	Concurrent                     // requests in progress: charged on arrival, given back at the end
	Bytes                          // response body bytes, charged at settle
	Errors                         // answers whose status is in Limit.Statuses, charged at settle
	Refusals                       // refusals of a rule, counted towards its ban; never written in a policy
	// CPU time of the upstream in µs, charged at settle and while a request is in progress
	CPU
	Time     // time that the upstream took in µs, charged like CPU
	Cost     // units that the upstream reports with its answer, charged at settle
	Failures // attempts that the site turned down, as Outcome.Failed says; charged at settle
)

// String returns the resource's name in a policy file.
func (r Resource) String() string {
	switch r {
	case Requests:
		return "requests"
	case Concurrent:
		return "concurrent"
	case Bytes:
		return "bytes"
	case Errors:
		return "errors"
	case Refusals:
		return "refusals"
	case CPU:
		return "cpu"
	case Time:
		return "time"
	case Cost:
		return "cost"
	case Failures:
		return "failures"
	}
	return fmt.Sprintf("resource %d", uint8(r))
}

// Settled reports whether the cost is known only after the answer: such a
// limit is tested on arrival and charged at settle.
func (r Resource) Settled() bool { return r.Held() || r == Refusals }

// Held reports whether a request in progress counts before it is settled, with
// its expected cost.
func (r Resource) Held() bool {
	return r == Bytes || r.CountsAnswers() || r == CPU || r == Time || r == Cost
}

// CountsAnswers reports whether a request costs 1 or nothing, as its answer says.
func (r Resource) CountsAnswers() bool { return r == Errors || r == Failures }

// An Algorithm says how a limit looks back in time.
type Algorithm uint8

const (
	// Window weighs the last and the present window of length W, cut at
	// multiples of W since the Unix epoch. The zero Algorithm.
	Window Algorithm = iota
	// GCRA is the generic cell rate algorithm (ITU-T I.371): a steady rate of
	// N per W with Burst at once.
	GCRA
	// Quiet counts requests until a pause of at least W.
	Quiet
)

// String returns the algorithm's name in a policy file.
func (a Algorithm) String() string {
	switch a {
	case Window:
		return "window"
	case GCRA:
		return "gcra"
	case Quiet:
		return "quiet"
	}
	return fmt.Sprintf("algorithm %d", uint8(a))
}

// A When says in which state of the upstream a limit holds.
type When uint8

const (
	// Always is the zero When.
	Always When = iota
	// Busy limits hold only while the upstream is busy, as [Guard.UseBusy] says.
	// Meanwhile they are tested and charged as others. Otherwise their rules are
	// skipped: what a client used while there was room is not held against it
	// later. What was charged in an earlier busy time still counts.
	Busy
)

// String returns the name in a policy file.
func (w When) String() string {
	switch w {
	case Always:
		return "always"
	case Busy:
		return "busy"
	}
	return fmt.Sprintf("when %d", uint8(w))
}

// A KeyPart names one part of the key that a limit counts under.
type KeyPart struct {
	Kind KeyKind
	Name string // of the cookie, header, value or field; else empty

	// Bits4 and Bits6 are the prefix lengths of a network, 1 to 32 and 1 to 128;
	// 0 means 24 and 48. Other kinds have none.
	Bits4, Bits6 uint8
}

// PrefixLengths returns the prefix lengths of a network, for IPv4 and IPv6.
func (p KeyPart) PrefixLengths() (bits4, bits6 int) {
	bits4, bits6 = network.Bits4, network.Bits6
	if p.Bits4 != 0 {
		bits4 = int(p.Bits4)
	}
	if p.Bits6 != 0 {
		bits6 = int(p.Bits6)
	}
	return bits4, bits6
}

// A KeyKind is the kind of a key part.
type KeyKind uint8

const (
	ByAddr      KeyKind = iota + 1 // the client address, cut to the policy's prefix lengths
	ByNetwork                      // IPv4 /24, IPv6 /48, or KeyPart.Bits4 and KeyPart.Bits6
	ByUserAgent                    // the User-Agent text
	ByHost                         // the Host without port and final dot, lower case
	ByPath                         // the decoded path
	ByEveryone                     // one key for all
	ByCookie                       // the value of the cookie Name
	ByHeader                       // the value of the header Name
	ByBot                          // a verified bot, whatever its address; all others by their address
	byPeer                         // Request.Via; never written in a policy, see Policy.Limits
	ByValue                        // the value Name of Request.Values, which the program gives
	ByASN                          // the number of Request.Owner; all others by their network, as ByNetwork
	ByVisitor                      // Request.Visitor, whatever its address; all others by their address
	ByFleet                        // Request.Fleet, whatever the addresses; all others by their address

	// ByOperator counts all verified bots of one operator (Bot.Operator, or Bot.Name
	// if it is unknown) together, and apart from them all clients that claim without
	// proof to be one of them. All others count by their address. ByPurpose does the
	// same for AI bots by Bot.Purpose.
	ByOperator
	ByPurpose

	ByForm // the value of the field Name of Request.Form, in any case; all others by their address
)

// String returns the part as a policy file spells it.
func (p KeyPart) String() string {
	switch p.Kind {
	case ByAddr:
		return "addr"
	case ByNetwork:
		switch bits4, bits6 := p.PrefixLengths(); {
		case bits4 == network.Bits4 && bits6 == network.Bits6:
			return "network"
		case bits6 == 2*bits4:
			return fmt.Sprintf("network/%d", bits4)
		default:
			return fmt.Sprintf("network/%d/%d", bits4, bits6)
		}
	case ByUserAgent:
		return "user_agent"
	case ByHost:
		return "host"
	case ByPath:
		return "path"
	case ByEveryone:
		return "everyone"
	case ByCookie:
		return "cookie:" + p.Name
	case ByHeader:
		return "header:" + p.Name
	case ByBot:
		return "bot"
	case byPeer:
		return "peer"
	case ByValue:
		return "value:" + p.Name
	case ByASN:
		return "asn"
	case ByVisitor:
		return "visitor"
	case ByFleet:
		return "fleet"
	case ByOperator:
		return "operator"
	case ByPurpose:
		return "purpose"
	case ByForm:
		return "form:" + p.Name
	}
	return fmt.Sprintf("key part %d", uint8(p.Kind))
}

// bans reports whether a client may be banned under a key of this kind.
func (k KeyKind) bans() bool { return k == ByAddr || k == ByNetwork || k == ByBot }

// Bounds of a limit.
const (
	MinWindow = time.Millisecond
	MaxWindow = 31 * 24 * time.Hour
	MaxN      = 1 << 27 // of requests, concurrent, errors, failures, and of a burst
	MaxBytes  = 1 << 43 // of bytes and cost
	MaxMicros = 1 << 50 // of CPU and time, in µs: 35 years
)

// provisionalClients is by how much the ceiling of a peer exceeds the limit. A
// ceiling holds for all provisional clients of the peer together.
const provisionalClients = 256

// A Limit is an allowance of one resource per window and key. Two limits with
// the same Name, By, Resource, Window, Algorithm and Distinct are the same limit
// and keep their counters. N, Burst, Statuses, DryRun, When, Count, Newcomers,
// Exact and EachMember may change.
type Limit struct {
	Name      string        // of its rule
	Resource  Resource      // what it counts; zero is an error
	N         int64         // allowance, in the resource's unit; 1 to MaxN, MaxBytes or MaxMicros; Requests: 0 is never
	Window    time.Duration // MinWindow to MaxWindow; 0 for Concurrent
	Algorithm Algorithm     // Quiet with Requests only
	Burst     int64         // GCRA: how much may be spent at once; 0 means N
	By        []KeyPart     // empty means ByAddr
	Statuses  StatusSet     // Errors: what is an error; the zero set means 400 to 499
	DryRun    bool          // decide and report, enforce nothing
	When      When          // Busy: the limit holds only while the upstream is busy
	Count     Unit          // Requests: what counts as one

	// Distinct is for Requests with a window of at least MinDistinctWindow, and not
	// for Quiet. A request that does not count passes l, even while l is over. A
	// path counts again when a window has gone by since it was charged, whether or
	// not it was requested meanwhile. A path that was refused or refunded, or whose
	// request is still in progress, was not charged. After a restart of the program
	// all paths count again.
	Distinct Distinct

	// Exact is for programs that count together, see package redislimit. The store is
	// asked before the limit admits a request. So no request passes above the
	// allowance, even if several programs decide at the same moment. Limits in memory
	// are always exact.
	Exact bool
	// EachMember is for Concurrent and programs that count together: each program
	// counts its own requests in progress, and may have N of them.
	EachMember bool

	// CrawlDelay says that the site's robots.txt sets the rate: one request in each
	// Request.Robots.Delay, at most MaxCrawlDelay, and Burst at once. Without a delay
	// the limit does not hold. It needs Requests, GCRA, N 1 and the window MaxCrawlDelay.
	CrawlDelay bool

	// Newcomers is for a key that unrelated clients share. While the limit is
	// over, clients with standing pass, and each newcomer is counted by its own
	// address under Newcomers. With N 0 newcomers are refused meanwhile. nil means
	// that the limit refuses all clients while it is over. The Name, Statuses, When,
	// Distinct and DryRun of Newcomers are ignored: those of the limit apply. By is ignored,
	// too. Resource must be that of the limit.
	Newcomers *Limit
}

// Shared reports whether unrelated clients may count under one key. Clients that
// claim to be bots of one operator or purpose are not unrelated: no person makes
// such a claim.
func (l *Limit) Shared() bool {
	for _, part := range l.By {
		switch part.Kind {
		case ByAddr, ByBot, ByVisitor, ByOperator, ByPurpose:
			return false
		}
	}
	return len(l.By) > 0
}

// lowers reports whether newcomers have a limit of their own while l is over.
func (l *Limit) lowers() bool { return l.Newcomers != nil && l.Newcomers.N > 0 }

// Allowed returns how much may be spent at once: Burst of a GCRA limit, else N.
func (l *Limit) Allowed() int64 {
	if l.Algorithm == GCRA && l.Burst > 0 {
		return l.Burst
	}
	return l.N
}

// How many requests of one key may be in progress before their costs are known.
const (
	mostAtOnce  = 16
	sharedTimes = 8 // factor for a key that unrelated clients share
	fewTimes    = 4 // divisor for a new key
)

// AtOnce returns how many requests of one key may be in progress under l before
// their costs are known. A key that is new, or was idle for a window, begins with
// few. Each request that settles adds one, up to most. A key that unrelated
// clients share has more of both. AtOnce is for all resources that are held,
// except Errors and Failures.
func (l *Limit) AtOnce() (few, most int64) {
	switch most = mostAtOnce; {
	case l.IsCeiling():
		most *= provisionalClients
	case l.sharesHolds():
		most *= sharedTimes
	}
	return most / fewTimes, most
}

// sharesHolds reports whether unrelated clients share each part of the key.
func (l *Limit) sharesHolds() bool {
	for _, part := range l.By {
		switch part.Kind {
		case ByNetwork, ByUserAgent, ByHost, ByPath, ByEveryone, ByASN:
		default:
			return false
		}
	}
	return len(l.By) > 0
}

// MostExpected returns how much a request may hold because of the recent costs
// of its key and page. Usually that is all that l allows at once. If unrelated
// clients share the key, it is l.Allowed() divided by the few of [Limit.AtOnce]:
// one client's expensive requests leave room for the others.
func (l *Limit) MostExpected() int64 {
	few, most := l.AtOnce()
	if most == mostAtOnce {
		return l.Allowed()
	}
	return max(l.Allowed()/few, 1)
}

// most returns the greatest N of a limit; 0 for an unknown resource.
func (r Resource) most() int64 {
	switch r {
	case Requests, Concurrent, Errors, Failures, Refusals:
		return MaxN
	case Bytes, Cost:
		return MaxBytes
	case CPU, Time:
		return MaxMicros
	}
	return 0
}

// Check returns all errors of l, joined, or nil.
func (l *Limit) Check() error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	most := l.Resource.most()
	if most == 0 {
		fault("unknown %s", l.Resource)
	}
	switch {
	case l.N == 0 && l.Resource == Requests && l.Algorithm == Window: // no request ever passes
	case l.N == 0 && l.Resource == Requests:
		fault("requests: 0 takes no algorithm")
	case l.N < 1 || l.N > most:
		fault("%s: %d is not between 1 and %d", l.Resource, l.N, most)
	}
	switch {
	case l.Resource == Concurrent && l.Window != 0:
		fault("concurrent takes no window")
	case l.Resource != Concurrent && (l.Window < MinWindow || l.Window > MaxWindow):
		fault("window %v is not between 1ms and 31d", l.Window)
	}
	if l.When > Busy {
		fault("unknown %s", l.When)
	}
	switch {
	case l.Algorithm > Quiet:
		fault("unknown %s", l.Algorithm)
	case l.Algorithm != Window && l.Resource == Concurrent:
		fault("concurrent takes no algorithm")
	case l.Algorithm == Quiet && l.Resource != Requests:
		fault("quiet counts requests only")
	}
	if l.EachMember && l.Resource != Concurrent {
		fault("only concurrent can count for each program")
	}
	switch {
	case l.Distinct > DistinctQueries:
		fault("unknown distinct %d", l.Distinct)
	case l.Distinct == EveryRequest:
	case l.Resource != Requests:
		fault("distinct counts requests only")
	case l.Algorithm == Quiet:
		fault("distinct: not with quiet, which counts until a pause of all requests")
	case l.Window < MinDistinctWindow:
		fault("distinct: the window is at least 1s, not %v", l.Window)
	}
	if l.CrawlDelay && (l.Resource != Requests || l.Algorithm != GCRA || l.N != 1 || l.Window != MaxCrawlDelay ||
		l.Distinct != EveryRequest || l.Newcomers != nil) && !l.IsCeiling() {
		fault("crawl delay: requests, gcra, N 1 and the window %v are needed, without distinct and newcomers", MaxCrawlDelay)
	}
	if l.Burst != 0 {
		if l.Algorithm != GCRA {
			fault("burst belongs to gcra")
		}
		if l.Burst < 0 || l.Burst > most {
			fault("burst: %d is not between 1 and %d", l.Burst, most)
		}
	}
	switch {
	case l.Count > Pages:
		fault("unknown %s", l.Count)
	case l.Count == Pages && (l.Resource != Requests || l.Algorithm == Quiet):
		fault("count: pages belongs to requests, and not to quiet")
	}
	for _, part := range l.By {
		if part.Kind != ByNetwork && (part.Bits4 != 0 || part.Bits6 != 0) {
			fault("by: %s has no prefix lengths", part)
		}
		if part.Bits4 > 32 || part.Bits6 > 128 {
			fault("by: %s: an IPv4 prefix has 1 to 32 bits, an IPv6 prefix 1 to 128", part)
		}
	}
	if n := l.Newcomers; n != nil {
		if !l.Shared() {
			fault("newcomers: only for a limit whose key unrelated clients share")
		}
		if n.Resource != l.Resource || n.Newcomers != nil {
			fault("newcomers: a limit of %s is needed, without newcomers", l.Resource)
		} else if n.Count != l.Count {
			fault("newcomers: count is that of the limit")
		} else if n.N != 0 {
			own := *n
			own.Distinct = l.Distinct
			if err := own.Check(); err != nil {
				fault("newcomers: %w", err)
			}
		}
	}
	return errors.Join(errs...)
}

// countsClients reports whether a key of l may contain an address: a client that
// lacks a part of the key is counted by its address.
func (l *Limit) countsClients() bool {
	return slices.ContainsFunc(l.By, func(part KeyPart) bool { return part.Kind != ByEveryone })
}

// IsCeiling reports whether l holds for all provisional clients of a peer
// together, as [Policy.Limits] adds them.
func (l *Limit) IsCeiling() bool { return len(l.By) > 0 && l.By[len(l.By)-1].Kind == byPeer }

// ceiling returns the limit that holds for all provisional clients of one peer
// together.
func (l *Limit) ceiling() Limit {
	c := *l
	c.N = min(c.N*provisionalClients, c.Resource.most())
	c.Burst = min(c.Burst*provisionalClients, c.Resource.most())
	c.Newcomers = nil
	if c.Algorithm == Quiet { // a busy peer never pauses
		c.Algorithm = Window
	}
	c.By = append(slices.Clone(c.By), KeyPart{Kind: byPeer})
	return c
}

// Paced returns l as a [Take] or [Charge] with this Every counts it: one unit in
// each Every. 0 means l itself.
func (l *Limit) Paced(every time.Duration) Limit {
	p := *l
	if every > 0 && l.Algorithm == GCRA {
		p.Burst, p.N, p.Window = l.Allowed(), 1, every
	}
	return p
}

// A StatusSet is a set of HTTP status codes from 100 to 599. The zero set is
// empty.
type StatusSet [8]uint64

// Add adds the codes from first to last. It ignores codes outside 100 to 599.
func (s *StatusSet) Add(first, last int) {
	for c := max(first, 100); c <= min(last, 599); c++ {
		s[(c-100)>>6] |= 1 << ((c - 100) & 63)
	}
}

// Has reports whether code is in the set.
func (s *StatusSet) Has(code int) bool {
	return code >= 100 && code <= 599 && s[(code-100)>>6]>>((code-100)&63)&1 == 1
}

// Empty reports whether no code is in the set.
func (s *StatusSet) Empty() bool { return *s == StatusSet{} }
