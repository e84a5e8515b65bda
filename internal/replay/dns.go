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

// Bounds of DNS lookups.
const (
	maxQuestions = 1 << 17 // of one run, about 40 MB; further questions are not asked
	maxCalls     = 1024    // concurrent calls of Options.Resolve
	aheadOfDNS   = 256     // batches of all logs together that wait for answers
	mostAgents   = 8       // user agents for which an address remembers the bot
)

// A question is a question to the DNS.
type question struct {
	addr netip.Addr
	list string // a DNS list of the policy; "": the hostnames of the address
}

// An answer is the answer to a question. hostnames and listed are set before done is
// closed.
type answer struct {
	done      chan struct{}
	hostnames []string
	listed    []netip.Addr
	bots      []decidedBot // whose claims it decides; guarded by dnsLookups.mu
}

type decidedBot struct {
	agent uint64 // hash of the user agent
	bot   fairshare.Bot
}

// dnsLookups asks the DNS before lines are judged. Each question is asked once in a run, so
// that the report does not depend on the times of the answers. It is safe for concurrent
// use.
type dnsLookups struct {
	opts         *Options
	batchesAhead int              // of a log, that may wait
	most         int              // questions
	probe        *fairshare.Guard // see newProbe; nil if no rule looks anything up
	slots        chan struct{}    // holds a value for each call
	wg           sync.WaitGroup   // of the calls

	mu    sync.RWMutex
	known map[question]*answer

	questions, answers atomic.Int64
	full               atomic.Bool // a question was not asked
}

// newDNSLookups returns nil if the DNS is not asked.
func newDNSLookups(opts *Options) (*dnsLookups, error) {
	if opts.Resolve == nil {
		return nil, nil
	}
	a := &dnsLookups{
		opts: opts, batchesAhead: max(aheadOfDNS/max(len(opts.Logs), 1), 1), most: maxQuestions,
		slots: make(chan struct{}, maxCalls), known: map[question]*answer{},
	}
	var err error
	a.probe, err = newProbe(opts.Policy)
	return a, err
}

// newProbe returns a guard that evaluates every match of the policy with DNS lookups, so
// that its Lookups learn the questions. Its verdicts have no effect.
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
	return fairshare.NewGuard(&probe, noLimiter{}, nil)
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

// start asks the questions of a batch without waiting for answers. It waits while there
// are too many calls.
func (a *dnsLookups) start(ctx context.Context, b *batch) error {
	b.waits = b.waits[:0]
	p := prober{dns: a, ctx: ctx, batch: b}
	for i := range b.items {
		it := &b.items[i]
		if it.verifiable() {
			p.need(question{addr: it.req.Addr})
		}
	}
	return p.probe()
}

// verifiable reports whether the DNS can decide the bot's claim.
func (it *item) verifiable() bool {
	req := &it.req
	return req.Bot.State == fairshare.Pending && !req.Proxy && !req.Via.IsValid() && req.Addr.IsValid()
}

// await waits for the answers of a batch, and fills in the bots that they decide.
func (a *dnsLookups) await(ctx context.Context, b *batch) error {
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
			if it.verifiable() {
				a.decide(it)
				a.opts.setOverrides(it)
			}
		}
		// With these answers a rule may need others.
		again := prober{dns: a, ctx: ctx, batch: b}
		if err := again.probe(); err != nil || len(b.waits) == 0 {
			return err
		}
	}
}

// decide fills in the bot of a line whose claim the DNS has decided.
func (a *dnsLookups) decide(it *item) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.known[question{addr: it.req.Addr}]
	if w == nil {
		return // there were too many questions
	}
	for i := range w.bots {
		if known := &w.bots[i]; known.agent == it.agent {
			it.setBot(&known.bot)
			return
		}
	}
	known := decidedBot{agent: it.agent, bot: a.opts.Bot(it.req.Addr, it.req.UserAgent)}
	it.setBot(&known.bot)
	if len(w.bots) < mostAgents {
		w.bots = append(w.bots, known)
	}
}

// Hostnames implements fairshare.Lookups. It has the answers so far.
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

// find returns the answer to a question, or nil if there is none yet.
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

// A prober asks the questions that the lines of a batch need. It is the Lookups of the
// probe.
type prober struct {
	dns   *dnsLookups
	ctx   context.Context
	batch *batch
}

// probe asks everything that rules would look up now.
func (p *prober) probe() error {
	if p.dns.probe == nil {
		return nil
	}
	var header entryHeader
	for i := range p.batch.items {
		it := &p.batch.items[i]
		header.entry = it.entry
		req := it.req
		if certainBan(&req.Override) {
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

// certainBan reports whether an operator's ban will still hold when the line is judged.
// Then no rule looks anything up.
func certainBan(w *fairshare.Override) bool {
	return w.Action == fairshare.Block || w.Action == fairshare.Refuse && w.Wait > maxBackwards
}

func (p *prober) Hostnames(addr netip.Addr) []string {
	p.need(question{addr: addr})
	return p.dns.Hostnames(addr)
}

func (p *prober) Listed(list string, addr netip.Addr) []netip.Addr {
	p.need(question{addr, list})
	return p.dns.Listed(list, addr)
}

// need asks a question once, and makes the batch wait for its answer.
func (p *prober) need(q question) {
	a := p.dns
	a.mu.Lock()
	w := a.known[q]
	isNew := w == nil && len(a.known) < a.most
	if isNew {
		w = &answer{done: make(chan struct{})}
		a.known[q] = w
	}
	a.mu.Unlock()
	switch {
	case isNew:
		a.call(p.ctx, q, w)
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

// call asks a question as soon as there are fewer than maxCalls calls.
func (a *dnsLookups) call(ctx context.Context, q question, w *answer) {
	a.questions.Add(1)
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
		a.answers.Add(1)
		<-a.slots
	})
}
