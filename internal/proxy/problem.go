package proxy

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
)

// problem says what is wrong with the upstream, and what to do about it where
// that is known.
func (s *setup) problem(err error) string {
	host := s.Upstream.Host
	var plain tls.RecordHeaderError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &plain):
		return fmt.Sprintf("upstream %s answers, but not with TLS; hint: upstream: http://%s", host, host)
	case errors.As(err, &certificate):
		return fmt.Sprintf("upstream %s has a certificate that is not to be trusted: %v; hint: name the upstream as its certificate does, and have this machine trust who signed it", host, certificate.Err)
	case strings.Contains(err.Error(), "malformed HTTP"):
		return fmt.Sprintf("upstream %s answers, but not as HTTP/1 is: %v; hint: is that the site's own port, and has it no TLS?", host, err)
	case s.Upstream.Scheme == "h2c" && (strings.Contains(err.Error(), "HTTP/1.1 header") || strings.Contains(err.Error(), "could not be established")):
		return fmt.Sprintf("upstream %s answers, but not as HTTP/2 is: %v; hint: upstream: http://%s", host, err, host)
	}
	return fmt.Sprintf("upstream %s does not answer: %v", host, err)
}

// slow says which time was up.
func (s *setup) slow(err error) string {
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return fmt.Sprintf("upstream %s takes no connection within %v: is it too busy, or behind a firewall?", s.Upstream.Host, dialTimeout)
	}
	return fmt.Sprintf("upstream %s took longer than %v to begin an answer, which became a 504; upstream: {timeout: …} gives it more", s.Upstream.Host, s.Timeout)
}
