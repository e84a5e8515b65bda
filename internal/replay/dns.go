package replay

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"fairshare"
)

// Bounds of what the DNS is asked.
const (
	mostAsked  = 1 << 17 // questions of one run, about 40 MB; what is beyond is not asked
	atOnce     = 1024    // calls of Options.Resolve
	aheadOfDNS = 32      // batches of all logs together that wait for answers
	mostAgents = 8       // user agents of an address whose bot is remembered
)

// A question is one that the DNS is asked.
type question struct {
	addr netip.Addr
	list string // a DNS list of the policy; "": what the address is called
}

// An answer is what came of a question. Its texts are set before done is
// closed.
type answer struct {
	done      chan struct{}
	hostnames []string
	listed    []netip.Addr
	bots      []askedBot // those whose claim it decides; guarded by dnsLookups.mu
}

type askedBot struct {
	agent uint64 // hash of the user agent
	bot   fairshare.Bot
	id    botID
}

// dnsLookups asks the DNS before lines are judged: each question once in a
// run, so that nothing a replay says depends on when an answer came. It is
// safe for concurrent use.
type dnsLookups struct {
	opts  *Options
	ahead int              // batches of a log that may wait
	most  int              // questions
	probe *fairshare.Guard // tells what the rules would look up; nil when nothing
	slots chan struct{}    // a place for each call
	wg    sync.WaitGroup   // of the calls

	mu    sync.RWMutex
	known map[question]*answer

	asked, answered atomic.Int64
	full            atomic.Bool // something was not asked
}

// newDNSLookups returns nil when the DNS is not asked.
func newDNSLookups(opts *Options) (*dnsLookups, error) {
	if opts.Resolve == nil {
		return nil, nil
	}
	a := &dnsLookups{
		opts: opts, ahead: max(aheadOfDNS/max(len(opts.Logs), 1), 1), most: mostAsked,
		slots: make(chan struct{}, atOnce), known: map[question]*answer{},
	}
	var err error
	a.probe, err = newProbe(opts.Policy)
	return a, err
}

// newProbe returns a guard that evaluates every match of a policy that looks
// something up, and decides nothing.
func newProbe(policy *fairshare.Policy) (*fairshare.Guard, error) {
	var probe fairshare.Policy
	add := func(m *fairshare.Match) {
		if looksUp(m) {
			probe.Rules = append(probe.Rules, fairshare.Rule{Name: fmt.Sprint(len(probe.Rules)), Match: *m,
				Action: fairshare.Block, DryRun: true})
		}
	}
	for i := range policy.Rules {
		r := &policy.Rules[i]
		add(&r.Match)
		if r.Ban != nil && r.Ban.Unless != nil {
			add(r.Ban.Unless)
		}
	}
	if probe.Rules == nil {
		return nil, nil
	}
	return fairshare.NewGuard(&probe, noLimiter{}, fairshare.NewBans(1))
}

func looksUp(m *fairshare.Match) bool {
	if m.Hostname != nil || m.Listed != nil {
		return true
	}
	for i := range m.Not {
		if looksUp(&m.Not[i]) {
			return true
		}
	}
	return false
}

// A noLimiter is the Limiter of a policy without limits.
type noLimiter struct{}

func (noLimiter) Take(context.Context, time.Time, []fairshare.Take, []fairshare.Tally) error {
	return nil
}

func (noLimiter) Settle(context.Context, time.Time, []fairshare.Charge) error { return nil }

// ask has what the lines of a batch call for asked, without waiting for
// answers. It waits while too many questions are under way.
func (a *dnsLookups) ask(ctx context.Context, b *batch) error {
	b.waits = b.waits[:0]
	p := prober{dns: a, ctx: ctx, batch: b}
	for i := range b.items {
		it := &b.items[i]
		if it.decidable() {
			p.want(question{addr: it.req.Addr})
		}
	}
	return p.probe()
}

// decidable reports whether the DNS can tell if the bot is what it says.
func (it *item) decidable() bool {
	req := &it.req
	return req.Bot.State == fairshare.Pending && !req.Proxy && !req.Via.IsValid() && req.Addr.IsValid()
}

// answer waits for what was asked and fills in what came of it.
func (a *dnsLookups) answer(ctx context.Context, p *preparer, b *batch) error {
	for {
		for _, w := range b.waits {
			select {
			case <-w.done:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		b.waits = b.waits[:0]
		for i := range b.items {
			it := &b.items[i]
			it.req.Lookups = a
			if it.decidable() {
				a.decide(p, it)
				if p.opts.Override != nil {
					p.word(it)
				}
			}
		}
		// A rule may look up more now that it knows this.
		again := prober{dns: a, ctx: ctx, batch: b}
		if err := again.probe(); err != nil || len(b.waits) == 0 {
			return err
		}
	}
}

// decide fills in what came of a bot's claim.
func (a *dnsLookups) decide(p *preparer, it *item) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.known[question{addr: it.req.Addr}]
	if w == nil {
		return // there were too many
	}
	for i := range w.bots {
		if known := &w.bots[i]; known.agent == it.agent {
			p.set(it, &known.bot, &known.id)
			return
		}
	}
	known := askedBot{agent: it.agent, bot: a.opts.Bot(it.req.Addr, it.req.UserAgent)}
	p.set(it, &known.bot, &known.id)
	if len(w.bots) < mostAgents {
		w.bots = append(w.bots, known)
	}
}

// Hostnames implements fairshare.Lookups: it knows what was asked.
func (a *dnsLookups) Hostnames(addr netip.Addr) []string {
	if w := a.find(question{addr: addr}); w != nil {
		return w.hostnames
	}
	return nil
}

// Listed implements fairshare.Lookups.
func (a *dnsLookups) Listed(list string, addr netip.Addr) []netip.Addr {
	if w := a.find(question{addr, list}); w != nil {
		return w.listed
	}
	return nil
}

// find returns the answer to a question, or nil as long as there is none.
func (a *dnsLookups) find(q question) *answer {
	a.mu.RLock()
	w := a.known[q]
	a.mu.RUnlock()
	if w != nil {
		select {
		case <-w.done:
			return w
		default:
		}
	}
	return nil
}

// A prober asks what the lines of a batch call for. It is the Lookups of the
// probe.
type prober struct {
	dns   *dnsLookups
	ctx   context.Context
	batch *batch
}

// probe has everything asked that rules would look up now.
func (p *prober) probe() error {
	if p.dns.probe == nil {
		return nil
	}
	var header entryHeader
	for i := range p.batch.items {
		it := &p.batch.items[i]
		header.entry = it.entry
		req := it.req
		if surely(&req.Override) {
			continue
		}
		req.Header, req.Lookups, req.Override.Action = &header, p, fairshare.Undecided
		v, err := p.dns.probe.Decide(p.ctx, &req)
		if err == nil {
			err = p.dns.probe.Settle(p.ctx, &v, fairshare.Outcome{Time: req.Time})
		}
		if err != nil {
			return err
		}
	}
	return p.ctx.Err()
}

// surely reports whether an operator's ban holds still when a line is judged:
// no rule looks anything up then.
func surely(w *fairshare.Override) bool {
	return w.Action == fairshare.Block || w.Action == fairshare.Refuse && w.Wait > backAnHour
}

func (p *prober) Hostnames(addr netip.Addr) []string {
	p.want(question{addr: addr})
	return p.dns.Hostnames(addr)
}

func (p *prober) Listed(list string, addr netip.Addr) []netip.Addr {
	p.want(question{addr, list})
	return p.dns.Listed(list, addr)
}

// want has a question asked, once, and the batch wait for its answer.
func (p *prober) want(q question) {
	a := p.dns
	a.mu.Lock()
	w := a.known[q]
	fresh := w == nil && len(a.known) < a.most
	if fresh {
		w = &answer{done: make(chan struct{})}
		a.known[q] = w
	}
	a.mu.Unlock()
	switch {
	case fresh:
		a.start(p.ctx, q, w)
	case w == nil:
		a.full.Store(true)
		return
	default:
		select {
		case <-w.done:
			return
		default:
		}
	}
	p.batch.waits = append(p.batch.waits, w)
}

// start asks a question once there is a place for it.
func (a *dnsLookups) start(ctx context.Context, q question, w *answer) {
	a.asked.Add(1)
	select {
	case a.slots <- struct{}{}:
	case <-ctx.Done():
		close(w.done)
		return
	}
	a.wg.Go(func() {
		defer close(w.done)
		a.opts.Resolve(ctx, q.addr, q.list)
		if l := a.opts.Lookups; l != nil && q.list == "" {
			w.hostnames = l.Hostnames(q.addr)
		} else if l != nil {
			w.listed = l.Listed(q.list, q.addr)
		}
		a.answered.Add(1)
		<-a.slots
	})
}
