package policyfile

import "slices"

// RedirectHosts returns the hosts for which the listener without TLS redirects to https: those that the policy
// names. The host "*" of a site names none, because a redirect to any Host header could lead anywhere.
func (f *File) RedirectHosts() (hosts []string) {
	hosts = append([]string{}, f.Hosts...) // never nil, which means any host elsewhere
	for i := range f.Sites {
		for _, host := range f.Sites[i].Hosts {
			if host != "*" {
				hosts = append(hosts, host)
			}
		}
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// checkListenHTTP reports a listener for redirects that has nothing to redirect to.
func (r *reader) checkListenHTTP(got *reading) {
	f := r.file
	if f.ListenHTTP == "" {
		return
	}
	at := got.at("listen_http")
	switch {
	case f.TLS == nil:
		r.fault(at, "add tls, or remove listen_http: without tls, listen is enough",
			"listen_http redirects to https, which needs tls")
	case len(f.RedirectHosts()) == 0:
		r.fault(at, "hosts: [www.example.org]",
			"listen_http: the policy names no host: a redirect to any host that a client sends could lead anywhere")
	case f.ListenHTTP == f.Listen:
		r.fault(at, "listen: :443 and listen_http: :80", "listen_http is the same address as listen")
	}
}
