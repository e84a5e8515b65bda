package main

import (
	"errors"
	"net/url"

	"fairshare"
	"fairshare/clientaddr"
	"fairshare/internal/proxy"
	"fairshare/memlimit"
	"fairshare/policyfile"
)

// A site is what serve makes of one policy file. A reload makes another.
type site struct {
	file     *policyfile.File
	upstream *url.URL
	clients  *clientaddr.Resolver
	limiter  *memlimit.Limiter
	guard    *fairshare.Guard
}

// newSite puts together what a policy file asks for. With an older site its
// counters are kept.
func newSite(file *policyfile.File, bans *fairshare.Bans, old *site) (*site, error) {
	st := &site{file: file}
	if file.Upstream == "" {
		return nil, &hintError{errors.New("no upstream is given"), "fairshare serve --upstream http://127.0.0.1:3000, or upstream: in the policy file"}
	}
	var err error
	if st.upstream, err = proxy.ParseUpstream(file.Upstream); err != nil {
		return nil, &hintError{err, "give the site's own scheme, host and port: http://127.0.0.1:3000"}
	}
	if st.clients, err = newResolver(file); err != nil {
		return nil, err
	}
	if old == nil {
		st.limiter, err = memlimit.New(file.Policy.Limits(), memlimit.Options{Memory: file.Memory})
	} else {
		st.limiter, err = old.limiter.With(file.Policy.Limits())
	}
	if err != nil {
		return nil, err
	}
	st.guard, err = fairshare.NewGuard(&file.Policy, st.limiter, bans)
	return st, err
}

// newResolver returns what finds the clients of a policy's site.
func newResolver(file *policyfile.File) (*clientaddr.Resolver, error) {
	return clientaddr.New(clientaddr.Config{TrustedProxies: file.TrustedProxies, Header: file.Header, Lists: file.ProxyLists()})
}
