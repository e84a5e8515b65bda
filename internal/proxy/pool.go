package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"fairshare/internal/outbound"
)

// A Pool configures the upstreams of one site.
type Pool struct {
	Name      string        // of the site, for messages
	Upstreams []*url.URL    // at least one, all with the same scheme; see ParseUpstream
	Timeout   time.Duration // 0 means Config.Timeout
	Slots     func() int    // as Config.Slots
	Check     *Check        // nil means that upstreams are not checked, and each counts as up
	SlowStart time.Duration // how long a recovered upstream gets fewer requests than the others; 0 means not at all
}

// A Check says when an upstream is up.
type Check struct {
	Host          string // of the request
	Path          string // of the request; "" means that the upstream only has to accept a connection
	Every         time.Duration
	Timeout       time.Duration
	Fails, Passes int // in a row, after which the upstream is down or up
}

// An upstream is one server of a pool. It lives as long as its pool has it, over reloads.
type upstream struct {
	url       *url.URL
	scheme    string // of URLs
	timeout   time.Duration
	transport *http.Transport
	direct    *outbound.Pool // for simple requests; nil if there are none

	busy    atomic.Int64 // requests in progress
	isDown  atomic.Bool
	upSince atomic.Int64 // Unix ns of the last recovery; 0: it was never down
	silent  atomic.Bool  // it did not answer, and its recovery is not logged yet

	mu       sync.Mutex
	fails    atomic.Int32 // failed checks or connections in a row; changed with mu
	passes   int          // checks in a row since
	checking bool
	checked  time.Time // when the last check began
}

// A pool is a Pool in use.
type pool struct {
	Pool
	scheme  string // of the URLs of Upstreams, as configured
	ups     []*upstream
	next    atomic.Uint32 // where the search for the least busy one begins
	uploads *uploads
}

// newPool takes over what previous, which may be nil, knows of the same upstreams.
func newPool(c Pool, timeout time.Duration, previous *pool) *pool {
	p := &pool{Pool: c, scheme: c.Upstreams[0].Scheme, uploads: new(uploads)}
	p.Timeout = nonZero(c.Timeout, timeout)
	if previous != nil {
		p.uploads = previous.uploads
	}
	for _, u := range c.Upstreams {
		var up *upstream
		if previous != nil {
			i := slices.IndexFunc(previous.ups, func(old *upstream) bool {
				return *old.url == *u && old.timeout == p.Timeout
			})
			if i >= 0 {
				up = previous.ups[i]
			}
		}
		if up == nil {
			up = newUpstream(u, p.Timeout)
		}
		if c.Check == nil {
			up.isDown.Store(false)
		}
		p.ups = append(p.ups, up)
	}
	return p
}

// startShare is the part of the usual requests that an upstream gets just after its recovery.
const startShare = 0.1

// pick returns the upstream with the fewest requests in progress that is up and not among
// tried; nil if there is none. The caller ends the request with release.
func (p *pool) pick(tried []*upstream, now time.Time) *upstream {
	if len(p.ups) == 1 {
		if up := p.ups[0]; len(tried) == 0 && !p.isDown(up) {
			up.busy.Add(1)
			return up
		}
		return nil
	}
	var best *upstream
	least := math.Inf(1)
	start := int(p.next.Add(1))
	for i := range p.ups {
		up := p.ups[(start+i)%len(p.ups)]
		if p.isDown(up) || slices.Contains(tried, up) {
			continue
		}
		load := float64(up.busy.Load()+1) / up.share(p.SlowStart, now)
		if load < least {
			best, least = up, load
		}
	}
	if best != nil {
		best.busy.Add(1)
	}
	return best
}

// pickNow is pick at the present time, which does not matter for a single upstream.
func (p *pool) pickNow(tried []*upstream) *upstream {
	if len(p.ups) == 1 {
		return p.pick(tried, time.Time{})
	}
	return p.pick(tried, time.Now())
}

func (up *upstream) release() { up.busy.Add(-1) }

// share returns which part of the usual requests the upstream gets: less than 1 during its
// slow start.
func (up *upstream) share(slow time.Duration, now time.Time) float64 {
	since := up.upSince.Load()
	if since == 0 || slow <= 0 {
		return 1
	}
	return min(1, max(startShare, float64(now.UnixNano()-since)/float64(slow)))
}

// isUp reports whether a request can be sent somewhere.
func (p *pool) isUp() bool {
	return slices.ContainsFunc(p.ups, func(up *upstream) bool { return !p.isDown(up) })
}

// isDown reports whether an upstream gets no requests. Without checks nothing would bring it back, and a
// check that was running at a reload may still find it down.
func (p *pool) isDown(up *upstream) bool { return p.Check != nil && up.isDown.Load() }

// failedConnection counts a connection that failed. log gets a line if the upstream is down now.
func (p *pool) failedConnection(up *upstream, log *log.Logger, err error) {
	if p.Check != nil {
		up.note(p, err, time.Now(), log)
	}
}

// answered notes that the upstream has answered a request.
func (up *upstream) answered() {
	if up.fails.Load() == 0 || up.isDown.Load() { // only checks bring it back
		return
	}
	up.mu.Lock()
	defer up.mu.Unlock()
	up.fails.Store(0)
}

// note counts the result of a check, or a failed connection.
func (up *upstream) note(p *pool, err error, now time.Time, log *log.Logger) {
	up.mu.Lock()
	defer up.mu.Unlock()
	if err != nil {
		up.passes = 0
		if fails := up.fails.Add(1); fails >= int32(p.Check.Fails) && !up.isDown.Swap(true) {
			left := 0
			for _, other := range p.ups {
				if !other.isDown.Load() {
					left++
				}
			}
			rest := fmt.Sprintf("%d of %d upstreams are left", left, len(p.ups))
			if left == 0 {
				rest = "no upstream is left: requests are answered 503"
			}
			log.Printf("%supstream %s is down after %d failures: %v; %s", p.of(), up.url.Host, fails, err, rest)
		}
		return
	}
	up.fails.Store(0)
	if !up.isDown.Load() {
		return
	}
	if up.passes++; up.passes >= p.Check.Passes {
		up.passes = 0
		up.upSince.Store(now.UnixNano())
		up.isDown.Store(false)
		up.silent.Store(false)
		log.Printf("%supstream %s is up again", p.of(), up.url.Host)
	}
}

// of returns the beginning of a message about a pool.
func (p *pool) of() string {
	if p.Name == "" {
		return ""
	}
	return "site " + p.Name + ": "
}

// checkTick is how often RunChecks looks for checks that are due.
const checkTick = 250 * time.Millisecond

// RunChecks checks the upstreams of all pools with a Check until ctx ends.
func (p *Proxy) RunChecks(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	tick := time.NewTicker(checkTick)
	defer tick.Stop()
	for {
		s := p.setup.Load()
		now := time.Now()
		for _, pool := range s.pools {
			for _, up := range pool.ups {
				if pool.Check != nil && up.isDue(pool.Check, now) {
					running.Go(func() {
						err := up.check(ctx, pool.Check)
						up.mu.Lock()
						up.checking = false
						up.mu.Unlock()
						if ctx.Err() == nil {
							up.note(pool, err, time.Now(), s.Log)
						}
					})
				}
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// isDue reports whether a check begins at a time. A reload may have changed c since the last one.
func (up *upstream) isDue(c *Check, now time.Time) bool {
	up.mu.Lock()
	defer up.mu.Unlock()
	if up.checking || now.Sub(up.checked) < c.Every {
		return false
	}
	up.checking, up.checked = true, now
	return true
}

// check returns why the upstream is not up, nil if it is.
func (up *upstream) check(ctx context.Context, c *Check) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	if c.Path == "" {
		return up.reach(ctx)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, up.scheme+"://"+up.url.Host+c.Path, nil)
	if err != nil {
		return err
	}
	req.Host = nonZero(c.Host, up.url.Host)
	req.Header.Set("User-Agent", "fairshare")
	resp, err := up.transport.RoundTrip(req)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%s: no answer within %v", c.Path, c.Timeout)
	case err != nil:
		return err
	}
	defer resp.Body.Close()
	io.CopyN(io.Discard, resp.Body, 64<<10)
	if resp.StatusCode < 200 || resp.StatusCode > 399 {
		return fmt.Errorf("%s is answered %d", c.Path, resp.StatusCode)
	}
	return nil
}

// isDialError reports whether no connection could be made, so that nothing was sent.
func isDialError(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// A PoolState says how the upstreams of a site are at the moment.
type PoolState struct {
	Site      string
	Upstreams []UpstreamState
}

// An UpstreamState says how an upstream is at the moment.
type UpstreamState struct {
	URL        string
	Checked    bool // otherwise it always counts as up
	Up         bool
	InProgress int64 // requests
}

// Pools returns the state of all upstreams, in the order of Config.Pools.
func (p *Proxy) Pools() []PoolState {
	var all []PoolState
	for _, pool := range p.setup.Load().pools {
		state := PoolState{Site: pool.Name}
		for _, up := range pool.ups {
			state.Upstreams = append(state.Upstreams,
				UpstreamState{URL: up.url.String(), Checked: pool.Check != nil, Up: !pool.isDown(up),
					InProgress: up.busy.Load()})
		}
		all = append(all, state)
	}
	return all
}

// Unreachable returns a text for each upstream that accepts no connection, with TLS if
// configured. A pool with several upstreams is named by its site.
func (p *Proxy) Unreachable(ctx context.Context) []string {
	var mu sync.Mutex
	var problems []string
	var all sync.WaitGroup
	limit := make(chan struct{}, 32)
	s := p.setup.Load()
	for _, pool := range s.pools {
		for _, up := range pool.ups {
			all.Go(func() {
				limit <- struct{}{}
				defer func() { <-limit }()
				if err := up.reach(ctx); err != nil && !errors.Is(ctx.Err(), context.Canceled) {
					mu.Lock()
					defer mu.Unlock()
					problems = append(problems, pool.of()+up.problem(err))
				}
			})
		}
	}
	all.Wait()
	slices.SortFunc(problems, strings.Compare)
	return problems
}
