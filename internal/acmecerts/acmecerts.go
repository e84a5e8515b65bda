// Package acmecerts obtains certificates from a CA by ACME (RFC 8555), with the
// challenges TLS-ALPN-01 and HTTP-01, and renews them. Clients trigger nothing: a handshake only
// gets what is there already.
package acmecerts

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/acme"
	"golang.org/x/crypto/acme/autocert"

	"fairshare/internal/lockfile"
)

const (
	askTimeout = 30 * time.Second // for the answer to one request to the CA
	// poll is how often renewed certificates, and those of other processes, are noticed.
	poll = time.Minute
	// held is how long to wait while another process asks the CA.
	held = 5 * time.Second
	// warnBefore is how long before its end a certificate should have been renewed. Renewal begins
	// when a third of its life is left, at most 30 days.
	warnBefore = 7 * 24 * time.Hour
)

// backoff is the wait after failures in a row for one name. Let's Encrypt accepts
// five failures of a name in an hour.
var backoff = [...]time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour}

// Config says for which names certificates are obtained, and where. The operator
// has accepted the terms of the CA.
type Config struct {
	Directory string // the URL of the CA's directory
	Email     string // "" means none
	Roots     string // a PEM file with the roots that sign the CA's own certificate; "" means the system's
	Folder    string // for the account's key and certificates of all CAs; processes may share it
	Hosts     []string
	HTTP      bool // the CA may also check names by HTTP-01: requests reach Token
}

// same reports whether certificates of one configuration suit the other.
func (c *Config) same(d *Config) bool {
	return c.Directory == d.Directory && c.Email == d.Email && c.Roots == d.Roots && c.Folder == d.Folder &&
		c.HTTP == d.HTTP
}

// folder returns the folder of one CA: certificates of a test CA must not be served
// when the policy names another.
func (c *Config) folder() string {
	return filepath.Join(c.Folder, strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' || r == '-' {
			return r
		}
		return '_'
	}, strings.ToLower(strings.TrimPrefix(c.Directory, "https://"))))
}

// A Set holds the certificates of some hosts. It is safe for concurrent use.
type Set struct {
	log     func(string)
	now     func() time.Time
	current atomic.Pointer[state]
	wake    chan struct{}

	mu       sync.Mutex           // guards use and reported
	reported map[string]time.Time // problems that were logged
}

// state is what a configuration has led to.
type state struct {
	config Config
	hosts  map[string]*host
}

// A host has at most one certificate. Only Run changes what is not atomic.
type host struct {
	name    string
	manager atomic.Pointer[autocert.Manager]
	cert    atomic.Pointer[tls.Certificate]
	ca      *transport
	stop    context.CancelFunc

	fails int
	due   atomic.Int64 // Unix nanoseconds of the next attempt
}

// New returns an empty set. It calls log with lines for operators.
func New(log func(string), now func() time.Time) *Set {
	s := &Set{log: log, now: now, wake: make(chan struct{}, 1), reported: map[string]time.Time{}}
	s.current.Store(&state{})
	return s
}

// Prepare checks a configuration, and creates its folder. The function that it
// returns puts it in force: hosts that stay keep their certificates, new ones get
// the stored ones at once, and all that have none are tried again.
func (s *Set) Prepare(c Config) (use func(), err error) {
	var roots *x509.CertPool
	if c.Roots != "" {
		data, err := os.ReadFile(c.Roots)
		if err != nil {
			return nil, fmt.Errorf("roots of the CA: %w", err)
		}
		if roots = x509.NewCertPool(); !roots.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("roots of the CA: %s has no certificate in PEM", c.Roots)
		}
	}
	if err := os.MkdirAll(c.folder(), 0o700); err != nil {
		return nil, fmt.Errorf("folder for certificates: %w", err)
	}
	return func() { s.use(c, roots) }, nil
}

// Clear puts a configuration without hosts in force.
func (s *Set) Clear() { s.use(Config{}, nil) }

func (s *Set) use(c Config, roots *x509.CertPool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.current.Load()
	next := &state{c, make(map[string]*host, len(c.Hosts))}
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	base.ResponseHeaderTimeout = askTimeout
	for _, name := range c.Hosts {
		if h := old.hosts[name]; h != nil && old.config.same(&c) {
			next.hosts[name] = h
			h.due.Store(0)
			continue
		}
		h := &host{name: name}
		ctx, stop := context.WithCancel(context.Background())
		h.stop, h.ca = stop, &transport{base: base, ctx: ctx}
		h.renewManager(&c)
		h.load(&c, s.now())
		next.hosts[name] = h
	}
	s.current.Store(next)
	for name, h := range old.hosts {
		if next.hosts[name] != h {
			h.stop()
		}
	}
	clear(s.reported)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// renewManager replaces the manager: after a failure, a manager remembers it for a
// minute.
func (h *host) renewManager(c *Config) {
	manager := &autocert.Manager{
		Prompt:     autocert.AcceptTOS,
		Cache:      autocert.DirCache(c.folder()),
		HostPolicy: func(_ context.Context, name string) error { return h.accept(name) },
		Email:      c.Email,
		Client: &acme.Client{
			DirectoryURL: c.Directory, UserAgent: "fairshare",
			HTTPClient: &http.Client{Transport: h.ca, Timeout: askTimeout},
		},
	}
	if c.HTTP {
		manager.HTTPHandler(nil) // from now on the manager also tries HTTP-01
	}
	h.manager.Store(manager)
}

func (h *host) accept(name string) error {
	if name != h.name {
		return errors.New("another name")
	}
	return nil
}

// load takes a stored certificate that is still valid.
func (h *host) load(c *Config, now time.Time) {
	data, err := autocert.DirCache(c.folder()).Get(context.Background(), h.name)
	if err != nil {
		return
	}
	cert, err := tls.X509KeyPair(data, data)
	if err != nil || cert.Leaf == nil || now.After(cert.Leaf.NotAfter) || cert.Leaf.VerifyHostname(h.name) != nil {
		return
	}
	h.cert.Store(&cert)
}

// fetch gets the certificate from the manager: a stored or renewed one or, if there
// is none, from the CA. The manager renews it from then on.
func (h *host) fetch() (*tls.Certificate, error) {
	return h.manager.Load().GetCertificate(&tls.ClientHelloInfo{
		ServerName:       h.name, // as of clients with ECDSA: all of TLS 1.2 in use have it
		SignatureSchemes: []tls.SignatureScheme{tls.ECDSAWithP256AndSHA256},
		SupportedCurves:  []tls.CurveID{tls.CurveP256},
		CipherSuites:     []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256},
	})
}

// Certificate returns the certificate for a server name. known is false for names
// that the set is not for.
func (s *Set) Certificate(name string) (cert *tls.Certificate, known bool) {
	h := s.host(name)
	if h == nil {
		return nil, false
	}
	return h.cert.Load(), true
}

// Challenge returns the configuration for a handshake by which the CA checks a
// name; nil for all other handshakes.
func (s *Set) Challenge(hello *tls.ClientHelloInfo) *tls.Config {
	if len(hello.SupportedProtos) != 1 || hello.SupportedProtos[0] != acme.ALPNProto {
		return nil
	}
	h := s.host(hello.ServerName)
	if h == nil {
		return nil
	}
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{acme.ALPNProto},
		GetCertificate: h.manager.Load().GetCertificate,
	}
}

// challengePath begins the paths of HTTP-01.
const challengePath = "/.well-known/acme-challenge/"

// Token returns the answer to a request by which the CA checks a host by HTTP-01; nil for all other requests.
// host has no port.
func (s *Set) Token(host, path string) []byte {
	token, found := strings.CutPrefix(path, challengePath)
	h := s.host(host)
	if !found || h == nil || !s.current.Load().config.HTTP || len(token) > maxToken || !isToken(token) {
		return nil
	}
	var got tokenAnswer
	h.manager.Load().HTTPHandler(nil).ServeHTTP(&got, &http.Request{Host: h.name, URL: &url.URL{Path: path}})
	if got.failed {
		return nil
	}
	return got.body
}

// maxToken bounds the length of a token: those of CAs have some 43 bytes.
const maxToken = 200

// isToken reports whether a text has only the characters of base64url (RFC 8555 §8.3).
func isToken(s string) bool {
	for _, c := range []byte(s) {
		if c != '-' && c != '_' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return s != ""
}

// A tokenAnswer holds what a manager answers. The texts of errors are not for clients.
type tokenAnswer struct {
	body   []byte
	failed bool
}

func (a *tokenAnswer) Header() http.Header { return http.Header{} }
func (a *tokenAnswer) WriteHeader(int)     { a.failed = true } // called for errors only

func (a *tokenAnswer) Write(b []byte) (int, error) {
	a.body = append(a.body, b...)
	return len(b), nil
}

func (s *Set) host(name string) *host {
	return s.current.Load().hosts[strings.ToLower(strings.TrimSuffix(name, "."))]
}

// Missing returns how many hosts have no certificate.
func (s *Set) Missing() (n int) {
	for _, h := range s.current.Load().hosts {
		if h.cert.Load() == nil {
			n++
		}
	}
	return n
}

// Ends returns until when the certificate of each host is valid; the zero time if there is none.
func (s *Set) Ends() map[string]time.Time {
	ends := map[string]time.Time{}
	for name, h := range s.current.Load().hosts {
		ends[name] = time.Time{}
		if cert := h.cert.Load(); cert != nil {
			ends[name] = cert.Leaf.NotAfter
		}
	}
	return ends
}

// Run obtains and renews certificates until ctx ends: one attempt at a time.
func (s *Set) Run(ctx context.Context) {
	defer func() {
		for _, h := range s.current.Load().hosts {
			h.stop()
		}
	}()
	for ctx.Err() == nil {
		wait := s.round(ctx)
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-s.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// round looks at each host once, and returns when to look again.
func (s *Set) round(ctx context.Context) (wait time.Duration) {
	st := s.current.Load()
	wait = poll
	for _, h := range st.hosts {
		if ctx.Err() != nil || s.current.Load() != st {
			return 0 // another configuration is in force
		}
		if h.cert.Load() == nil {
			h.load(&st.config, s.now())
		}
		if h.cert.Load() != nil {
			wait = min(wait, s.refresh(h))
			continue
		}
		if left := time.Unix(0, h.due.Load()).Sub(s.now()); left > 0 {
			wait = min(wait, left)
			continue
		}
		wait = min(wait, s.obtain(ctx, &st.config, h))
	}
	return wait
}

// obtain asks the CA for the first certificate of a host, unless another process
// asks the CA. It returns when to look again.
func (s *Set) obtain(ctx context.Context, c *Config, h *host) time.Duration {
	lock, err := lockfile.Take(filepath.Join(c.folder(), "lock"))
	if errors.Is(err, lockfile.ErrHeld) {
		return held
	}
	if err != nil {
		s.failed(c, h, err)
		return poll
	}
	type result struct {
		cert *tls.Certificate
		err  error
	}
	done := make(chan result, 1)
	go func() {
		defer lock.Release()
		cert, err := h.fetch()
		done <- result{cert, err}
	}()
	select {
	case <-ctx.Done(): // the attempt ends soon: its requests are canceled
		return 0
	case r := <-done:
		if r.err != nil {
			s.failed(c, h, r.err)
			return poll
		}
		h.fails = 0
		h.ca.takeProblem()
		h.cert.Store(r.cert)
		s.log(fmt.Sprintf("certificate of %s: obtained, valid until %s", h.name, date(r.cert)))
		return poll
	}
}

// failed logs why a host has no certificate, and delays the next attempt.
func (s *Set) failed(c *Config, h *host, err error) {
	if h.ca.ctx.Err() != nil { // the host is gone
		return
	}
	h.renewManager(c)
	wait := backoff[min(h.fails, len(backoff)-1)]
	h.fails++
	h.due.Store(s.now().Add(wait).UnixNano())
	problem, unreachable := h.ca.takeProblem()
	problem = cmp.Or(problem, clean(err.Error()))
	key := h.name + " " + problem
	if unreachable { // one line for all hosts
		key = "the CA"
	}
	s.report(key, fmt.Sprintf("warning: no certificate for %s: %s; handshakes for it fail; next attempt in %v, "+
		"then ever more rarely, at least each hour; a reload tries at once", h.name, problem, wait))
}

// refresh takes a renewed certificate, and logs a problem with renewal. It returns
// when to look again.
func (s *Set) refresh(h *host) time.Duration {
	old := h.cert.Load()
	life := old.Leaf.NotAfter.Sub(old.Leaf.NotBefore)
	cert, err := h.fetch()
	if err == nil && cert.Leaf != nil && !cert.Leaf.Equal(old.Leaf) {
		h.cert.Store(cert)
		s.log(fmt.Sprintf("certificate of %s: renewed, valid until %s", h.name, date(cert)))
		h.ca.takeProblem()
		return poll
	}
	if problem, _ := h.ca.takeProblem(); problem != "" {
		s.report(h.name+" renew", fmt.Sprintf("warning: certificate of %s: could not renew it: %s; it is valid until %s",
			h.name, problem, date(old)))
	} else if old.Leaf.NotAfter.Sub(s.now()) < min(warnBefore, life/6) {
		s.report(h.name+" end", fmt.Sprintf("warning: certificate of %s is valid only until %s, and was not renewed",
			h.name, date(old)))
	}
	return min(poll, max(life/10, time.Second)) // some CAs give certificates for minutes only
}

// report logs a problem once a day.
func (s *Set) report(key, line string) {
	s.mu.Lock()
	last, again := s.reported[key]
	again = again && s.now().Sub(last) < 24*time.Hour
	if !again {
		if len(s.reported) > 10_000 {
			clear(s.reported)
		}
		s.reported[key] = s.now()
	}
	s.mu.Unlock()
	if !again {
		s.log(line)
	}
}

func date(cert *tls.Certificate) string { return cert.Leaf.NotAfter.Format(time.DateTime + " MST") }
