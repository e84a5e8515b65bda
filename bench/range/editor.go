//go:build linux

package main

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// chrome is the user agent of the editors: that of Chromium with a window.
const chrome = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36"

// edit works in the editor of WordPress, in Chromium without a window: it logs in, looks at the list of
// posts, opens a post, writes, saves, and looks at the result.
func (p *person) edit(ctx context.Context, user string) {
	forward, err := newForwarder([]netip.Addr{p.from}, nil)
	if err != nil {
		p.crowd.stall(p.name, err.Error())
		return
	}
	defer forward.close()
	home := filepath.Join(p.crowd.site.dir, "profile", fmt.Sprintf("%s-%d", user, time.Now().UnixNano()))
	if err := os.MkdirAll(home, 0o755); err != nil {
		p.crowd.stall(p.name, err.Error())
		return
	}
	defer os.RemoveAll(home)
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(home), chromedp.UserAgent(chrome),
		chromedp.Flag("host-resolver-rules", "MAP "+siteHost+" "+forward.ip),
		// Over TLS, a browser sends headers such as Sec-Fetch-Site. Here it sends them without.
		chromedp.Flag("unsafely-treat-insecure-origin-as-secure", "http://"+siteHost),
		chromedp.Flag("disable-features", "HttpsUpgrades,HttpsFirstBalancedModeAutoEnable,site-per-process,Translate,BlinkGenPropertyTrees"),
		chromedp.Env("HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_CACHE_HOME="+home),
		chromedp.WSURLReadTimeout(40*time.Second),
	)
	allocated, stop := chromedp.NewExecAllocator(ctx, options...)
	defer stop()
	tab, closeTab := chromedp.NewContext(allocated, chromedp.WithErrorf(func(string, ...any) {}))
	defer closeTab()
	watch := &watch{person: p, open: make(map[network.RequestID]opened)}
	if err := watchTab(tab, watch); err != nil {
		if ctx.Err() == nil {
			p.crowd.stall(p.name, "Chromium: "+err.Error())
		}
		return
	}
	defer watch.finish()
	step := func(what string, actions ...chromedp.Action[chromedp.Void]) bool {
		limited, cancel := context.WithTimeout(tab, 30*time.Second)
		defer cancel()
		if err := chromedp.Do(limited, actions...); err != nil {
			if ctx.Err() == nil {
				p.crowd.stall(p.name, what+": "+err.Error())
			}
			return false
		}
		return true
	}
	site := "http://" + siteHost
	for !step("logs in", chromedp.Navigate(site+"/wp-login.php"), chromedp.WaitVisible("#user_pass"),
		chromedp.SetValue("#user_login", user), chromedp.SetValue("#user_pass", "password of "+user),
		chromedp.Click("#wp-submit"), chromedp.WaitReady("#wpadminbar")) {
		if !sleep(ctx, 5*time.Second) {
			return
		}
	}
	for ctx.Err() == nil {
		step("looks at the list of posts", chromedp.Navigate(site+"/wp-admin/edit.php"),
			chromedp.WaitReady("#the-list"))
		if !p.pause(ctx, 2*time.Second) {
			return
		}
		if id := p.crowd.postID(ctx, p.rng.IntN(200)+1); id != "" {
			step("edits a post", chromedp.Navigate(site+"/wp-admin/post.php?action=edit&post="+id),
				chromedp.Poll[chromedp.Void](`window.wp && wp.data && wp.data.select('core/editor') && wp.data.select('core/editor').getCurrentPostId() > 0`),
				chromedp.Sleep(2*time.Second), // writes
				chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`(async () => { wp.data.dispatch('core/editor').editPost({title: 'Edited %d'});
					await wp.data.dispatch('core/editor').savePost(); return 1 })()`, p.rng.IntN(1e6)), chromedp.EvalAwaitPromise))
		}
		step("looks at the site", chromedp.Navigate(site+"/"), chromedp.WaitReady("#colophon"))
		if !p.pause(ctx, 3*time.Second) {
			return
		}
	}
}

// watchTab starts the browser of a tab, gives it the client hints of a browser with a window, and reports
// its requests.
func watchTab(tab context.Context, w *watch) error {
	if err := chromedp.Listen(tab, w.event); err != nil {
		return err
	}
	if _, err := chromedp.Call(tab, network.Enable, network.EnableParams{}); err != nil {
		return err
	}
	_, err := chromedp.Call(tab, emulation.SetUserAgentOverride, emulation.SetUserAgentOverrideParams{
		UserAgent: chrome, AcceptLanguage: "en-US,en", Platform: "Linux x86_64",
		UserAgentMetadata: &emulation.UserAgentMetadata{
			Brands: []*emulation.UserAgentBrandVersion{
				{Brand: "Chromium", Version: "140"}, {Brand: "Not=A?Brand", Version: "24"},
				{Brand: "Google Chrome", Version: "140"}},
			Platform: "Linux", Architecture: "x86",
		}})
	return err
}

// postID returns the number that WordPress gave a post.
func (c *crowd) postID(ctx context.Context, n int) string {
	var out strings.Builder
	query := fmt.Sprintf("SELECT ID FROM wp_posts WHERE post_name='post-%d' LIMIT 1", n)
	err := c.site.sql(ctx, strings.NewReader(query), &out, "mariadb", "-N", "wordpress")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(out.String())
}

// A watch records the requests of a tab.
type watch struct {
	person *person
	mu     sync.Mutex
	frame  cdp.FrameID // the main one
	open   map[network.RequestID]opened
}

// pageTypes are the types of requests that are not parts of a page.
var pageTypes = []network.ResourceType{
	network.ResourceTypeDocument, network.ResourceTypeXHR, network.ResourceTypeFetch}

type opened struct {
	target string
	began  time.Time
	loader cdp.LoaderID // of its page
	page   bool
}

func (w *watch) event(event any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		u, err := url.Parse(e.Request.URL)
		if err != nil || u.Host != siteHost {
			return
		}
		if e.RedirectResponse != nil {
			if o, known := w.open[e.RequestID]; known {
				w.done(o, int(e.RedirectResponse.Status), waitOf(e.RedirectResponse, o), e.RedirectResponse)
			}
		}
		if e.Type == network.ResourceTypeDocument && w.frame == "" {
			w.frame = e.FrameID
		}
		w.open[e.RequestID] = opened{target: u.RequestURI(), began: time.Now(), loader: e.LoaderID,
			page: slices.Contains(pageTypes, e.Type)}
	case *network.EventResponseReceived:
		if o, known := w.open[e.RequestID]; known {
			delete(w.open, e.RequestID)
			w.done(o, int(e.Response.Status), waitOf(e.Response, o), e.Response)
		}
		if e.Type == network.ResourceTypeDocument && e.FrameID == w.frame {
			w.leave(e.LoaderID)
		}
	case *network.EventLoadingFailed:
		if o, known := w.open[e.RequestID]; known {
			delete(w.open, e.RequestID)
			if !e.Canceled && e.ErrorText != "net::ERR_ABORTED" {
				w.done(o, 0, time.Since(o.began), nil)
			}
		}
	}
}

// waitOf returns how long the server took, without the time in which a busy browser did not send.
func waitOf(r *network.Response, o opened) time.Duration {
	if r.FromDiskCache {
		return 0
	}
	if t := r.Timing; t != nil && t.ReceiveHeadersEnd > 0 {
		begin := t.SendStart
		if t.ConnectStart >= 0 {
			begin = t.ConnectStart
		}
		return time.Duration((t.ReceiveHeadersEnd - begin) * float64(time.Millisecond))
	}
	return time.Since(o.began)
}

func (w *watch) done(o opened, status int, wait time.Duration, r *network.Response) {
	if r != nil && r.FromDiskCache {
		return
	}
	harm := harmOf(status, wait)
	if r != nil && status == 503 && o.page {
		for name := range r.Headers { // a waiting room; the browser loads the page again
			if strings.EqualFold(name, "Refresh") {
				harm = ""
			}
		}
	}
	w.person.crowd.add(record{person: w.person.name, target: o.target, status: status, wait: wait, page: o.page,
		harm: harm})
}

// finish records the requests that have waited too long when the run ends.
func (w *watch) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leave("")
}

// leave forgets the open requests of all pages but the next one, because the browser says nothing more
// about them. It records those that have waited too long.
func (w *watch) leave(next cdp.LoaderID) {
	for id, o := range w.open {
		if next != "" && o.loader == next {
			continue
		}
		if waited := time.Since(o.began); waited > tooLong && o.page {
			w.done(o, 0, waited, nil)
		}
		delete(w.open, id)
	}
}
