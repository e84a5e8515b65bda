package httpguard

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"fairshare"
	"fairshare/robots"
)

// A crawler that gets a 4xx for /robots.txt takes everything as allowed (RFC 9309
// §2.3.1.3). So a refused crawler gets the last good copy instead. Without a copy
// it gets 503, which means that nothing is allowed for now (§2.3.1.4).
const robotsPath = "/robots.txt"

// Bounds of the copies.
const (
	robotsSize  = 500 << 10 // of one copy; crawlers ignore the rest (RFC 9309 §2.5)
	robotsTotal = 8 << 20   // of all copies
	robotsHosts = 64
	robotsKept  = 24 * time.Hour
	robotsFresh = time.Minute // a copy younger than this is not renewed
)

// robotsCopies keeps the last good /robots.txt of each host. The zero value is
// empty.
type robotsCopies struct {
	mu     sync.Mutex
	copies map[string]*robotsCopy
	total  int // bytes of all copies
}

// A robotsCopy is an answer to GET /robots.txt.
type robotsCopy struct {
	body        []byte
	contentType string
	at          time.Time
	renewals    int
	tooLong     bool
}

func (c *robotsCopy) add(p []byte) {
	if len(c.body)+len(p) > robotsSize {
		c.tooLong, p = true, p[:robotsSize-len(c.body)]
	}
	c.body = append(c.body, p...)
}

// isRobots reports whether a request is for /robots.txt, spelled like this: an upstream
// that does not decode "/%72obots.txt" answers that it has none.
func isRobots(r *http.Request) bool {
	if r.URL.Path != robotsPath || r.URL.RawPath != "" {
		return false
	}
	path, _, _ := strings.Cut(r.RequestURI, "?")
	return path == robotsPath || !strings.HasPrefix(path, "/") // absolute, or made inside this process
}

// watchRobots has the response copy the answer if it is not known yet. It returns the
// request to pass on.
func (g *generation) watchRobots(res *response, r *http.Request) *http.Request {
	now := g.Now()
	if old := g.robots.find(r.Host, now); old != nil && now.Sub(old.at) < robotsFresh &&
		(g.Robots == nil || !g.Robots.HasRoom(r.Host, now)) {
		return r
	}
	return g.robots.watch(res, r)
}

// learnRobots compares the answer that was copied with what is known, and keeps it as
// the last good copy. A client that gets another file than others does not choose what
// refused crawlers get.
func (g *generation) learnRobots(res *response, host string) {
	if res.own || res.hijacked {
		return
	}
	now, status, whole := g.Now(), res.outcome(), res.hasWholeCopy()
	if status == http.StatusOK && !whole && !res.tap.copy.tooLong {
		return // cut off or compressed
	}
	same := g.Robots == nil || g.Robots.Compare(host, robots.Answer{Status: status, Body: res.tap.copy.body}, now)
	if whole && same {
		g.robots.store(host, res.tap.copy.body, res.w.Header(), now)
	}
}

// AskRobots requests the /robots.txt of a host from the handler, and gives the answer
// to Options.Robots. No rule judges this request. If host is [robots.DefaultHost], name
// is the Host of the request. Up to five redirects are followed, all of them at the
// handler. AskRobots panics if New was called without a handler.
func (h *Handler) AskRobots(ctx context.Context, host, name string) {
	g := h.current.Load()
	if g.Robots == nil {
		return
	}
	var asked *askedAnswer
	if host != robots.DefaultHost {
		name = host
	}
	path, secure := robotsPath, false
	for range 1 + maxRedirects {
		asked = h.request(ctx, name, path, secure)
		location := asked.header.Get("Location")
		if asked.status < 300 || asked.status > 399 || location == "" {
			break
		}
		next, err := (&url.URL{Scheme: scheme(secure), Host: name, Path: path}).Parse(location)
		if err != nil || next.Scheme != "http" && next.Scheme != "https" {
			break
		}
		if next.Host == "" {
			break
		}
		name, path, secure = next.Host, next.RequestURI(), next.Scheme == "https"
	}
	now := g.Now()
	if g.Robots.Learn(host, robots.Answer{Status: asked.status, Body: asked.body}, now) &&
		asked.status == http.StatusOK && len(asked.body) <= robotsSize {
		g.robots.store(host, asked.body, asked.header, now)
	}
}

// maxRedirects is how many redirects of /robots.txt are followed (RFC 9309 §2.3.1.2).
const maxRedirects = 5

// robotsAgent is the user agent of questions for /robots.txt.
const robotsAgent = "fairshare (reads robots.txt for the rules of this site)"

func scheme(secure bool) string {
	if secure {
		return "https"
	}
	return "http"
}

// request makes one request to the handler.
func (h *Handler) request(ctx context.Context, host, path string, secure bool) (answer *askedAnswer) {
	answer = &askedAnswer{header: http.Header{}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+path, nil)
	if err != nil {
		return answer
	}
	r.RequestURI, r.RemoteAddr = path, "127.0.0.1:1"
	r.URL.Scheme, r.URL.Host = "", ""
	r.Header.Set("User-Agent", robotsAgent)
	if secure {
		r.TLS = new(tls.ConnectionState) // a proxy below tells the upstream
	}
	defer func() {
		if recover() != nil { // as http.Server: the handler ended the answer
			answer.status = 0
		}
	}()
	h.next.ServeHTTP(answer, r)
	if answer.status == 0 && ctx.Err() == nil {
		answer.status = http.StatusOK
	}
	if e := answer.header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		answer.status = 0
	}
	return answer
}

// An askedAnswer receives an answer, at most one byte more than is read.
type askedAnswer struct {
	header http.Header
	status int
	body   []byte
}

func (a *askedAnswer) Header() http.Header { return a.header }

func (a *askedAnswer) WriteHeader(status int) {
	if a.status == 0 && status >= 200 {
		a.status = status
	}
}

func (a *askedAnswer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	a.body = append(a.body, p[:min(len(p), robotsSize+1-len(a.body))]...)
	return len(p), nil
}

// Flush does nothing. The proxy flushes answers without a length.
func (a *askedAnswer) Flush() {}

// watch has the response copy the answer if the copy could be kept. It returns the
// request to pass on, which asks for the whole, uncompressed answer.
func (c *robotsCopies) watch(res *response, r *http.Request) *http.Request {
	if r.Method != http.MethodGet || r.URL.RawQuery != "" || r.Header["Cookie"] != nil ||
		r.Header["Authorization"] != nil {
		return r // the answer may be for this client only
	}
	res.tap = &tap{copy: &robotsCopy{}}
	r = r.WithContext(r.Context()) // a shallow copy
	r.Header = r.Header.Clone()
	r.Header.Del("Accept-Encoding")
	r.Header.Del("Range")
	return r
}

// hasWholeCopy reports whether the copy of the answer is good: status 200, whole, not
// compressed.
func (res *response) hasWholeCopy() bool {
	kept, header := res.tap.copy, res.w.Header()
	if res.outcome() != http.StatusOK || kept.tooLong || int64(len(kept.body)) != res.bytes.Load() {
		return false
	}
	if e := header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return false
	}
	n := header.Get("Content-Length")
	return n == "" || n == strconv.Itoa(len(kept.body))
}

// store keeps a copy of the file of a host.
func (c *robotsCopies) store(host string, body []byte, header http.Header, now time.Time) {
	key := robots.HostKey(host)
	if key == "" {
		return
	}
	kept := &robotsCopy{body: body, contentType: header.Get("Content-Type"), at: now}
	if kept.contentType == "" {
		kept.contentType = textType
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.copies == nil {
		c.copies = map[string]*robotsCopy{}
	}
	if old := c.copies[key]; old != nil {
		kept.renewals = old.renewals + 1
		c.drop(key)
	}
	// Anybody can invent hosts: those that are requested repeatedly stay longest.
	for len(c.copies) > 0 && (len(c.copies) >= robotsHosts || c.total+len(kept.body) > robotsTotal) {
		victim := ""
		for k, old := range c.copies {
			if v := c.copies[victim]; v == nil || old.renewals < v.renewals ||
				old.renewals == v.renewals && old.at.Before(v.at) {
				victim = k
			}
		}
		c.drop(victim)
	}
	c.copies[key] = kept
	c.total += len(kept.body)
}

func (c *robotsCopies) drop(key string) {
	if old := c.copies[key]; old != nil {
		c.total -= len(old.body)
		delete(c.copies, key)
	}
}

// find returns the copy of a host, or nil.
func (c *robotsCopies) find(host string, now time.Time) *robotsCopy {
	c.mu.Lock()
	defer c.mu.Unlock()
	if kept := c.copies[robots.HostKey(host)]; kept != nil && now.Sub(kept.at) < robotsKept {
		return kept
	}
	return nil
}

// answer returns the answer to a refused request for /robots.txt. Without a copy
// Retry-After is wait seconds; a wait of 0 means one hour.
func (c *robotsCopies) answer(req *fairshare.Request, wait int64) (page *robotsCopy, status int, retryAfter int64) {
	if req.Method == http.MethodGet || req.Method == http.MethodHead {
		if page = c.find(req.Host, req.Time); page != nil {
			return page, http.StatusOK, 0
		}
	}
	if wait == 0 {
		wait = 3600
	}
	return nil, http.StatusServiceUnavailable, wait
}
