package httpguard

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"fairshare"
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

// robots keeps the last good /robots.txt of each host. The zero value is
// empty.
type robots struct {
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
	if c.tooLong = c.tooLong || len(c.body)+len(p) > robotsSize; !c.tooLong {
		c.body = append(c.body, p...)
	}
}

// watch has the response copy the answer if the copy could be kept. It returns the
// request to pass on, which asks for the whole, uncompressed answer.
func (c *robots) watch(res *response, r *http.Request, now time.Time) *http.Request {
	if r.Method != http.MethodGet || r.URL.RawQuery != "" || r.Header["Cookie"] != nil ||
		r.Header["Authorization"] != nil {
		return r // the answer may be for this client only
	}
	if old := c.find(r.Host, now); old != nil && now.Sub(old.at) < robotsFresh {
		return r
	}
	res.copy = &robotsCopy{}
	r = r.WithContext(r.Context()) // a shallow copy
	r.Header = r.Header.Clone()
	r.Header.Del("Accept-Encoding")
	r.Header.Del("Range")
	return r
}

// learn keeps the answer if it is a good copy: status 200, whole, not compressed.
func (c *robots) learn(res *response, host string, now time.Time) {
	kept, header := res.copy, res.w.Header()
	if res.outcome() != http.StatusOK || res.hijacked || kept.tooLong || int64(len(kept.body)) != res.bytes.Load() {
		return
	}
	if e := header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return
	}
	if n := header.Get("Content-Length"); n != "" && n != strconv.Itoa(len(kept.body)) {
		return
	}
	key := hostKey(host)
	if key == "" {
		return
	}
	kept.at, kept.contentType = now, header.Get("Content-Type")
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

func (c *robots) drop(key string) {
	if old := c.copies[key]; old != nil {
		c.total -= len(old.body)
		delete(c.copies, key)
	}
}

// find returns the copy of a host, or nil.
func (c *robots) find(host string, now time.Time) *robotsCopy {
	c.mu.Lock()
	defer c.mu.Unlock()
	if kept := c.copies[hostKey(host)]; kept != nil && now.Sub(kept.at) < robotsKept {
		return kept
	}
	return nil
}

// answer returns the answer to a refused request for /robots.txt. Without a copy
// Retry-After is wait seconds; a wait of 0 means one hour.
func (c *robots) answer(req *fairshare.Request, wait int64) (page *robotsCopy, status int, retryAfter int64) {
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

// hostKey returns a host in lower case, without a final dot and without port 80
// or 443. Another port stays: another site may answer there. A host of more than
// 255 bytes gives "".
func hostKey(host string) string {
	if len(host) > 255 {
		return ""
	}
	host = strings.TrimSuffix(strings.TrimSuffix(host, ":80"), ":443")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
