package botauth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

// Times of fetched keys, in seconds.
const (
	keysRecent = 300     // an unknown key does not cause a fetch before
	keysFresh  = 3600    // a signature causes a fetch after
	keysUsable = 172_800 // keys are used that long if no fetch succeeds

	fetchWithin = 10 * time.Second
	fetchers    = 4 // fetches at a time
	minRetry    = 60
	maxRetry    = 300
)

// A fetcher fetches key directories.
type fetcher struct {
	client    *http.Client
	userAgent string
	log       func(string)
	queue     chan *agent
}

func newFetcher(o Options) fetcher {
	f := fetcher{userAgent: o.UserAgent, log: o.Log, queue: make(chan *agent, len(o.Agents))}
	if f.userAgent == "" {
		f.userAgent = "fairshare"
	}
	if f.log == nil {
		f.log = func(string) {}
	}
	transport := o.Transport
	if transport == nil {
		transport = publicTransport()
	}
	f.client = &http.Client{Transport: transport, Timeout: fetchWithin,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return f
}

// publicTransport returns a transport that connects to public addresses only, without a
// proxy.
func publicTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: fetchWithin,
		ControlContext: func(_ context.Context, network, address string, _ syscall.RawConn) error {
			addr, err := netip.ParseAddrPort(address)
			if err != nil || !isPublic(addr.Addr()) {
				return errNotPublic
			}
			return nil
		}}
	return &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: fetchWithin, ResponseHeaderTimeout: fetchWithin, MaxResponseHeaderBytes: 32 << 10}
}

var errNotPublic = errors.New("its host has an address that is not public")

// reserved are networks that net/netip does not name and that lead to no server of the
// Internet, or to another address than they seem to (RFC 6890).
var reserved = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("192.88.99.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("64:ff9b::/32"), netip.MustParsePrefix("100::/64"), netip.MustParsePrefix("2001::/23"),
	netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("2002::/16"), netip.MustParsePrefix("3fff::/20"),
}

// isPublic reports whether an address is one of a server in the Internet.
func isPublic(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	if !addr.IsGlobalUnicast() || addr.IsPrivate() || addr.Is6() && addr.As16()[0]>>5 != 1 { // 2000::/3
		return false
	}
	for _, p := range reserved {
		if p.Contains(addr) {
			return false
		}
	}
	return true
}

// want queues an agent, unless it is queued already or was tried shortly before.
func (f *fetcher) want(a *agent, now int64) {
	if now < a.due.Load() || !a.queued.CompareAndSwap(false, true) {
		return
	}
	f.queue <- a // there is room for every agent once
}

// Run fetches the keys of agents whose signatures come, until ctx ends. Keys are
// fetched at most once an hour, and again after a minute, up to five, if that fails or a
// signature names another key.
func (v *Verifier) Run(ctx context.Context) {
	var workers sync.WaitGroup
	for range min(fetchers, len(v.agents)) {
		workers.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case a := <-v.fetcher.queue:
					v.fetcher.fetch(ctx, a)
					a.queued.Store(false)
				}
			}
		})
	}
	workers.Wait()
}

// fetch fetches the keys of an agent.
func (f *fetcher) fetch(ctx context.Context, a *agent) {
	keys, err := f.get(ctx, a.host)
	now := time.Now().Unix()
	if err != nil {
		failed := a.failed.Add(1)
		a.due.Store(now + min(maxRetry, minRetry*int64(failed)))
		if failed == 1 && ctx.Err() == nil {
			f.log(fmt.Sprintf("bots: the keys of %s cannot be fetched: %v; until they can, its signatures prove "+
				"nothing that is not known already", a.host, err))
		}
		return
	}
	a.keys.Store(newKeySet(keys, now))
	a.due.Store(now + keysRecent)
	if a.failed.Swap(0) > 0 {
		f.log(fmt.Sprintf("bots: the keys of %s are known again", a.host))
	}
}

// get requests a key directory. Its errors contain no text of the server.
func (f *fetcher) get(ctx context.Context, host string) ([]Key, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+host+DirectoryPath, nil)
	if err != nil {
		return nil, errors.New("its host is not valid")
	}
	req.Header.Set("User-Agent", f.userAgent)
	req.Header.Set("Accept", "application/http-message-signatures-directory+json, application/json;q=0.5")
	resp, err := f.client.Do(req)
	if err != nil {
		return nil, fetchError(ctx, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d", resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDirectory+1))
	if err != nil {
		return nil, fetchError(ctx, err)
	}
	keys, err := ParseDirectory(body)
	if err != nil {
		return nil, err
	}
	trusted := keys[:0]
	for _, k := range keys {
		if k.ID != TestKey {
			trusted = append(trusted, k)
		}
	}
	return trusted, nil
}

// fetchError describes why a request failed, without text of the server.
func fetchError(ctx context.Context, err error) error {
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case errors.Is(err, errNotPublic):
		return errNotPublic
	case ctx.Err() != nil, errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("no answer within %v", fetchWithin)
	case errors.As(err, &dns):
		return errors.New("its host has no address, or it cannot be looked up now")
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return errors.New("no connection to its host")
	}
	return errors.New("its host does not answer as a web server with a valid certificate does")
}
