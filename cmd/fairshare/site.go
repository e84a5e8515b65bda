package main

import (
	"context"
	"errors"
	"net/url"
	"sync"

	"fairshare"
	"fairshare/bots"
	"fairshare/clientaddr"
	"fairshare/internal/prefixes"
	"fairshare/internal/proxy"
	"fairshare/memlimit"
	"fairshare/policyfile"
	"fairshare/share"
)

// A site is what serve makes of one policy file. A reload makes another.
type site struct {
	file     *policyfile.File
	upstream *url.URL
	clients  *clientaddr.Resolver
	limiter  *memlimit.Limiter
	guard    *fairshare.Guard
	who      *who
	lists    *prefixes.Keeper // nil: none comes from elsewhere
	meter    *meter           // nil: CPU time is told, or not known
	share    *share.Queue     // the server's; nil: nobody waits for the upstream

	stop func() // ends what start began
}

// siteTerms are what sites of one server share.
type siteTerms struct {
	bans  *fairshare.Bans
	state string                                   // folder; "" when there is none
	log   func(string)                             // one line
	list  func(file *policyfile.File, name string) // a list has another version
}

// newSite puts together what a policy file asks for. With an older site its
// counters are kept.
func newSite(ctx context.Context, file *policyfile.File, terms siteTerms, old *site) (st *site, err error) {
	st = &site{file: file, stop: func() {}}
	if file.Upstream == "" {
		return nil, &hintError{errors.New("no upstream is given"), "fairshare serve --upstream http://127.0.0.1:3000, or upstream: in the policy file"}
	}
	if st.upstream, err = proxy.ParseUpstream(file.Upstream); err != nil {
		return nil, &hintError{err, "give the site's own scheme, host and port: http://127.0.0.1:3000"}
	}
	// First the lists, which trusted proxies may be among.
	st.lists, err = openLists(ctx, file, listing{state: terms.state, log: terms.log, old: old, changed: func(name string) { terms.list(file, name) }})
	if err != nil {
		return nil, err
	}
	if st.clients, err = newResolver(file); err != nil {
		return nil, err
	}
	var oldWho *who
	var oldMeter *meter
	if old != nil {
		oldWho, oldMeter = old.who, old.meter
	}
	if st.who, err = newWho(file, true, terms.log, oldWho); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			st.who.close(oldWho)
		}
	}()
	if old == nil {
		st.limiter, err = memlimit.New(file.Policy.Limits(), memlimit.Options{Memory: file.Memory})
	} else {
		st.limiter, err = old.limiter.With(file.Policy.Limits())
	}
	if err != nil {
		return nil, err
	}
	if st.guard, err = fairshare.NewGuard(&file.Policy, st.limiter, terms.bans); err != nil {
		return nil, err
	}
	st.meter, err = openMeter(file, st.upstream, terms.log, oldMeter)
	return st, err
}

// start keeps lists and ranges up to date until stop.
func (st *site) start(terms siteTerms) {
	st.who.use()
	st.meter.start()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	if st.lists != nil {
		all.Go(func() { st.lists.Run(ctx) })
	}
	if every := st.file.Bots.Refresh; every > 0 {
		all.Go(func() {
			err := st.who.ranges.Run(ctx, bots.Refresh{Every: every, Folder: beneath(terms.state, "ranges"), Log: terms.log, Agent: agent()})
			if err != nil {
				terms.log("bots: " + err.Error())
			}
		})
	}
	st.stop = func() {
		cancel()
		all.Wait()
	}
}

// newResolver returns what finds the clients of a policy's site.
func newResolver(file *policyfile.File) (*clientaddr.Resolver, error) {
	return clientaddr.New(clientaddr.Config{TrustedProxies: file.TrustedProxies, Header: file.Header, Lists: file.ProxyLists()})
}
