package replay

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/maphash"
	"io"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"fairshare"
	"fairshare/browser"
	"fairshare/internal/accesslog"
	"fairshare/logins"
)

// A batch is some neighbouring lines of one log, prepared for judging.
type batch struct {
	log   *logFile
	src   *accesslog.Batch // has the batch as its Data
	items []item           // one for each of src.Entries
	waits []*answer        // needed before the batch is judged
}

// An item is one line on its way through a replay.
type item struct {
	req    fairshare.Request
	entry  *accesslog.Entry
	client uint64         // hash of the address
	agent  uint64         // hash of the user agent
	path   uint64         // hash of the path
	bot    botID          // of Request.Bot; set by the judge
	target *logins.Target // nil unless it will probably be needed
	asset  bool           // a style sheet, an image or similar was fetched
	page   bool           // a page, or what may be one, was got
	attack bool           // only scanners send this target, see isAttack

	browser bool // the user agent claims to be a browser

	// Results of the judge.
	enforced finding
	dryRun   finding // of rules with dry_run
}

// A finding is the part of a fairshare.Finding that the report needs.
type finding struct {
	wait   time.Duration
	rule   int32 // index in the policy; Options.operator for an operator's ban; noRule for none
	action fairshare.Action
	ban    fairshare.BanState
}

const noRule = -1

// seeds are the random seeds of the hashes of one run, so that nobody can write a log
// whose clients collide.
type seeds struct {
	addr [2]uint64
	text maphash.Seed
}

func newSeeds() seeds {
	return seeds{addr: [2]uint64{rand.Uint64(), rand.Uint64()}, text: maphash.MakeSeed()}
}

func (s *seeds) hashAddr(addr netip.Addr) uint64 {
	var hi, lo uint64
	if addr.Is4() {
		a := addr.As4()
		lo = uint64(binary.BigEndian.Uint32(a[:]))
	} else {
		a := addr.As16()
		hi, lo = binary.BigEndian.Uint64(a[:8]), binary.BigEndian.Uint64(a[8:])
	}
	// Two rounds of the multiplication that wyhash is made of.
	h, l := bits.Mul64(hi^s.addr[0], lo^s.addr[1])
	h, l = bits.Mul64(h^l^s.addr[1], lo^0x9E3779B97F4A7C15)
	return h ^ l
}

func (s *seeds) hashText(text string) uint64 { return maphash.String(s.text, text) }

// A judging is what the judge uses now. With it the preparers do what does not depend on earlier lines.
type judging struct {
	guard  *fairshare.Guard // nil: conditions are not tested before
	logins *logins.Watcher  // nil unless Options.Attempts
}

// A preparer does the work on lines that needs no counters. It is not safe for concurrent
// use: each goroutine that parses has one.
type preparer struct {
	opts  *Options
	seeds *seeds
	judge *atomic.Pointer[judging] // nil without a judge

	header entryHeader

	touched uint64 // so that the compiler does not remove what only reads memory
	targets *knownTargets
	agents  [1 << 10][2]knownAgent // recent ones, by the hash
	seen    [1 << 9]seenBot        // recent results of Options.Bot, which are correct for most lines
}

// A knownAgent is what is known of a user agent.
type knownAgent struct {
	hash    uint64
	browser bool // it claims to be one
	nobody  bool // it does not belong to a bot
}

// A knownTarget is what is known of a request target.
type knownTarget struct {
	hash     uint64
	path     uint64 // hash of the path
	decoded  string // the path, if it is not a part of the target
	from, to uint16 // of the path in the target; with decoded 0
	query    uint16 // where the query begins in the target; 0: there is none
	usable   bool   // SetTarget finds nothing else
	asset    bool
	attack   bool
	login    *logins.Target // nil: not known yet
}

// knownTargets are recent targets, by the hash.
type knownTargets [1 << 11][2]knownTarget

// longestTarget is how long a target may be that is remembered.
const longestTarget = 1024

// A seenBot is the result of Options.Bot for a client and a user agent.
type seenBot struct {
	client, agent uint64
	bot           fairshare.Bot
}

// prepare fills in the items of some lines. It uses the memory of the earlier lines in src.
func (p *preparer) prepare(src *accesslog.Batch) *batch {
	b, _ := src.Data.(*batch)
	if b == nil {
		b = &batch{src: src}
		src.Data = b
	}
	p.items(b)
	return b
}

// items fills in the items of a batch.
func (p *preparer) items(b *batch) {
	entries := b.src.Entries
	if cap(b.items) < len(entries) {
		b.items = make([]item, len(entries)+len(entries)/8)
	}
	b.items = b.items[:len(entries)]
	var j judging
	if p.judge != nil {
		if now := p.judge.Load(); now != nil {
			j = *now
		}
	}
	var targets [together]uint64 // hashes of the next ones
	for i := range entries {
		if i%together == 0 {
			p.expect(entries[i:min(i+together, len(entries))], b.items[i:], &targets)
		}
		e, it := &entries[i], &b.items[i]
		it.entry = e
		req := &it.req
		req.Time = e.Time
		req.Addr, req.Proxy, req.Via = p.opts.Client(e.Client, e.Forwarded)
		req.Method, req.Host, req.UserAgent = e.Method, e.Host, e.UserAgent
		target := p.target(req, e.Target, targets[i%together])
		req.Lookups = p.opts.Lookups
		addr := req.Addr
		if !addr.IsValid() {
			addr = e.Client
		}
		if it.client = p.seeds.hashAddr(addr); req.Via.IsValid() {
			it.client ^= p.seeds.hashAddr(req.Via)
		}
		it.path, it.attack = target.path, target.attack
		it.asset = (e.Status == 200 || e.Status == 304 || e.Status == 206) && target.asset
		it.page = e.Status == 200 && req.Method == "GET" && !target.asset
		if p.opts.Owner != nil {
			req.Owner = p.opts.Owner(req.Addr)
		}
		agent := p.agent(it)
		it.browser = agent.browser
		if p.opts.Bot != nil {
			p.recognise(it, agent)
			if p.opts.Robots != nil {
				req.Robots = p.opts.Robots.Judge(&req.Bot, req.UserAgent, e.Target)
			}
		}
		p.opts.setOverrides(it)
		if it.target = nil; j.logins != nil && j.logins.LooksAt(req) {
			if target.login == nil {
				login := logins.TargetOf(req)
				target.login = &login
			}
			it.target = target.login
		}
		if j.guard != nil && p.opts.Resolve == nil { // the DNS may change the bot
			p.header.entry = e
			req.Header = &p.header
			j.guard.MatchEarly(req)
		}
	}
}

// expect hashes the targets and user agents of the next lines, and reads what is remembered of them: the processor
// overlaps these reads.
func (p *preparer) expect(entries []accesslog.Entry, items []item, targets *[together]uint64) {
	for i := range entries {
		e := &entries[i]
		target, agent := p.seeds.hashText(e.Target), p.seeds.hashText(e.UserAgent)
		targets[i], items[i].agent = target, agent
		p.touched += p.targets[target%uint64(len(p.targets))][0].hash + p.agents[agent%uint64(len(p.agents))][0].hash
	}
}

// touch reads memory of a line that another goroutine has written, see together.
func (it *item) touch() uint64 {
	e, req := it.entry, &it.req
	lengths := len(e.Method) + len(e.Referer) + len(e.Cookie) + len(req.Method) + len(req.Bot.Name) +
		len(req.Override.Labels) + len(req.ViaOverride.Labels) + len(req.Path)
	return uint64(lengths) + uint64(e.Bytes) + it.client + uint64(it.enforced.wait)
}

// setOverrides fills in the operators' overrides at the line's time.
func (o *Options) setOverrides(it *item) {
	if o.Override != nil {
		it.req.Override, it.req.ViaOverride = o.overrides(&it.req, it.req.Time)
	}
}

// overrides returns the operators' overrides of a request's client, and of the peer that
// named it.
func (o *Options) overrides(req *fairshare.Request, now time.Time) (client, via fairshare.Override) {
	if req.Via.IsValid() {
		via = o.Override(req.Via, fairshare.Bot{}, now)
	}
	return o.Override(req.Addr, req.Bot, now), via
}

// agent returns what is known of the user agent of a line.
func (p *preparer) agent(it *item) *knownAgent {
	set := &p.agents[it.agent%uint64(len(p.agents))]
	switch it.agent {
	case set[0].hash:
		return &set[0]
	case set[1].hash:
		return &set[1]
	}
	set[1] = set[0]
	set[0] = knownAgent{hash: it.agent, browser: browser.ClaimOf(it.req.UserAgent).Family != browser.NoFamily}
	return &set[0]
}

// target sets the target of a request, which has a hash, and returns what is known of it. The result is valid until
// the next call.
func (p *preparer) target(req *fairshare.Request, target string, hash uint64) *knownTarget {
	set := &p.targets[hash%uint64(len(p.targets))]
	t := &set[0]
	if set[1].hash == hash {
		t = &set[1]
	}
	if t.hash == hash && t.usable {
		path, query := t.decoded, ""
		if path == "" {
			path = target[t.from:t.to]
		}
		if t.query > 0 {
			query = target[t.query:]
		}
		req.SetParts(path, query)
		return t
	}
	if t.hash != hash {
		set[1] = set[0]
		t = &set[0]
	}
	req.SetTarget(target)
	*t = knownTarget{hash: hash, path: p.seeds.hashText(req.Path), asset: asset(req.Path), attack: isAttack(target)}
	if req.OddPath || len(target) > longestTarget {
		return t
	}
	t.usable, t.query = true, uint16(strings.IndexByte(target, '?')+1)
	if from := strings.Index(target, req.Path); from >= 0 {
		t.from, t.to = uint16(from), uint16(from+len(req.Path))
	} else {
		t.decoded = strings.Clone(req.Path)
	}
	return t
}

// recognise fills in the bot of a line.
func (p *preparer) recognise(it *item, agent *knownAgent) {
	if agent.nobody || it.entry.Has&accesslog.HasUserAgent == 0 { // the log has no user agents
		it.setBot(&fairshare.Bot{})
		return
	}
	seen := &p.seen[(it.client^it.agent)%uint64(len(p.seen))]
	if seen.client != it.client || seen.agent != it.agent {
		*seen = seenBot{client: it.client, agent: it.agent, bot: p.opts.Bot(it.req.Addr, it.req.UserAgent)}
		agent.nobody = seen.bot.Name == ""
	}
	it.setBot(&seen.bot)
}

// setBot sets the bot of a line.
func (it *item) setBot(bot *fairshare.Bot) {
	switch {
	case bot.Name != "":
		it.req.SetBot(*bot)
	case it.req.Bot.Name != "": // of the earlier line in this item
		it.req.Bot = fairshare.Bot{}
	}
}

// clientOf returns the address under which a line is reported: the judged one or, if that
// is invalid (0.0.0.0), the logged one.
func (it *item) clientOf() netip.Addr {
	if it.req.Addr.IsValid() {
		return it.req.Addr
	}
	return it.entry.Client
}

// asset reports whether a path has the extension of a file that browsers fetch for a page.
func asset(path string) bool {
	for n := 2; n <= 5 && n < len(path); n++ {
		if path[len(path)-1-n] != '.' {
			continue
		}
		switch path[len(path)-n:] {
		case "js", "css", "png", "jpg", "gif", "svg", "ico", "ttf", "webp", "woff", "jpeg", "avif", "woff2":
			return true
		}
		return false
	}
	return false
}

// A feed reads one log ahead of the judge.
type feed struct {
	log     *logFile
	dns     *dnsLookups // nil if the DNS is not asked
	batches chan *batch // closed at the end
	err     error       // read after batches is closed

	cur  *batch
	next int   // item of cur that is judged next
	at   int64 // the time of that item, Unix ns
}

// batchesAhead is how many batches of one log wait for the judge.
const batchesAhead = 1

func newFeed(l *logFile, dns *dnsLookups) *feed {
	f := &feed{log: l, dns: dns, batches: make(chan *batch, batchesAhead)}
	if !l.first.IsZero() {
		f.at = l.first.UnixNano()
	}
	return f
}

// run reads the lines until the log or ctx ends.
func (f *feed) run(ctx context.Context) {
	defer close(f.batches)
	defer f.log.done()
	file, err := f.log.open()
	if err != nil {
		f.err = err
		return
	}
	if f.dns == nil {
		f.err = f.read(file, func(b *batch) error { return f.send(ctx, b) })
		return
	}
	// Batches wait here for the DNS, in order, while later ones are read.
	waiting := make(chan *batch, f.dns.batchesAhead)
	passed := make(chan error, 1)
	go func() {
		var err error
		for b := range waiting {
			if err == nil {
				err = f.dns.await(ctx, b)
			}
			if err == nil {
				err = f.send(ctx, b)
			}
		}
		passed <- err
	}()
	f.err = f.read(file, func(b *batch) error {
		if err := f.dns.start(ctx, b); err != nil {
			return err
		}
		select {
		case waiting <- b:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	close(waiting)
	if err := <-passed; f.err == nil {
		f.err = err
	}
}

// read reads all batches of a file, which are prepared.
func (f *feed) read(file *accesslog.File, next func(*batch) error) error {
	for {
		src, err := file.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		b := src.Data.(*batch)
		b.log = f.log
		if err := next(b); err != nil {
			return err
		}
	}
}

// send sends a batch to the judge.
func (f *feed) send(ctx context.Context, b *batch) error {
	select {
	case f.batches <- b:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reopens reports whether a file can be read twice.
func reopens(path string) bool {
	info, err := os.Stat(path)
	return path != "-" && err == nil && info.Mode().IsRegular()
}

// An entryHeader has the headers that are in a log line.
type entryHeader struct {
	entry *accesslog.Entry
	value [1]string
}

// Values implements fairshare.Header. The result is valid until the next call.
func (h *entryHeader) Values(name string) []string {
	switch name {
	case "Cookie":
		h.value[0] = h.entry.Cookie
	case "Referer":
		h.value[0] = h.entry.Referer
	case "User-Agent":
		h.value[0] = h.entry.UserAgent
	case "X-Forwarded-For":
		h.value[0] = h.entry.Forwarded
	default:
		return nil
	}
	if h.value[0] == "" {
		return nil
	}
	return h.value[:]
}
