// Package proxy hands requests on to the upstream. Start with [New].
package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"fairshare/httpguard"
)

// Config says where requests go and whose word about them is taken.
type Config struct {
	Upstream *url.URL // scheme and host; see ParseUpstream

	// Trusts tells whether a peer, as in http.Request.RemoteAddr, is a proxy
	// whose forwarding headers are handed on. nil means nobody is.
	Trusts func(peer string) bool

	// Header is one more header that only trusted proxies may send, the one
	// that the client's address is taken from. "" means none.
	Header string

	// Log is told what went wrong with the upstream, a line each; the client
	// is not. nil means nobody.
	Log *log.Logger

	// Timeout is how long the upstream may take to begin its answer once it
	// has the whole request; 0 means DefaultTimeout.
	Timeout time.Duration
}

// DefaultTimeout is what a zero Config.Timeout means.
const DefaultTimeout = 60 * time.Second

// dialTimeout is how long the upstream may take to accept a connection.
const dialTimeout = 5 * time.Second

// ParseUpstream reads the URL of an upstream: http or https and a host, with
// or without a port.
func ParseUpstream(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if i := strings.LastIndexByte(text, '@'); i >= 0 {
		text = "…" + text[i:] // there may be a password before it
	}
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Opaque != "":
		return nil, fmt.Errorf("upstream %q is not a URL like http://127.0.0.1:3000", text)
	case u.Hostname() == "":
		return nil, fmt.Errorf("upstream %q names no host", text)
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return nil, fmt.Errorf("upstream %q has more than a scheme, a host and a port", text)
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host}, nil
}

// A Proxy is an http.Handler that asks the upstream. It changes the headers of
// the requests that it is given.
type Proxy struct {
	config    Config
	transport *http.Transport
	reverse   httputil.ReverseProxy
}

// New returns a proxy to an upstream.
func New(c Config) *Proxy {
	if c.Trusts == nil {
		c.Trusts = func(string) bool { return false }
	}
	if c.Log == nil {
		c.Log = log.New(io.Discard, "", 0)
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	c.Header = http.CanonicalHeaderKey(c.Header)
	p := &Proxy{config: c, transport: newTransport(c.Timeout)}
	p.reverse = httputil.ReverseProxy{
		Rewrite:      p.rewrite,
		Transport:    p.transport,
		BufferPool:   &buffers{},
		ErrorHandler: p.failed,
		ErrorLog:     log.New(breaks{c.Log, c.Upstream.Host}, "", 0),
	}
	return p
}

func newTransport(timeout time.Duration) *http.Transport {
	http1 := new(http.Protocols)
	http1.SetHTTP1(true)
	return &http.Transport{
		DialContext:            (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext,
		Protocols:              http1,
		DisableCompression:     true, // the client says what it takes
		MaxIdleConnsPerHost:    1024,
		IdleConnTimeout:        60 * time.Second,
		TLSHandshakeTimeout:    dialTimeout,
		ExpectContinueTimeout:  time.Second,
		ResponseHeaderTimeout:  timeout,
		MaxResponseHeaderBytes: 256 << 10,
	}
}

// Close drops the idle connections to the upstream.
func (p *Proxy) Close() { p.transport.CloseIdleConnections() }

// Reach tells whether the upstream takes connections, with TLS if it is to.
func (p *Proxy) Reach(ctx context.Context) error {
	u := p.config.Upstream
	addr := u.Host
	if u.Port() == "" {
		addr = net.JoinHostPort(u.Hostname(), u.Scheme)
	}
	conn, err := p.transport.DialContext(ctx, "tcp", addr)
	if err == nil {
		defer conn.Close()
		if u.Scheme == "https" {
			err = tls.Client(conn, &tls.Config{ServerName: u.Hostname()}).HandshakeContext(ctx)
		}
	}
	if err != nil {
		return errors.New(p.problem(err))
	}
	return nil
}

func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodConnect, http.MethodTrace:
		w.Header().Set("Allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
		p.answer(w, r, http.StatusMethodNotAllowed, "This site does not know the method.")
		return
	}
	if target(r) == "" || !validHost(r.Host) || !validMethod(r.Method) {
		p.answer(w, r, http.StatusBadRequest, "The address of this page cannot be read.")
		return
	}
	// An upgrade to anything but a websocket would be a tunnel to the upstream
	// through which requests come that nobody judges.
	if up := r.Header["Upgrade"]; up != nil && !(len(up) == 1 && strings.EqualFold(up[0], "websocket") && r.Method == http.MethodGet) {
		delete(r.Header, "Upgrade")
	}
	delete(r.Header, "Http2-Settings")
	p.reverse.ServeHTTP(w, r)
}

// target returns the request target to send: byte for byte as the client sent
// it, in origin form. It is "" when that cannot be done or when it is not
// plain which path the guard judged.
func target(r *http.Request) string {
	t := r.RequestURI
	switch {
	case t == "":
		return r.URL.RequestURI()
	case strings.IndexByte(t, '#') >= 0: // no target holds one (RFC 9112 §3.2), and many upstreams cut there
		return ""
	case t == "*" && r.Method == http.MethodOptions:
		return t
	case t[0] != '/': // absolute form; other schemes are not ours to serve
		scheme, rest, _ := strings.Cut(t, "://")
		i := strings.IndexAny(rest, "/?")
		if !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https") || i < 0 || rest[i] != '/' {
			return ""
		}
		t = rest[i:]
	}
	// net/url takes an opaque "//" for an authority, so that such a path has
	// to go as net/url spells it.
	if strings.HasPrefix(t, "//") {
		if path, _, _ := strings.Cut(t, "?"); r.URL.EscapedPath() != path {
			return ""
		}
	}
	return t
}

// validHost reports whether host goes to the upstream as it is. net/http
// looks at it in HTTP/1 only, and would send another one than was judged: in
// ASCII, without a zone, or none. An empty one is the upstream's own name.
func validHost(host string) bool {
	for i := 0; i < len(host); i++ {
		c := host[i]
		if !alphanumeric(c) && strings.IndexByte("-._~!$&'()*+,;=:[]", c) < 0 {
			return false
		}
	}
	return true
}

func validMethod(method string) bool {
	for i := 0; i < len(method); i++ {
		if !alphanumeric(method[i]) && strings.IndexByte("!#$%&'*+-.^_`|~", method[i]) < 0 {
			return false
		}
	}
	return method != ""
}

func alphanumeric(c byte) bool {
	return c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9'
}

// A notedBody remembers that it could not be read: that is the client's
// fault, not the upstream's.
type notedBody struct {
	io.ReadCloser
	broken atomic.Bool
}

func (b *notedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		b.broken.Store(true)
	}
	return n, err
}

func (p *Proxy) rewrite(pr *httputil.ProxyRequest) {
	in, out := pr.In, pr.Out
	u := out.URL // a copy of In's
	u.Scheme, u.Host, u.User, u.Fragment, u.RawFragment = p.config.Upstream.Scheme, p.config.Upstream.Host, nil, "", ""
	if t := target(in); strings.HasPrefix(t, "//") {
		u.RawQuery, u.ForceQuery = in.URL.RawQuery, in.URL.ForceQuery
	} else {
		u.Opaque, u.RawQuery, u.ForceQuery = t, "", false
	}
	out.Host = in.Host
	if out.Body != nil && out.Body != http.NoBody {
		out.Body = &notedBody{ReadCloser: out.Body}
	}
	p.forwarded(in, out.Header)
}

// forwarded sets what tells the upstream about the client. A trusted proxy's
// word is kept and added to, anybody else's is replaced.
func (p *Proxy) forwarded(in *http.Request, h http.Header) {
	trusted := p.config.Trusts(in.RemoteAddr)
	for name := range h {
		// Servers that hand headers on as variables make "_" of "-" and of much
		// else: under such a name anybody could set X-Forwarded-For.
		if !plainName(name) || !trusted && (strings.HasPrefix(name, "X-Forwarded-") || name == "X-Real-Ip" || name == p.config.Header) {
			delete(h, name)
		}
	}
	proto := "http"
	if in.TLS != nil {
		proto = "https"
	}
	values := []string{peer(in.RemoteAddr), proto, in.Host}
	if trusted {
		// ReverseProxy took these off.
		if prior := in.Header["X-Forwarded-For"]; len(prior) > 0 {
			if values[0] == "" {
				values[0] = strings.Join(prior, ", ")
			} else {
				values[0] = strings.Join(prior, ", ") + ", " + values[0]
			}
		}
		if prior := in.Header["X-Forwarded-Proto"]; len(prior) > 0 {
			values[1] = prior[len(prior)-1]
		}
		if prior := in.Header["X-Forwarded-Host"]; len(prior) > 0 {
			values[2] = prior[len(prior)-1]
		}
		// A proxy that sends another header may hand on what its client sent.
		if prior := in.Header["Forwarded"]; len(prior) > 0 && p.config.Header == "Forwarded" {
			h["Forwarded"] = prior
		}
	}
	if values[0] != "" {
		h["X-Forwarded-For"] = values[0:1:1]
	}
	h["X-Forwarded-Proto"] = values[1:2:2]
	h["X-Forwarded-Host"] = values[2:3:3]
}

// plainName reports whether a header's name is of letters, digits and "-".
func plainName(name string) bool {
	for i := 0; i < len(name); i++ {
		if !alphanumeric(name[i]) && name[i] != '-' {
			return false
		}
	}
	return true
}

// peer returns the address of a peer; "" for a Unix socket.
func peer(remote string) string {
	a, err := netip.ParseAddrPort(remote)
	if err != nil {
		return ""
	}
	return a.Addr().Unmap().WithZone("").String()
}

// failed answers for an upstream that did not.
func (p *Proxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	var timeout net.Error
	switch {
	case r.Context().Err() != nil: // the client is gone, nobody reads this
		p.answer(w, r, http.StatusBadGateway, "")
	case brokenBody(r):
		p.answer(w, r, http.StatusBadRequest, "What was sent with this request cannot be read.")
	case errors.As(err, &timeout) && timeout.Timeout():
		p.config.Log.Printf("upstream %s is too slow: %v", p.config.Upstream.Host, err)
		p.answer(w, r, http.StatusGatewayTimeout, "This site takes too long to answer. Please try again in a while.")
	default:
		p.config.Log.Print(p.problem(err))
		p.answer(w, r, http.StatusBadGateway, "This site does not answer at the moment. Please try again in a while.")
	}
}

func brokenBody(r *http.Request) bool {
	body, ok := r.Body.(*notedBody)
	return ok && body.broken.Load()
}

// answer writes a page of the proxy's own.
func (p *Proxy) answer(w http.ResponseWriter, r *http.Request, status int, text string) {
	httpguard.NotUpstream(w)
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	title := http.StatusText(status)
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		fmt.Fprintf(w, page, title, title, text)
	}
}

const page = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>%s</title>
<body style="font:1.1rem/1.5 system-ui,sans-serif;max-width:34rem;margin:12vh auto;padding:0 1.2rem">
<h1>%s</h1>
<p>%s</p>
</html>
`

// buffers lends the space that answers are copied through.
type buffers struct{ pool sync.Pool }

const bufferSize = 32 << 10

func (b *buffers) Get() []byte {
	if space, ok := b.pool.Get().(*[bufferSize]byte); ok {
		return space[:]
	}
	return make([]byte, bufferSize)
}

func (b *buffers) Put(space []byte) { b.pool.Put((*[bufferSize]byte)(space)) }
