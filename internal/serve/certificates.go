package serve

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync/atomic"
	"time"

	"fairshare/internal/cli"
)

// certificates provides a certificate from two files, and may have a third with the authorities of client
// certificates. It loads them again when the files have changed. It is safe for concurrent use, except load
// and refresh, which only one goroutine may call.
type certificates struct {
	certFile, keyFile string
	clientCA          string // the file of the authorities; "": clients show no certificates
	current           atomic.Pointer[tls.Certificate]
	clients           atomic.Pointer[x509.CertPool] // of clientCA
	read              [3]stamp                      // of the files that current, or a failure, was read from
}

// A stamp differs for most changes of a file.
type stamp struct {
	changed time.Time
	size    int64
}

// loadCertificates reads the files. clientCA may be "".
func loadCertificates(certFile, keyFile, clientCA string) (*certificates, error) {
	c := &certificates{certFile: certFile, keyFile: keyFile, clientCA: clientCA}
	return c, c.load()
}

// load reads the files now. With an error what was read before stays in use.
func (c *certificates) load() error {
	c.read = c.stamps()
	cert, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		hint := "both are PEM files; the certificate comes first in its file, then those that signed it"
		var missing *fs.PathError
		if errors.As(err, &missing) {
			hint = "file names in a policy file are relative to it; the program needs permission to read them"
		}
		return cli.Hint(fmt.Errorf("certificate %s with key %s: %w", c.certFile, c.keyFile, err), hint)
	}
	if c.clientCA != "" {
		clients, err := loadAuthorities(c.clientCA)
		if err != nil {
			return cli.Hint(fmt.Errorf("authorities of client certificates: %w", err),
				"it is a PEM file with the certificates of the authorities that sign those of clients")
		}
		c.clients.Store(clients)
	}
	c.current.Store(&cert)
	return nil
}

// refresh reads the files if they have changed since the last look, and
// reports whether they have changed. While they are being replaced they may not
// match: the next change of either is loaded too.
func (c *certificates) refresh() (changed bool, err error) {
	if c.read == c.stamps() {
		return false, nil
	}
	return true, c.load()
}

// loadAuthorities reads a PEM file of certificates.
func loadAuthorities(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool, n := x509.NewCertPool(), 0
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("%s has a block of type %q", file, block.Type)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		pool.AddCert(cert)
		n++
	}
	if n == 0 {
		return nil, fmt.Errorf("%s has no certificate", file)
	}
	return pool, nil
}

// config returns the configuration of a listener. A client need not show a certificate, but one that it
// shows has to be valid. Sessions are not resumed: each connection is checked by the present authorities.
func (c *certificates) config() *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get, SessionTicketsDisabled: true}
	if c.clientCA == "" {
		return config
	}
	config.ClientAuth = tls.VerifyClientCertIfGiven
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := config.Clone()
		now.GetConfigForClient, now.ClientCAs = nil, c.clients.Load()
		return now, nil
	}
	return config
}

func (c *certificates) stamps() (s [3]stamp) {
	for i, name := range [...]string{c.certFile, c.keyFile, c.clientCA} {
		if info, err := os.Stat(name); err == nil {
			s[i] = stamp{info.ModTime(), info.Size()}
		}
	}
	return s
}

// until returns when the certificate ends.
func (c *certificates) until() time.Time {
	if leaf := c.current.Load().Leaf; leaf != nil {
		return leaf.NotAfter
	}
	return time.Time{}
}

// covers reports whether the certificate contains a host. A nil c contains none.
func (c *certificates) covers(host string) bool {
	if c == nil {
		return false
	}
	leaf := c.current.Load().Leaf
	return leaf != nil && leaf.VerifyHostname(host) == nil
}

// get is for tls.Config.GetCertificate.
func (c *certificates) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return c.current.Load(), nil
}
