package serve

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync/atomic"
	"time"

	"fairshare/internal/cli"
)

// certificates provides a certificate from two files, and loads it again when the
// files have changed. It is safe for concurrent use, except load and refresh,
// which only one goroutine may call.
type certificates struct {
	certFile, keyFile string
	current           atomic.Pointer[tls.Certificate]
	read              [2]stamp // of the files that current, or a failure, was read from
}

// A stamp differs for most changes of a file.
type stamp struct {
	changed time.Time
	size    int64
}

// loadCertificates reads both files.
func loadCertificates(certFile, keyFile string) (*certificates, error) {
	c := &certificates{certFile: certFile, keyFile: keyFile}
	return c, c.load()
}

// load reads both files now. With an error the old certificate stays in use.
func (c *certificates) load() error {
	c.read = c.stamps()
	cert, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		hint := "both are PEM files; the certificate comes first in its file, then those that signed it"
		var missing *fs.PathError
		if errors.As(err, &missing) {
			hint = "file names are relative to the policy file; the program needs permission to read them"
		}
		return cli.Hint(fmt.Errorf("certificate %s with key %s: %w", c.certFile, c.keyFile, err), hint)
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

func (c *certificates) stamps() (s [2]stamp) {
	for i, name := range [...]string{c.certFile, c.keyFile} {
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

// get is for tls.Config.GetCertificate.
func (c *certificates) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return c.current.Load(), nil
}
