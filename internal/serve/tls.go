package serve

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"fairshare"
	"fairshare/internal/acmecerts"
	"fairshare/internal/cli"
	"fairshare/internal/setup"
	"fairshare/policyfile"
)

// openTLS loads the certificates that the policy file names, if it has tls.
func (s *server) openTLS(file *policyfile.File) error {
	if file.TLS == nil {
		return nil
	}
	s.acme = acmecerts.New(s.logLine, s.options.Now)
	use, err := s.prepareTLS(file)
	if err != nil {
		return err
	}
	use()
	s.http.TLSConfig = &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"h2", "http/1.1"},
		GetCertificate: s.certificate,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			return s.acme.Challenge(hello), nil
		},
	}
	return nil
}

// prepareTLS does what can fail to put the certificates of a policy file in force.
func (s *server) prepareTLS(file *policyfile.File) (use func(), err error) {
	certs, err := loadSiteCertificates(file)
	if err != nil {
		return nil, err
	}
	useACME := func() { s.acme.Clear() }
	if a := file.TLS.ACME; a != nil {
		folder, err := setup.StateFolder(s.options.State)
		if err != nil {
			return nil, err
		}
		config := acmecerts.Config{Directory: a.Directory, Email: a.Email, Folder: filepath.Join(folder, "acme"),
			Hosts: slices.DeleteFunc(file.CertificateHosts(), certs.others.covers),
			HTTP:  file.ListenHTTP != ""}
		if a.Roots != "" {
			config.Roots = file.ResolvePath(a.Roots)
		}
		if useACME, err = s.acme.Prepare(config); err != nil {
			return nil, cli.Hint(err, "tls: acme needs a state folder that the program may write, and roots that it may read")
		}
	}
	return func() {
		s.certs.Store(certs)
		useACME()
	}, nil
}

// certificate is for tls.Config.GetCertificate. Without a certificate the client
// gets the alert unrecognized_name.
func (s *server) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	certs := s.certs.Load()
	if i := certs.table.Find(hello.ServerName); i >= 0 && certs.sites[i] != nil {
		return certs.sites[i].get(hello)
	}
	if !certs.others.covers(hello.ServerName) {
		if cert, known := s.acme.Certificate(hello.ServerName); known {
			return cert, nil
		}
	}
	if certs.others == nil {
		return nil, nil
	}
	return certs.others.get(hello)
}

// siteCertificates are the certificates from the files of a policy.
type siteCertificates struct {
	table  *fairshare.Sites
	sites  []*certificates // of each site; nil: it has none of its own
	others *certificates   // of all other names; nil: none
}

// loadSiteCertificates reads all files of certificates. Sites with the same files share what was read.
func loadSiteCertificates(file *policyfile.File) (*siteCertificates, error) {
	all := new(siteCertificates)
	all.table, _ = fairshare.NewSites(file.Policy.Sites) // the policy was checked
	read := map[[2]string]*certificates{}
	load := func(cert, key string) (*certificates, error) {
		if cert == "" {
			return nil, nil
		}
		files := [2]string{file.ResolvePath(cert), file.ResolvePath(key)}
		if known := read[files]; known != nil {
			return known, nil
		}
		loaded, err := loadCertificates(files[0], files[1], "")
		read[files] = loaded
		return loaded, err
	}
	var err error
	if all.others, err = load(file.TLS.Cert, file.TLS.Key); err != nil {
		return nil, err
	}
	for i := range file.Sites {
		certs, err := load(file.Sites[i].Cert, file.Sites[i].Key)
		if err != nil {
			return nil, fmt.Errorf("site %s: %w", file.Sites[i].Name, err)
		}
		all.sites = append(all.sites, certs)
	}
	return all, nil
}

// each calls use once for each certificate.
func (a *siteCertificates) each(use func(*certificates)) {
	if a == nil {
		return
	}
	used := map[*certificates]bool{nil: true}
	for _, certs := range append([]*certificates{a.others}, a.sites...) {
		if !used[certs] {
			used[certs] = true
			use(certs)
		}
	}
}

// uncovered returns a warning for each host of a site that the certificate of the site does not contain.
func (a *siteCertificates) uncovered(file *policyfile.File) (warnings []string) {
	if a == nil {
		return nil
	}
	for i, certs := range a.sites {
		for _, host := range file.Sites[i].Hosts {
			if certs != nil && host != "*" && !certs.covers(strings.Replace(host, "*.", "any.", 1)) {
				warnings = append(warnings, fmt.Sprintf("site %s: certificate %s does not contain the host %s: "+
					"browsers refuse it", file.Sites[i].Name, certs.certFile, host))
			}
		}
	}
	return warnings
}

// withoutMissingCertificates omits lines for handshakes without a certificate: any
// client can begin them, and the log already says why there is none.
type withoutMissingCertificates struct{ w io.Writer }

func (o withoutMissingCertificates) Write(line []byte) (int, error) {
	if bytes.HasPrefix(line, []byte("http: TLS handshake error")) &&
		bytes.HasSuffix(bytes.TrimSpace(line), []byte("tls: no certificates configured")) {
		return len(line), nil
	}
	return o.w.Write(line)
}
