package proxy

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"strings"
)

// problem says what is wrong with the upstream, and what to do about it where
// that is known.
func (p *Proxy) problem(err error) string {
	host := p.config.Upstream.Host
	var plain tls.RecordHeaderError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &plain):
		return fmt.Sprintf("upstream %s answers, but not with TLS; hint: upstream: http://%s", host, host)
	case errors.As(err, &certificate):
		return fmt.Sprintf("upstream %s has a certificate that is not to be trusted: %v; hint: name the upstream as its certificate does, and have this machine trust who signed it", host, certificate.Err)
	case strings.Contains(err.Error(), "malformed HTTP"):
		return fmt.Sprintf("upstream %s answers, but not as HTTP/1 is: %v; hint: is that the site's own port, and has it no TLS?", host, err)
	}
	return fmt.Sprintf("upstream %s does not answer: %v", host, err)
}

// breaks passes what httputil.ReverseProxy logs on to a log, in our words.
type breaks struct {
	to   *log.Logger
	host string
}

func (b breaks) Write(line []byte) (int, error) {
	if cause, ok := bytes.CutPrefix(line, []byte("httputil: ReverseProxy read error during body copy: ")); ok {
		b.to.Printf("upstream %s broke off in the middle of an answer: %s", b.host, cause)
	} else {
		b.to.Print(string(line))
	}
	return len(line), nil
}
