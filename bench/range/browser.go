//go:build linux

package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A browser sends requests from one address as Firefox does: it keeps cookies, names the page that it
// comes from, and loads the parts of a page once. It does not follow redirects.
type browser struct {
	client *http.Client
	agent  string // user agent
	mu     sync.Mutex
	page   string          // the last page, for Referer
	seen   map[string]bool // parts that it has
}

const firefox = "Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:140.0) Gecko/20100101 Firefox/140.0"

// newBrowser returns a browser at an address; limit is the time until it gives up on an answer.
func newBrowser(from netip.Addr, agent string, limit time.Duration) *browser {
	jar, _ := cookiejar.New(nil) // it returns no error
	dialer := &net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), Timeout: limit}
	return &browser{
		agent: agent,
		seen:  make(map[string]bool),
		client: &http.Client{
			Jar:           jar,
			Timeout:       limit,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Transport: &http.Transport{
				DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
					return dialer.DialContext(ctx, "tcp", siteAddr)
				},
				MaxConnsPerHost: 6, MaxIdleConnsPerHost: 6, DisableCompression: true,
			},
		},
	}
}

func (b *browser) close() { b.client.CloseIdleConnections() }

// An answer is what came of a request. Status 0: no answer came.
type answer struct {
	status int
	header http.Header
	body   []byte
	wait   time.Duration // until the whole answer was there
}

// send sends a request for a target, such as "/?s=word".
func (b *browser) send(ctx context.Context, method, target, contentType string, body []byte,
	header map[string]string) answer {
	began := time.Now()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+siteHost+target, bytes.NewReader(body))
	if err != nil {
		return answer{wait: time.Since(began)}
	}
	if b.agent != "" {
		req.Header.Set("User-Agent", b.agent)
	} else {
		req.Header["User-Agent"] = nil
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	resp, err := b.client.Do(req)
	if err != nil {
		return answer{wait: time.Since(began)}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	a := answer{status: resp.StatusCode, header: resp.Header, body: text, wait: time.Since(began)}
	if err != nil {
		a.status = 0
	}
	return a
}

// navigate loads a page, or sends a form if there is one.
func (b *browser) navigate(ctx context.Context, target string, form url.Values) answer {
	method, contentType, body := "GET", "", []byte(nil)
	header := map[string]string{
		"Accept":                    "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
		"Accept-Language":           "en-US,en;q=0.5",
		"Accept-Encoding":           "gzip, deflate, br, zstd",
		"Upgrade-Insecure-Requests": "1",
		"Sec-Fetch-Dest":            "document",
		"Sec-Fetch-Mode":            "navigate",
		"Sec-Fetch-Site":            "none",
		"Sec-Fetch-User":            "?1",
		"Priority":                  "u=0, i",
	}
	if page := b.at(); page != "" {
		header["Referer"] = "http://" + siteHost + page
		header["Sec-Fetch-Site"] = "same-origin"
	}
	if form != nil {
		method, contentType, body = "POST", "application/x-www-form-urlencoded", []byte(form.Encode())
		header["Origin"] = "http://" + siteHost
	}
	a := b.send(ctx, method, target, contentType, body, header)
	if a.status > 0 && a.status < 400 {
		b.goTo(target)
	}
	return a
}

// at returns the page that the browser shows; empty: none yet.
func (b *browser) at() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.page
}

func (b *browser) goTo(target string) {
	b.mu.Lock()
	b.page = target
	b.mu.Unlock()
}

// parts loads the parts of a page that the browser does not have, and returns their answers by target.
func (b *browser) parts(ctx context.Context, page []byte) map[string]answer {
	var mu sync.Mutex
	var group sync.WaitGroup
	answers := make(map[string]answer)
	referer := "http://" + siteHost + b.at()
	for _, target := range partsOf(page) {
		b.mu.Lock()
		have := b.seen[target]
		b.seen[target] = true
		b.mu.Unlock()
		if have {
			continue
		}
		dest := "image"
		switch path, _, _ := strings.Cut(target, "?"); {
		case strings.HasSuffix(path, ".css"):
			dest = "style"
		case strings.HasSuffix(path, ".js"):
			dest = "script"
		}
		group.Go(func() {
			a := b.send(ctx, "GET", target, "", nil, map[string]string{
				"Accept": "*/*", "Accept-Language": "en-US,en;q=0.5", "Accept-Encoding": "gzip, deflate, br, zstd",
				"Referer": referer, "Sec-Fetch-Dest": dest, "Sec-Fetch-Mode": "no-cors",
				"Sec-Fetch-Site": "same-origin",
			})
			mu.Lock()
			answers[target] = a
			mu.Unlock()
		})
	}
	group.Wait()
	return answers
}

var partPattern = regexp.MustCompile(`(?:<link[^>]+rel=['"]stylesheet['"][^>]*href|<script[^>]+src|<img[^>]+src)=['"]([^'"]+)['"]`)

// partsOf returns the targets of the styles, scripts and pictures of a page that the site has itself.
func partsOf(page []byte) []string {
	var targets []string
	for _, found := range partPattern.FindAllSubmatch(page, -1) {
		target := strings.ReplaceAll(string(found[1]), "&#038;", "&")
		target = strings.ReplaceAll(target, "&amp;", "&")
		target = strings.TrimPrefix(target, "http://"+siteHost)
		if strings.HasPrefix(target, "/") && !strings.HasPrefix(target, "//") {
			targets = append(targets, target)
		}
	}
	return targets
}

// refreshOf returns after how many seconds a page wants to be loaded again, as a waiting room does.
func refreshOf(h http.Header) (time.Duration, bool) {
	seconds, _, _ := strings.Cut(h.Get("Refresh"), ";")
	n, err := strconv.Atoi(strings.TrimSpace(seconds))
	if err != nil || n < 0 {
		return 0, false
	}
	return time.Duration(n) * time.Second, true
}

// sleep waits, and reports whether ctx still holds.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
