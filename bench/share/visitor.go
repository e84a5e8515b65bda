//go:build linux

package main

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"fairshare/bench/internal/stand"
)

// A visitor is a person with a browser. It loads a page, then its parts over several connections, reads,
// and loads the next page. It keeps cookies, and follows the Refresh of a page that says that the site
// is busy.
type visitor struct {
	from    netip.Addr
	to      string
	path    string
	cookies jar
	pages   []load
}

// A load is one page of a visitor.
type load struct {
	began time.Time
	page  time.Duration // until the page came; 0: it did not come
	all   time.Duration // until its last part came; 0: a part did not come
	tries int           // requests until the page came
}

const (
	partsOfPage  = 6
	connections  = 6                // of a browser
	givesUpAfter = 20 * time.Second // without a page
)

// Header lines as Firefox sends them.
const (
	commonHeader = "Accept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n"
	pageHeader   = "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n" + commonHeader +
		"Upgrade-Insecure-Requests: 1\r\nSec-Fetch-Dest: document\r\nSec-Fetch-Mode: navigate\r\n" +
		"Sec-Fetch-Site: none\r\nSec-Fetch-User: ?1\r\n"
	partHeader = "Accept: image/avif,image/webp,image/png,image/svg+xml,image/*;q=0.8,*/*;q=0.5\r\n" + commonHeader +
		"Referer: http://site.example/\r\nSec-Fetch-Dest: image\r\nSec-Fetch-Mode: no-cors\r\n" +
		"Sec-Fetch-Site: same-origin\r\n"
)

// run loads pages until ctx is done, with pauses of that length.
func (v *visitor) run(ctx context.Context, reads time.Duration) {
	callers := make([]*stand.Caller, connections)
	for i := range callers {
		callers[i] = &stand.Caller{From: v.from, To: v.to}
		defer callers[i].Close()
	}
	for ctx.Err() == nil {
		l := load{began: time.Now()}
		for ctx.Err() == nil && time.Since(l.began) < givesUpAfter {
			l.tries++
			answer, err := v.get(ctx, callers[0], v.path, pageHeader)
			if err == nil && answer.Status == http.StatusOK {
				l.page = time.Since(l.began)
				break
			}
			sleep(ctx, refreshOf(answer.Header))
		}
		if l.page > 0 && v.parts(ctx, callers) {
			l.all = time.Since(l.began)
		}
		v.pages = append(v.pages, l)
		sleep(ctx, reads)
	}
}

// parts loads the parts of a page, and reports whether all came.
func (v *visitor) parts(ctx context.Context, callers []*stand.Caller) bool {
	var wait sync.WaitGroup
	came := make([]bool, partsOfPage)
	for i := range came {
		wait.Go(func() {
			answer, err := v.get(ctx, callers[i%len(callers)], fmt.Sprintf("%s?part=%d", v.path, i), partHeader)
			came[i] = err == nil && answer.Status == http.StatusOK
		})
	}
	wait.Wait()
	for _, ok := range came {
		if !ok {
			return false
		}
	}
	return true
}

func (v *visitor) get(ctx context.Context, c *stand.Caller, path, header string) (stand.Answer, error) {
	c.Header = header + v.cookies.line()
	answer, err := c.Get(ctx, path, patience)
	v.cookies.store(answer.Header)
	return answer, err
}

// refreshOf returns the time after which a browser loads a page again. Without a Refresh header, a
// person does so after 5 seconds.
func refreshOf(h http.Header) time.Duration {
	seconds, _, _ := strings.Cut(h.Get("Refresh"), ";")
	if n, err := strconv.Atoi(strings.TrimSpace(seconds)); err == nil && n >= 0 {
		return time.Duration(n) * time.Second
	}
	return 5 * time.Second
}

// A jar holds cookies. Its zero value is that of a browser, with one value for each name. The jar of a
// swarm holds many values of one name, and sends them in turn.
type jar struct {
	mu     sync.Mutex
	values map[string]string // of a browser
	pool   []string          // of a swarm: whole cookies
	most   int               // cookies that a swarm collects; 0: it stores none
	swarm  bool
	next   int
}

// store stores the cookies of an answer.
func (j *jar) store(h http.Header) {
	if j == nil {
		return
	}
	for _, line := range h.Values("Set-Cookie") {
		cookie, _, _ := strings.Cut(line, ";")
		name, value, _ := strings.Cut(cookie, "=")
		j.mu.Lock()
		switch {
		case j.swarm && len(j.pool) < j.most:
			j.pool = append(j.pool, cookie)
		case j.swarm:
		case j.values == nil:
			j.values = map[string]string{name: value}
		default:
			j.values[name] = value
		}
		j.mu.Unlock()
	}
}

// line returns a Cookie header line, or "".
func (j *jar) line() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var cookies []string
	if j.swarm && len(j.pool) > 0 && len(j.pool) >= j.most {
		j.next++
		cookies = append(cookies, j.pool[j.next%len(j.pool)])
	}
	for name, value := range j.values {
		cookies = append(cookies, name+"="+value)
	}
	if cookies == nil {
		return ""
	}
	return "Cookie: " + strings.Join(cookies, "; ") + "\r\n"
}

// header returns the header lines of a swarm's request, which looks like that of a browser; "" without
// a jar.
func (j *jar) header() string {
	if j == nil {
		return ""
	}
	return pageHeader + j.line()
}

// arrivals starts a visitor every now and then until ctx is done, and returns all when they have ended.
func arrivals(ctx context.Context, to string, every, reads time.Duration, first int) []*visitor {
	var all []*visitor
	var wait sync.WaitGroup
	for i := 0; sleep(ctx, every); i++ {
		v := &visitor{from: addrIn(first+i, 10), to: to, path: page(*work)}
		all = append(all, v)
		wait.Go(func() { v.run(ctx, reads) })
	}
	wait.Wait()
	return all
}
