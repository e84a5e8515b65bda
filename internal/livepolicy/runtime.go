package livepolicy

import (
	"context"
	"sync"

	"fairshare"
	"fairshare/asn"
	"fairshare/clientaddr"
	"fairshare/internal/setup"
	"fairshare/membans"
	"fairshare/memlimit"
	"fairshare/policyfile"
	"fairshare/redislimit"
	"fairshare/share"
	"fairshare/visitor"
)

// A Runtime is what one version of a policy file needs at run time. A reload
// makes another.
type Runtime struct {
	File    *policyfile.File
	Lists   *setup.Lists // nil: no list comes from a file or a URL
	Owners  *asn.Live    // nil: the policy file names no table of owners
	Clients *clientaddr.Resolver
	Bots    *setup.BotIdentifier
	Limiter *memlimit.Limiter   // the counters of this program; with a Group what it knows of those of the group
	Group   *redislimit.Limiter // nil: this program counts for itself
	Guard   *fairshare.Guard
	Share   *share.Queue            // of the Policy; nil: requests do not wait for the upstream
	Shares  map[string]*share.Queue // likewise, of sites, by name

	Visitors *visitor.Cookies // of the Policy; nil: clients are known by their addresses
	Members  *visitor.Members // nil: no cookie of the site says that a client is logged in
	secrets  [][]byte         // of Visitors, that the policy file names; nil: those of the state folder

	stop func() // ends what start began
}

// trialMemory is for the counters of a runtime that judges nothing, in bytes.
const trialMemory = 1 << 20

// newRuntime opens what a policy file names. It takes over the counters, the
// lists and the DNS cache of the previous runtime, which may be nil. A trial shows whether there is an error:
// its runtime has counters and bans of its own, fetches no URL, and is discarded.
func (p *Policy) newRuntime(ctx context.Context, file *policyfile.File, previous *Runtime, trial bool) (rt *Runtime,
	err error) {
	rt = &Runtime{File: file, stop: func() {}}
	file.Provide(policyfile.Facts{Lists: true, Bots: true, Lookups: true, Labels: true, Owners: true, Fleets: true,
		Busy: file.Share != nil, Browsers: true, Robots: true, Attempts: true, Forms: true})
	old := previous
	if old == nil {
		old = new(Runtime)
	}
	// The lists come first: trusted proxies may be among them.
	rt.Lists, err = setup.OpenLists(ctx, file, setup.ListOptions{State: p.options.Folder, Log: p.options.Log,
		FetchLater: trial, Previous: old.Lists, Changed: func(name string) { p.listChanged(file, name) }})
	if err != nil {
		return nil, err
	}
	if rt.Owners, err = setup.OpenOwners(file, old.Owners, p.options.Log); err != nil {
		return nil, err
	}
	if !trial {
		for _, warning := range setup.UnknownOwners(file, rt.Owners) {
			p.options.Log(warning)
		}
	}
	if err := rt.readVisitorSecrets(); err != nil {
		return nil, err
	}
	if rt.Clients, err = setup.NewResolver(file); err != nil {
		return nil, err
	}
	rt.Bots, err = setup.NewBotIdentifier(file, setup.BotOptions{UseDNS: true, Log: p.options.Log, Previous: old.Bots,
		Started: p.options.Clock.Wall(p.Now()), Confirmed: p.confirmed.add})
	if err != nil {
		return nil, err
	}
	bots := rt.Bots // an error sets rt to nil
	defer func() {
		if err != nil {
			bots.Close(old.Bots)
		}
	}()
	bans := p.bans
	var limiter fairshare.Limiter
	if trial {
		bans = membans.New(0)
		rt.Limiter, err = memlimit.New(file.Policy.Limits(), memlimit.Options{Memory: trialMemory})
		limiter = rt.Limiter
	} else {
		limiter, err = rt.openLimiter(ctx, p, previous)
	}
	if err != nil {
		return nil, err
	}
	if rt.Guard, err = fairshare.NewGuard(&file.Policy, limiter, bans); err != nil {
		return nil, err
	}
	rt.Guard.UseHistory(p.history)
	rt.Guard.UseBusyOf(func(site string) bool {
		queue := rt.Queue(site)
		return p.attack.isOn(p.Now) || queue != nil && queue.IsBusy()
	})
	return rt, nil
}

// start keeps lists and published ranges up to date until stop.
func (rt *Runtime) start(state string, log func(string)) {
	rt.Bots.Activate()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { rt.Lists.Run(ctx) })
	all.Go(func() { rt.Owners.Run(ctx) })
	all.Go(func() { rt.Bots.RunKeys(ctx) })
	all.Go(func() {
		if err := rt.Bots.RunRanges(ctx, state, log); err != nil {
			log("bots: " + err.Error())
		}
	})
	rt.stop = func() {
		cancel()
		all.Wait()
	}
}
