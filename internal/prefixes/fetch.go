package prefixes

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"time"
)

const (
	answerWithin = 10 * time.Second // until an answer begins, including redirects, and between two pieces of it
	wholeWithin  = time.Minute      // until it has ended
	maxRedirects = 5
	maxValidator = 256 // most bytes of an ETag or Last-Modified
)

var (
	errSlow     = fmt.Errorf("no answer within %v", answerWithin)
	errStalled  = fmt.Errorf("the answer stalled for %v", answerWithin)
	errLate     = fmt.Errorf("no complete answer within %v, the longest wait at a start", answerWithin)
	errEndless  = fmt.Errorf("the answer did not end within %v", wholeWithin)
	errRedirect = fmt.Errorf("more than %d redirects", maxRedirects)
	errScheme   = errors.New("it redirects to a URL that is neither https nor http")
	errWeaker   = errors.New("it redirects from https to http")
)

// validators make the next request conditional (RFC 9110 §13.1).
type validators struct {
	ETag         string `json:"etag,omitempty"`
	LastModified string `json:"last_modified,omitempty"`
}

// An answer is the answer of a URL.
type answer struct {
	unchanged  bool // 304
	body       []byte
	validators validators
	retryAfter time.Duration // of a refusal; 0: unknown
}

// newClient returns a client that keeps no connections, follows few redirects, and sends no
// Referer.
func newClient(transport http.RoundTripper) *http.Client {
	if transport == nil {
		transport = &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			DialContext:            (&net.Dialer{Timeout: answerWithin}).DialContext,
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
			DisableKeepAlives:      true,
			MaxResponseHeaderBytes: 64 << 10,
		}
	}
	return &http.Client{Transport: transport, CheckRedirect: func(req *http.Request, via []*http.Request) error {
		from := via[len(via)-1].URL.Scheme
		switch to := req.URL.Scheme; {
		case len(via) > maxRedirects:
			return errRedirect
		case to != "http" && to != "https":
			return errScheme
		case from == "https" && to == "http":
			return errWeaker
		}
		req.Header.Del("Referer") // the query may contain a key
		return nil
	}}
}

// get fetches the URL of a source. Its errors contain no part of the URL.
func (k *Keeper) get(ctx context.Context, s *source) (answer, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ctx, stop := context.WithTimeoutCause(ctx, wholeWithin, errEndless)
	defer stop()
	stall := time.AfterFunc(answerWithin, func() { cancel(errSlow) })
	defer stall.Stop()

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
	if err != nil {
		return answer{}, errors.New("its URL is not valid for a request")
	}
	agent := k.options.Agent
	if agent == "" {
		agent = "fairshare"
	}
	req.Header.Set("User-Agent", agent)
	req.Header.Set("Accept", "text/plain, application/json, text/csv, */*;q=0.5")
	if s.held && s.ETag != "" {
		req.Header.Set("If-None-Match", s.ETag)
	}
	if s.held && s.LastModified != "" {
		req.Header.Set("If-Modified-Since", s.LastModified)
	}
	resp, err := k.client.Do(req)
	if err != nil {
		return answer{}, reason(ctx, err)
	}
	defer resp.Body.Close()
	got := answer{validators: validators{usable(resp.Header.Get("ETag")), usable(resp.Header.Get("Last-Modified"))}}
	switch encoding := resp.Header.Get("Content-Encoding"); {
	case resp.StatusCode == http.StatusNotModified && s.held && (s.ETag != "" || s.LastModified != ""):
		got.unchanged = true
		return got, nil
	case resp.StatusCode != http.StatusOK:
		got.retryAfter = retryAfter(resp.Header.Get("Retry-After"))
		return got, fmt.Errorf("status %d", resp.StatusCode)
	case encoding != "" && encoding != "identity" && encoding != "gzip" && encoding != "x-gzip":
		return got, errors.New("the answer has an encoding that was not requested")
	case resp.ContentLength > int64(k.options.MaxSize):
		return got, errSize(k.options.MaxSize)
	}
	stall.Reset(answerWithin)
	body := progress{resp.Body, func() { stall.Reset(answerWithin) }}
	got.body, err = io.ReadAll(io.LimitReader(body, int64(k.options.MaxSize)+1))
	if err == nil {
		got.body, err = unpack(got.body, k.options.MaxSize)
	} else if errors.Is(context.Cause(ctx), errSlow) {
		err = errStalled
	} else {
		err = reason(ctx, err)
	}
	return got, err
}

// progress calls a function for each piece that is read.
type progress struct {
	io.Reader
	onRead func()
}

func (p progress) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	if n > 0 {
		p.onRead()
	}
	return n, err
}

// usable drops validators that cannot be sent back.
func usable(v string) string {
	if len(v) > maxValidator {
		return ""
	}
	for i := range len(v) {
		if v[i] < ' ' || v[i] > '~' {
			return ""
		}
	}
	return v
}

// retryAfter reads seconds or a date (RFC 9110 §10.2.3).
func retryAfter(v string) time.Duration {
	if seconds, err := strconv.ParseUint(v, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}

var anyURL = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://[^\s"]*|"[^"]*"`)

// reason returns why a request failed, without ports, which change with each try, and without any
// part of a URL.
func reason(ctx context.Context, err error) error {
	for _, ours := range []error{errRedirect, errScheme, errWeaker} {
		if errors.Is(err, ours) {
			return ours
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var dns *net.DNSError
	var op *net.OpError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return errors.New("its host has no address")
	case errors.As(err, &dns):
		return errors.New("the address of its host cannot be looked up now")
	case errors.As(err, &certificate):
		return fmt.Errorf("its certificate is not valid: %v", certificate.Err)
	case errors.As(err, &op):
		var call *os.SyscallError
		if errors.As(op.Err, &call) {
			return call.Err // without the name of the call
		}
		return op.Err
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the answer is incomplete")
	}
	for cause := errors.Unwrap(err); cause != nil; cause = errors.Unwrap(cause) {
		err = cause
	}
	return errors.New(anyURL.ReplaceAllString(err.Error(), "…"))
}
