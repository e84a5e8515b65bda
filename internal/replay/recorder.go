package replay

import (
	"math"
	"net/netip"
	"strings"

	"fairshare"
	"fairshare/internal/accesslog"
	"fairshare/internal/census"
	"fairshare/internal/network"
)

// bounds bound the memory of a run: about 190 MB if all are reached.
type bounds struct {
	clients  int // distinguished exactly
	agents   int
	networks int // of replaced clients
	effects  int // pairs of a client and a rule that refused it
	members  int // pairs of a client and a bot that it was recognized as
	paths    int // distinguished exactly
}

var usualBounds = bounds{clients: 1 << 20, agents: 1 << 15, networks: 1 << 16, effects: 1 << 20, members: 1 << 18,
	paths: 1 << 15}

const (
	mostReasons = 64  // why lines were skipped
	samples     = 3   // skipped lines shown for each reason
	maxAgent    = 256 // bytes of a user agent that are kept
	maxText     = 160 // bytes of a skipped line that are kept
)

// A recorder keeps the figures of a run and writes the verdicts.
type recorder struct {
	opts     *Options
	operator int32 // opts.operator()
	bounds   bounds
	logs     []*logFile
	dns      *dnsLookups    // nil if the DNS is not asked
	verdicts *verdictWriter // nil without Options.Verdicts
	differ   *differ        // nil without Options.Before
	unused   chan *chunk

	judged, skipped         int64
	allowed, refused, block int64
	first, last             int64 // earliest and latest time, Unix ns
	previous                int64 // time of the line before
	backwards               int64 // lines earlier than the one before
	furthest                int64 // by how much at most, ns
	furthestAt              Position
	started                 bool

	rules    []ruleCount
	clients  *ranking[client]
	agents   *ranking[agent]
	paths    *ranking[pathCount]
	tree     pathTree                      // of replaced paths
	networks map[netip.Prefix]networkCount // of replaced clients
	effects  []effect                      // linked from clients; index 0 means none
	free     uint32                        // the first unused effect
	crowded  bool                          // bounds.effects was reached
	chart    chart
	reasons  map[string]*reason
	lastID   uint64 // client of the line before
	lastOne  *ranked[client]
	touched  uint64 // so that the compiler does not remove touch

	fleets      *judgedFleets // nil if the judge looks for fleets
	bots        *botList
	botCounts   []botCount          // by botID−1
	members     map[member]struct{} // clients of bots; nil after there were too many
	hours       int                 // of all loads
	hoursFull   bool
	clientLoads []load

	pending int64            // lines of bots that could be verified, and were neither verified nor forged
	total   usage            // of all lines
	has     accesslog.Fields // of all lines
	empty   int64            // lines of connections without a request
}

// A Position is a line of a log.
type Position struct {
	File string `json:"file"`
	Line int64  `json:"line"`
}

type ruleCount struct {
	refused, blocked, banned int64
	passed                   int64  // because an operator has allowed the client
	clients                  int64  // as long as they are counted exactly
	seen                     sketch // afterwards
	saved                    usage  // of the requests refused or blocked
}

// distinct returns how many different clients the rule refused, blocked or let pass.
func (c *ruleCount) distinct() (n int64, approximate bool) {
	if c.seen.regs != nil {
		return c.seen.estimate(), true
	}
	return c.clients, false
}

// A client has the facts of one client address.
type client struct {
	addr    [16]byte
	agent   uint64 // hash of the user agent that most of its requests have, if one has more than half
	effects uint32 // the first one, an index of recorder.effects
	votes   uint16 // requests with agent, minus those with others
	looks   uint16 // behavior of people's browsers, see looksAll

	bytes, time int64 // of its requests; time in ns
	statuses    statuses
	behavior    behavior
	load        uint32 // index + 1 of recorder.clientLoads; 0: none

	bot     botID // of agent
	counted botID // for which the client was last counted
}

// Behavior of people's browsers.
const (
	looksAssets  = 1 << iota // fetched style sheets, images or similar
	looksReferer             // sent a referer
	looksPage                // got a page
	looksAll     = looksAssets | looksReferer
)

// An agent has the facts of one user agent.
type agent struct {
	text    string
	refused uint32 // or blocked
	errors  uint32 // answers 4xx
	browser bool
	load    load // of user agents that are not a browser's
	bytes   int64
	time    int64 // ns
	bot     botID // of the first client with this user agent
}

// An effect counts how often one rule refused or blocked one client.
type effect struct {
	next   uint32
	count  uint32
	row    int32
	method method // of the first request that was refused or blocked
	path   uint64 // of that request: a hash of recorder.paths
}

type networkCount struct{ requests, refused, blocked int64 }

// A reason counts the lines that were skipped for one reason.
type reason struct {
	lines   int64
	samples []Sample
}

// A Sample is a line that was skipped, or its beginning.
type Sample struct {
	Position
	Text string `json:"text"`
}

func newRecorder(r *Replay) *recorder {
	rec := &recorder{
		opts:     &r.opts,
		operator: r.opts.operator(),
		bounds:   r.bounds,
		logs:     r.logs,
		dns:      r.dns,
		rules:    make([]ruleCount, len(r.opts.Policy.Rules)+operatorRows),
		networks: map[netip.Prefix]networkCount{},
		effects:  make([]effect, 1, 64),
		reasons:  map[string]*reason{},
		bots:     &botList{},
		members:  map[member]struct{}{},
	}
	rec.clients = newRanking(r.bounds.clients, rec.keepNetwork)
	rec.agents = newRanking(r.bounds.agents, func(*ranked[agent]) {})
	rec.paths = newRanking(r.bounds.paths, func(p *ranked[pathCount]) { rec.tree.add(p.facts.text, pathTotalOf(p)) })
	if r.opts.Before != nil {
		rec.differ = newDiffer(r.opts.Before)
	}
	if r.opts.Verdicts != nil {
		rec.verdicts = newVerdictWriter(r.opts.Verdicts, &r.opts)
	}
	return rec
}

// run records chunks until the last one, or until a verdict cannot be written.
func (rec *recorder) run(chunks <-chan *chunk) error {
	if rec.verdicts != nil {
		if err := rec.verdicts.header(); err != nil {
			return err
		}
	}
	for c := range chunks {
		for i := range c.runs {
			r := &c.runs[i]
			if r.last {
				rec.skips(r.b)
				r.b.src.Release()
				continue
			}
			rec.items(r.b.items[r.from:r.to], r.feed.log)
			if rec.verdicts == nil {
				continue
			}
			if err := rec.verdicts.write(r.b.items[r.from:r.to], r.feed.log.path); err != nil {
				return err
			}
		}
		clear(c.runs)
		c.runs, c.n = c.runs[:0], 0
		select {
		case rec.unused <- c:
		default:
		}
	}
	if rec.verdicts != nil {
		return rec.verdicts.flush()
	}
	return nil
}

// items records lines.
func (rec *recorder) items(items []item, log *logFile) {
	for len(items) > 0 {
		some := items[:min(len(items), together)]
		items = items[len(some):]
		rec.expect(some)
		for i := range some {
			if rec.fleets != nil {
				rec.fleets.line(&some[i], i)
			}
			rec.line(&some[i], log)
		}
	}
}

// expect prepares for the next lines.
func (rec *recorder) expect(items []item) {
	var clients, paths [together]uint64
	for i := range items {
		rec.touched += items[i].touch()
	}
	for i := range items {
		clients[i], paths[i] = items[i].client, items[i].path
	}
	rec.touched += rec.clients.expect(clients[:len(items)]) + rec.paths.expect(paths[:len(items)])
	if rec.fleets != nil {
		rec.fleets.expect(items)
	}
}

func (rec *recorder) line(it *item, log *logFile) {
	e := it.entry
	rec.judged++
	log.entries++
	log.has |= e.Has
	at := it.req.Time.UnixNano()
	if !rec.started {
		rec.started, rec.first, rec.last, rec.previous = true, at, at, at
	}
	if back := rec.previous - at; back > 0 && back <= int64(maxBackwards) { // a larger step is a restart
		rec.backwards++
		if back > rec.furthest {
			rec.furthest, rec.furthestAt = back, Position{log.path, e.Line}
		}
	}
	rec.previous = at
	rec.first, rec.last = min(rec.first, at), max(rec.last, at)

	ag := rec.agent(it)
	cl := rec.client(it)
	switch {
	case cl.facts.votes == 0:
		cl.facts.agent, cl.facts.votes, cl.facts.bot = it.agent, 1, it.bot
	case cl.facts.agent != it.agent:
		cl.facts.votes--
	case cl.facts.votes != math.MaxUint16:
		cl.facts.votes++
	}
	cl.facts.behavior.add(it, at, cl.facts.looks&looksAll == looksAll)
	if it.asset {
		cl.facts.looks |= looksAssets
	}
	if it.page {
		cl.facts.looks |= looksPage
	}
	if e.Referer != "" {
		cl.facts.looks |= looksReferer
	}
	switch it.enforced.action {
	case fairshare.Allow:
		rec.allowed++
	case fairshare.Refuse:
		rec.refused++
	case fairshare.Block:
		rec.block++
	}
	u := usageOf(e)
	rec.total.add(u)
	rec.has |= e.Has
	cl.facts.bytes, cl.facts.time = addBytes(cl.facts.bytes, u.bytes), addBytes(cl.facts.time, u.time)
	ag.facts.bytes, ag.facts.time = addBytes(ag.facts.bytes, u.bytes), addBytes(ag.facts.time, u.time)
	cl.facts.statuses.add(status(e))
	if e.NoRequest {
		rec.empty++
	} else if e.Has&accesslog.HasPath != 0 {
		rec.path(it, u, it.isRefused())
	}
	if it.bot != 0 {
		rec.bot(it, cl, u)
	}
	rec.addLoads(it, cl, ag, at, u)
	if s := status(e); s >= 400 && s < 500 {
		saturatingIncrease(&ag.facts.errors)
	}
	if rec.opts.Trail != nil {
		rec.opts.Trail.add(it, rec.opts)
	}
	if rec.differ != nil {
		rec.compare(it, u)
	}
	rec.chart.add(at, it.enforced.action != fairshare.Allow)
	if it.enforced.rule != noRule {
		ag.facts.refused++
		rec.addEffect(cl, it, &it.enforced)
	} else if it.req.Override.Action == fairshare.Allow {
		rec.addEffect(cl, it, &finding{action: fairshare.Allow, rule: rec.operator})
	}
	if it.dryRun.rule != noRule {
		rec.addEffect(cl, it, &it.dryRun)
	}
}

func (rec *recorder) client(it *item) *ranked[client] {
	if rec.lastOne != nil && rec.lastID == it.client && rec.lastOne.hash == it.client {
		if rec.lastOne.count != math.MaxUint32 {
			rec.lastOne.count++
		}
		return rec.lastOne
	}
	cl, fresh := rec.clients.count(it.client)
	if fresh {
		cl.facts.addr = it.clientOf().As16()
	}
	rec.lastID, rec.lastOne = it.client, cl
	return cl
}

func (rec *recorder) agent(it *item) *ranked[agent] {
	ag, fresh := rec.agents.count(it.agent)
	if fresh {
		text := it.req.UserAgent
		ag.facts.browser, ag.facts.bot = census.Browser(text), it.bot
		ag.facts.text = strings.Clone(text[:min(len(text), maxAgent)])
	}
	return ag
}

// addEffect counts the effect of a rule, or of an operator's override, on a client.
func (rec *recorder) addEffect(cl *ranked[client], it *item, f *finding) {
	row := rec.row(f)
	rule := rec.ruleOf(row)
	r := &rec.rules[rule]
	switch f.action {
	case fairshare.Allow:
		r.passed++
	case fairshare.Block:
		r.blocked++
	default:
		r.refused++
	}
	if f.action != fairshare.Allow {
		r.saved.add(usageOf(it.entry))
	}
	if f.ban == fairshare.BanStarted {
		r.banned++
	}
	if r.seen.regs != nil {
		r.seen.add(cl.hash)
	}
	known := false
	for i := cl.facts.effects; i != 0; i = rec.effects[i].next {
		s := &rec.effects[i]
		if s.row == row {
			if s.count != math.MaxUint32 {
				s.count++
			}
			return
		}
		known = known || rec.ruleOf(s.row) == rule
	}
	if !known {
		r.clients++
	}
	i := rec.free
	switch {
	case i != 0:
		rec.free = rec.effects[i].next
	case len(rec.effects) < rec.bounds.effects:
		i = uint32(len(rec.effects))
		rec.effects = append(rec.effects, effect{})
	default:
		if !rec.crowded {
			rec.crowded = true
			rec.estimate()
		}
		r.seen.add(cl.hash)
		return
	}
	rec.effects[i] = effect{next: cl.facts.effects, count: 1, row: row, method: methodOf(it.req.Method),
		path: it.path}
	cl.facts.effects = i
}

// estimate begins to estimate how many clients each rule refused, since there is not
// enough memory to count them exactly.
func (rec *recorder) estimate() {
	if rec.rules[0].seen.regs != nil {
		return
	}
	for i := range rec.rules {
		rec.rules[i].seen = newSketch()
	}
	for i := range rec.clients.n {
		cl := rec.clients.at(i)
		for k := cl.facts.effects; k != 0; k = rec.effects[k].next {
			rec.rules[rec.ruleOf(rec.effects[k].row)].seen.add(cl.hash)
		}
	}
}

// keepNetwork adds the counts of a client that is replaced to its network.
func (rec *recorder) keepNetwork(cl *ranked[client]) {
	rec.estimate()
	rec.lastOne = nil
	network := networkOf(cl.facts.addr)
	n, known := rec.networks[network]
	if !known && len(rec.networks) >= rec.bounds.networks {
		// The network's requests are missing in the report.
	} else {
		n.requests += int64(cl.count - cl.over)
		refused, blocked := rec.refusalsOf(cl)
		n.refused += refused
		n.blocked += blocked
		rec.networks[network] = n
	}
	for i := cl.facts.effects; i != 0; {
		next := rec.effects[i].next
		rec.effects[i].next = rec.free
		rec.free, i = i, next
	}
}

// refusalsOf returns how often enforced rules refused and blocked a client.
func (rec *recorder) refusalsOf(cl *ranked[client]) (refused, blocked int64) {
	for i := cl.facts.effects; i != 0; i = rec.effects[i].next {
		s := &rec.effects[i]
		switch rec.actionOf(s.row) {
		case fairshare.Block:
			blocked += int64(s.count)
		case fairshare.Refuse:
			refused += int64(s.count)
		}
	}
	return refused, blocked
}

// skips counts the lines of a batch that could not be judged.
func (rec *recorder) skips(b *batch) {
	for i := range b.src.Skipped {
		s := &b.src.Skipped[i]
		rec.skipped++
		r := rec.reasons[s.Reason]
		if r == nil {
			if len(rec.reasons) >= mostReasons {
				continue
			}
			r = &reason{}
			rec.reasons[strings.Clone(s.Reason)] = r
		}
		r.lines++
		if len(r.samples) < samples {
			text := s.Sample[:min(len(s.Sample), maxText)]
			r.samples = append(r.samples, Sample{Position{b.log.path, s.Line}, strings.Clone(text)})
		}
	}
}

// networkOf returns the network of a client.
func networkOf(a [16]byte) netip.Prefix { return network.Of(netip.AddrFrom16(a)) }
