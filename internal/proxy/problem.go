package proxy

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
)

// problem describes an error of the upstream, with a hint if there is one.
func (up *upstream) problem(err error) string {
	host := up.url.Host
	var plain tls.RecordHeaderError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &plain):
		return fmt.Sprintf("upstream %s answers, but not with TLS; hint: upstream: http://%s", host, host)
	case errors.As(err, &certificate):
		return fmt.Sprintf(
			"the certificate of upstream %s is not trusted: %v; hint: use the host name of the certificate, and install the certificate of its authority on this machine", host, certificate.Err)
	case strings.Contains(err.Error(), "malformed HTTP"):
		return fmt.Sprintf(
			"upstream %s answers, but not with HTTP/1: %v; hint: check that this is the site's own port, and that it does not use TLS",
			host, err)
	case up.url.Scheme == "h2c" && (strings.Contains(err.Error(), "HTTP/1.1 header") ||
		strings.Contains(err.Error(), "could not be established")):
		return fmt.Sprintf("upstream %s answers, but not with HTTP/2: %v; hint: upstream: http://%s", host, err, host)
	}
	return fmt.Sprintf("upstream %s does not answer: %v", host, err)
}

// slow describes a timeout of the upstream.
func (up *upstream) slow(err error) string {
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return fmt.Sprintf("upstream %s did not accept a connection within %v; hint: it may be overloaded or behind a firewall",
			up.url.Host, dialTimeout)
	}
	return fmt.Sprintf(
		"upstream %s did not begin its answer within %v, so the client got a 504; upstream: {timeout: …} allows more time", up.url.Host, up.timeout)
}
