package serve

import (
	"bytes"
	"crypto/tls"
	"io"
	"path/filepath"
	"slices"

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
		GetCertificate: s.certificate,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			return s.acme.Challenge(hello), nil
		},
	}
	return nil
}

// prepareTLS does what can fail to put the certificates of a policy file in force.
func (s *server) prepareTLS(file *policyfile.File) (use func(), err error) {
	var certs *certificates
	if t := file.TLS; t.Cert != "" {
		if certs, err = loadCertificates(file.ResolvePath(t.Cert), file.ResolvePath(t.Key), ""); err != nil {
			return nil, err
		}
	}
	useACME := func() { s.acme.Clear() }
	if a := file.TLS.ACME; a != nil {
		folder, err := setup.StateFolder(s.options.State)
		if err != nil {
			return nil, err
		}
		config := acmecerts.Config{Directory: a.Directory, Email: a.Email, Folder: filepath.Join(folder, "acme"),
			Hosts: slices.DeleteFunc(file.CertificateHosts(), certs.covers)}
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
	if !certs.covers(hello.ServerName) {
		if cert, known := s.acme.Certificate(hello.ServerName); known {
			return cert, nil
		}
	}
	if certs == nil {
		return nil, nil
	}
	return certs.get(hello)
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
