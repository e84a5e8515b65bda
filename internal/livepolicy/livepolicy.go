// Package livepolicy puts a policy file in force, with its lists, bots, DNS,
// trusted proxies, counters, bans and registry. Both
// internal/serve and the public package site use it, so a rule means the same in
// both. Start with [New].
package livepolicy

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"fairshare"
	"fairshare/browser"
	"fairshare/clientaddr"
	"fairshare/fleets"
	"fairshare/httpguard"
	"fairshare/internal/census"
	"fairshare/internal/journal"
	"fairshare/internal/network"
	"fairshare/internal/reports"
	"fairshare/internal/setup"
	"fairshare/logins"
	"fairshare/membans"
	"fairshare/memlimit"
	"fairshare/policyfile"
	"fairshare/redislimit"
	"fairshare/registry"
	"fairshare/robots"
	"fairshare/share"
	"fairshare/visitor"
)

// Options say where a Policy keeps its state and what it reports.
type Options struct {
	// Folder has the registry, a snapshot of the counters and copies of lists. ""
	// means that nothing outlives the process.
	Folder string
	// MustWrite makes it an error if the folder cannot be written.
	MustWrite bool
	// NoRegistry runs without a registry: operators' commands have no effect.
	NoRegistry bool
	// RegistryURL is used in place of that of the policy file; "" means the policy file's.
	RegistryURL string

	Clock *httpguard.Clock
	// Now returns the time of the requests that are judged, in the time of Clock, if that
	// is not the present: lines of a log are judged at their own time. nil means Clock.Now.
	Now func() time.Time

	// OneUpstream says that all members of the group that the policy file names have their upstream
	// together, unless the file says otherwise. Otherwise each has one of its own.
	OneUpstream bool

	// Log gets one line for each event. It may be called by several goroutines.
	Log func(line string)

	// ProxiesChanged is called when a list of trusted proxies in force has changed:
	// the policy has to be loaded again.
	ProxiesChanged func(list string)
}

// A Policy is a policy file in force. Its current Runtime changes with each
// reload; counters of limits that stay, bans and the registry do not.
//
// OpenState, Start, Prepare, Discard, Use, Stop and Close are called one at a
// time. All other methods are safe for concurrent use.
type Policy struct {
	options Options
	current atomic.Pointer[Runtime]
	bans    *membans.Bans
	history *fairshare.History
	fleets  *fleets.Finder
	logins  *logins.Watcher
	state   *State
	watch   *clientaddr.Watch
	census  *census.Census
	reports *reports.Collector
	journal *journal.Journal // nil: none
	watches bool             // lines of the journal are about requests of a log
	errors  limiterErrors
	group   *redislimit.Store // nil: the counters are this program's alone
	inGroup *policyfile.Store // how group was opened

	attack      attackMode
	started     atomic.Bool // Start was called
	attackEnded atomic.Bool // the end of the attack mode was logged

	robots   *robots.Sites
	browsers browser.Watcher // allocates nothing until it is used

	queue          *share.Queue            // made by the first policy with share:
	siteQueues     map[string]*share.Queue // likewise, of sites
	knowAges       map[*share.Queue]bool   // the clients of the registry were read into these
	slots          slotSharer
	reportedQueues map[string]share.Stats // by site, at the last report
	reportedLogins map[string]bool        // paths of logins under attack, at the last report
	endedFleets    []registry.FleetRecord // of the last day, the latest last; used by FrequentReport
	fleetsAt       time.Time              // when fleets were last published
	reportedLost   int64                  // counters that were dropped, at the last report

	export     export      // of bans
	shared     sharedBans  // with the group
	keepFailed atomic.Bool // bans of other members could not be written

	confirmed confirmedNames // waits for the registry of a group; without a group nothing takes them

	visitors   *visitor.Cookies // of the runtime in force, or of one before; nil: there were none
	perNetwork int              // of visitors
	ownSecrets bool             // the secrets of visitors are in the state folder
	secretsAt  time.Time        // when these were last looked at
	secretsErr error            // of the last look

	foundProvisional sync.Once
	provisional      chan struct{}

	readingHistory sync.WaitGroup
	ending         context.Context
	end            context.CancelFunc
	stopState      func() // waits too
}

// New opens what a policy file names. Call OpenState and Start next, and Close
// in the end.
func New(ctx context.Context, file *policyfile.File, opts Options) (*Policy, error) {
	if opts.Now == nil {
		opts.Now = opts.Clock.Now
	}
	p := &Policy{options: opts, bans: membans.New(0), history: new(fairshare.History), state: new(State),
		watch: clientaddr.NewWatch(), provisional: make(chan struct{}), stopState: func() {}}
	rt, err := p.newRuntime(ctx, file, nil, false)
	if err != nil {
		p.leaveGroup(nil)
		return nil, err
	}
	p.robots = robots.NewSites(p.botOfToken, opts.Log)
	p.fleets = fleets.New(fleets.Options{Client: func(addr netip.Addr) netip.Prefix {
		return p.Current().File.Policy.Client(addr)
	}})
	p.logins = logins.New(logins.Options{Client: func(addr netip.Addr) netip.Prefix {
		return p.Current().File.Policy.Client(addr)
	}})
	p.ending, p.end = context.WithCancel(context.Background())
	p.census = census.New(&file.Policy, p.Now())
	p.reports = reports.New(reports.Options{Now: opts.Now, Wall: opts.Clock.Wall, Person: p.census.IsPerson,
		Failed: p.errors.addPanic,
		Client: func(addr netip.Addr) netip.Prefix { return p.Current().File.Policy.Client(addr) }}, recorder{p})
	p.current.Store(rt)
	return p, nil
}

// OpenState opens the registry and restores bans and counters from the state
// folder.
func (p *Policy) OpenState(ctx context.Context) error {
	state, err := p.openState(ctx)
	if err != nil {
		return err
	}
	p.state = state
	if state.registrar == nil {
		p.bans.Observe(p.banned)
	}
	rt := p.Current()
	if rt.Group == nil {
		state.restoreCounters(ctx, rt.Limiter, rt.Guard, p.options.Clock, p.Now())
	}
	state.logins = p.logins
	state.restoreLogins(p.Now())
	_, follows := state.store.(*group) // a group reports clients itself, also those of other servers
	p.readFirstSeen(!follows, p.useQueue(rt))
	p.useVisitors(rt)
	p.useRobots(rt)
	p.readFleets(ctx)
	return nil
}

// Start keeps lists and ranges up to date, and writes the registry and the
// counters, until Stop.
func (p *Policy) Start(ctx context.Context) {
	rt := p.Current()
	p.started.Store(true)
	if attack := p.Attack(); attack != "" {
		p.options.Log("attack mode: " + attack)
	}
	p.state.publishSettings(ctx, rt)
	rt.start(p.options.Folder, p.options.Log)
	p.startExport()
	p.startSharing()
	running, cancel := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		p.state.run(running, p.counters)
	}()
	p.stopState = func() {
		cancel()
		<-stopped
	}
}

// Current returns the runtime in force.
func (p *Policy) Current() *Runtime { return p.current.Load() }

// Now returns the time of the guard, which steps of the system's clock do not
// change.
func (p *Policy) Now() time.Time { return p.options.Now() }

// Prepare opens what a new version of the policy file names. Nothing changes
// until Use; call Use or Discard.
func (p *Policy) Prepare(ctx context.Context, file *policyfile.File) (*Runtime, error) {
	return p.newRuntime(ctx, file, p.Current(), false)
}

// Try is Prepare for a look only: the runtime judges nothing and has to be discarded. It also returns what the new
// version of the policy file would do to counters and bans.
func (p *Policy) Try(ctx context.Context, file *policyfile.File) (*Runtime, *Effects, error) {
	rt, err := p.newRuntime(ctx, file, p.Current(), true)
	if err != nil {
		return nil, nil, err
	}
	e := &Effects{FromZero: p.Current().Limiter.FreshOf(file.Policy.Limits())}
	e.Bans, e.Suspended = p.bansUnder(file)
	return rt, e, nil
}

// Effects are what a new version of a policy file does to what is counted.
type Effects struct {
	FromZero  []string        // names of rules whose counters start from zero
	Bans      int64           // bans in force that stay
	Suspended []SuspendedBans // bans in force that would not hold
}

// SuspendedBans are those of a rule that is gone or bans no longer. They hold again if the rule comes back
// before they end.
type SuspendedBans struct {
	Rule string
	N    int64
}

// bansUnder counts the bans in force of rules, by what becomes of them under a version of the policy file.
func (p *Policy) bansUnder(file *policyfile.File) (stay int64, suspended []SuspendedBans) {
	banning := func(f *policyfile.File) map[string]bool {
		names := map[string]bool{}
		for i := range f.Policy.Rules {
			if rule := &f.Policy.Rules[i]; rule.Ban != nil {
				names[rule.Name] = true
			}
		}
		return names
	}
	before, after := banning(p.Current().File), banning(file)
	lost := map[string]int64{}
	bits4, bits6 := network.ClientBits(file.Policy.IPv4Prefix, file.Policy.IPv6Prefix)
	p.bans.InForce(p.Now(), bits4, bits6, func(b fairshare.BanRecord) {
		switch {
		case after[b.Rule]:
			stay++
		case before[b.Rule]:
			lost[b.Rule]++
		}
	})
	for _, rule := range slices.Sorted(maps.Keys(lost)) {
		suspended = append(suspended, SuspendedBans{rule, lost[rule]})
	}
	return stay, suspended
}

// Discard closes a prepared runtime that is not used.
func (p *Policy) Discard(next *Runtime) {
	current := p.Current()
	next.Bots.Close(current.Bots)
	if next.Group != nil { // the group counts by the limits in force again
		limits, digest := current.File.Policy.Limits(), setup.PolicyDigest(&current.File.Policy)
		if _, err := current.Group.With(limits, digest); err != nil {
			p.options.Log("warning: group: " + err.Error())
		}
	}
}

// Use puts a prepared runtime in force; replace hands it to the handlers.
// Requests in progress keep the runtime that judged them.
func (p *Policy) Use(ctx context.Context, next *Runtime, replace func()) {
	p.readFirstSeen(false, p.useQueue(next))
	p.useVisitors(next)
	p.useRobots(next)
	p.FlushReports()
	old := p.current.Swap(next)
	p.census.Replace(&next.File.Policy)
	replace()
	old.stop()
	old.Bots.Close(next.Bots)
	next.start(p.options.Folder, p.options.Log)
	p.state.publishSettings(ctx, next)
	p.startExport()
}

// HandOver writes the counters for the last time. Another process may use the
// state folder from then on.
func (p *Policy) HandOver() {
	p.stopExport() // the other process begins its own
	p.state.handOver(p.counters())
}

// Stop ends what Start began. The counters and the registry are written.
func (p *Policy) Stop() {
	p.stopExport()
	p.slots.stop()
	p.FlushReports()
	p.stopSharing()
	p.stopState()
	p.Current().stop()
}

// Close releases the state folder and ends the DNS lookups, after Stop.
func (p *Policy) Close() {
	p.slots.stop()
	p.FlushReports()
	p.end()
	p.readingHistory.Wait()
	p.Current().Bots.Close(nil)
	p.leaveGroup(p.Current().Group)
	p.state.close()
}

// counters returns the limiter whose counters are stored in the state folder, and the time. It is nil for
// those of a group, which the store has.
func (p *Policy) counters() (*memlimit.Limiter, time.Time) {
	rt := p.Current()
	if rt.Group != nil {
		return nil, p.Now()
	}
	return rt.Limiter, p.Now()
}

// listChanged notices that a list has another version.
func (p *Policy) listChanged(file *policyfile.File, name string) {
	rt := p.Current()
	if rt != nil && rt.File == file && slices.Contains(file.TrustedProxies, name) && p.options.ProxiesChanged != nil {
		p.options.ProxiesChanged(name)
	}
}

// knowInHistory gives a client standing by age from ten minutes after its first request.
func (p *Policy) knowInHistory(client netip.Prefix, first time.Time) {
	p.history.RestoreFirstSeen(client, p.options.Clock.FromWall(first), p.Now())
}

// knowClient records when a client was first seen by any server of the group.
func (p *Policy) knowClient(id fairshare.ClientID, first time.Time) {
	if !id.Prefix.IsValid() || id.Via.IsValid() {
		return
	}
	p.knowInHistory(id.Prefix, first)
	rt, at, now := p.Current(), p.options.Clock.FromWall(first), p.Now()
	if rt.Share != nil {
		rt.Share.Known(id.Prefix, at, now)
	}
	for _, queue := range rt.Shares {
		queue.Known(id.Prefix, at, now)
	}
}

// readFirstSeen reads the clients of the registry once, in the background. It tells the queues, and with history the
// history, when each was first seen.
func (p *Policy) readFirstSeen(history bool, queues []*share.Queue) {
	if p.state.store == nil || !history && len(queues) == 0 {
		return
	}
	p.readingHistory.Go(func() {
		err := p.state.store.FirstSeen(p.ending, func(id fairshare.ClientID, first time.Time) bool {
			if !id.Prefix.IsValid() || id.Via.IsValid() {
				return true
			}
			if history {
				p.knowInHistory(id.Prefix, first)
			}
			at, now := p.options.Clock.FromWall(first), p.Now()
			for _, queue := range queues {
				queue.Known(id.Prefix, at, now)
			}
			return true
		})
		if err != nil && p.ending.Err() == nil {
			p.options.Log(fmt.Sprintf(
				"warning: could not read the known clients: %v; clients of earlier days count as newcomers", err))
		}
	})
}

// Wall turns a time of the guard into the system's time, for people.
func (p *Policy) Wall(t time.Time) time.Time { return p.options.Clock.Wall(t) }
