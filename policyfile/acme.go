package policyfile

import (
	"fmt"
	"net/mail"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// DefaultDirectory is the CA that certificates come from if the policy names none.
const DefaultDirectory = "https://acme-v02.api.letsencrypt.org/directory"

// ACME says where certificates for the hosts of the policy come from. The operator
// has accepted the terms of the CA.
type ACME struct {
	Directory string // the URL of the CA's directory; never ""
	Email     string // "" means none
	// Roots is a file with the roots that sign the CA's own certificate: see
	// [File.ResolvePath]; "" means the system's.
	Roots string
}

type acmeDraft struct {
	ACME
	accepted bool
}

func acmeKeys() []key[acmeDraft] {
	return []key[acmeDraft]{
		{"accept_terms", func(r *reader, n *node, a *acmeDraft) { a.accepted = r.boolean(n, "accept_terms") }},
		{"email", func(r *reader, n *node, a *acmeDraft) {
			a.Email = r.line(n, "email")
			if addr, err := mail.ParseAddress(a.Email); a.Email != "" && (err != nil || addr.Address != a.Email) {
				r.fault(n, "email: admin@example.org", "email: %s is not an e-mail address", quote(a.Email))
			}
		}},
		{"directory", func(r *reader, n *node, a *acmeDraft) {
			a.Directory = r.line(n, "directory")
			u, err := url.Parse(a.Directory)
			if a.Directory != "" && (err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil) {
				r.fault(n, "directory: "+DefaultDirectory, "directory: the https URL of a CA is needed, not %s",
					quote(a.Directory))
			}
		}},
		{"roots", func(r *reader, n *node, a *acmeDraft) { a.Roots = r.fileName(n, "roots", "") }},
	}
}

const acmeExample = "{accept_terms: true, email: admin@example.org}"

func readACME(r *reader, n *node, t *TLS) {
	d := acmeDraft{ACME: ACME{Directory: DefaultDirectory}}
	if readMap(r, n, "acme", acmeExample, acmeKeys(), &d) == nil {
		return
	}
	if !d.accepted {
		r.missing(n, "read the terms of the CA, then write accept_terms: true",
			"acme: a CA gives certificates only to operators who accept its terms")
	}
	t.ACME = &d.ACME
}

// CertificateHosts returns the exact hosts of the policy, in order, for which a CA can give certificates by
// ACME. Sites with a certificate of their own need none.
func (f *File) CertificateHosts() (hosts []string) {
	for _, host := range f.servedHosts() {
		if acmeProblem(host) == "" {
			hosts = append(hosts, host)
		}
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// servedHosts returns the hosts of the policy, but not those of sites with a certificate of their own.
func (f *File) servedHosts() (hosts []string) {
	if len(f.Sites) == 0 {
		return f.Hosts
	}
	for i := range f.Sites {
		if f.Sites[i].Cert == "" {
			hosts = append(hosts, f.Sites[i].Hosts...)
		}
	}
	return hosts
}

// acmeProblem says why a host cannot have a certificate by ACME; "" if it can.
func acmeProblem(host string) string {
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	switch {
	case strings.Contains(host, "*"):
		return "a CA gives certificates for patterns only after a change in the DNS, which serve cannot make"
	case err == nil:
		return "an address has no certificate by ACME here"
	case !strings.Contains(host, "."):
		return "a name without a dot is not public"
	}
	return ""
}

// checkACME reports hosts that would have no certificate.
func (r *reader) checkACME(got *reading) {
	t := r.file.TLS
	if t == nil || t.ACME == nil {
		return
	}
	at := find(got.values["tls"], "acme")
	hosts := r.file.servedHosts()
	if len(hosts) == 0 && len(r.file.Sites) == 0 {
		r.fault(at, "hosts: [www.example.org]", "acme: the policy needs hosts or sites: only they get certificates")
		return
	}
	for _, host := range hosts {
		if problem := acmeProblem(host); problem != "" && t.Cert == "" {
			r.fault(at, "name each host, or give a certificate for it next to acme: tls: {cert: FILE, key: FILE, acme: …}",
				"acme: no certificate for the host %s: %s", quote(host), problem)
		}
	}
}

// description says what serve does for certificates. With http, the CA can check names without TLS too.
func (t *TLS) description(hosts []string, http bool) string {
	how := "by TLS-ALPN-01 on port 443"
	if http {
		how += ", or else by HTTP-01 on port 80"
	}
	what := fmt.Sprintf("serve asks %s for a certificate for each of %s, %s, and renews it",
		t.ACME.Directory, list(hosts), how)
	if t.Cert != "" {
		what += fmt.Sprintf("; names that %s contains get that certificate", t.Cert)
	}
	return what + "."
}

func list(hosts []string) string {
	const most = 5
	if n := len(hosts) - most; n > 0 {
		return fmt.Sprintf("%s and %d more hosts", strings.Join(hosts[:most], ", "), n)
	}
	if len(hosts) == 0 {
		return "no host"
	}
	return strings.Join(hosts, ", ")
}
