package replay

import (
	"fmt"
	"math/big"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"fairshare"
	"fairshare/internal/accesslog"
)

// A model judges lines exactly as the definitions say: with maps that keep everything,
// regular expressions, and exact arithmetic. It shares no code with the guard and no
// limiter with the replay.
type model struct {
	*Options
	policy   *fairshare.Policy
	latest   *big.Int // Unix ns; nil in a new guard
	counts   map[string]*modelCount
	bans     map[string]*modelBan
	slots    []modelSlot
	counted  map[string]int64 // when paths of limits with Distinct were charged
	restarts int64            // new guards
}

// A modelCount has the costs of one key of one limit.
type modelCount struct {
	window    int64 // number of the present one
	prev, cur int64
	tat       *big.Rat // nil: never set
	count     int64
	last      *big.Int // nil: never set
}

type modelBan struct {
	modelBanned
	rule         int
	until, since int64
	number       int64
}

// A modelBanned is a banned client.
type modelBanned struct {
	kind   fairshare.KeyKind
	client fairshare.ClientID
}

type modelSlot struct {
	until int64
	key   string
}

// A modelVerdict is the result of one line.
type modelVerdict struct {
	enforced, dryRun modelFinding
	matched          []int
	begun            []fairshare.BanRecord // bans
}

type modelFinding struct {
	action fairshare.Action
	rule   int // noRule for none
	wait   time.Duration
	ban    fairshare.BanState
}

// newModel returns a model with these options. Its Bot and Lookups know all answers of
// Resolve from the start.
func newModel(opts *Options) *model {
	m := &model{Options: opts, policy: opts.Policy}
	m.reset()
	return m
}

func (m *model) reset() {
	m.latest, m.slots = nil, nil
	m.counts, m.bans = map[string]*modelCount{}, map[string]*modelBan{}
	m.counted = map[string]int64{}
}

// A modelRequest has the facts of one line.
type modelRequest struct {
	*accesslog.Entry
	addr     netip.Addr
	proxy    bool
	path     string
	paths    []string // the readings of servers
	query    string
	bot      fairshare.Bot
	override fairshare.Override
	names    []string                       // hostnames
	listed   func(list string) []netip.Addr // answers of a DNS list
}

// judge judges one line. observed is the result of the replay: the length of a ban has a
// random part, so the model checks its bounds and uses the observed length.
func (m *model) judge(e *accesslog.Entry, observed *modelVerdict) (modelVerdict, error) {
	at := big.NewInt(e.Time.UnixNano())
	if m.latest != nil && new(big.Int).Sub(m.latest, at).Cmp(big.NewInt(int64(time.Hour))) > 0 {
		m.reset()
		m.restarts++
	}
	if m.latest == nil || m.latest.Cmp(at) < 0 {
		m.latest = at
	}
	now := m.latest.Int64()
	held := m.slots[:0:0]
	for _, s := range m.slots {
		if s.until <= now {
			m.counts[s.key].count--
		} else {
			held = append(held, s)
		}
	}
	m.slots = held

	req := &modelRequest{Entry: e, listed: func(string) []netip.Addr { return nil }}
	req.addr, req.proxy, _ = m.Client(e.Client, e.Forwarded)
	if m.Bot != nil && e.Has&accesslog.HasUserAgent != 0 {
		req.bot = m.Bot(req.addr, e.UserAgent)
	}
	if s := req.bot.State; req.proxy && (s == fairshare.Verified || s == fairshare.Forged) {
		req.bot.State = fairshare.Pending
	}
	if m.Lookups != nil && !req.proxy {
		req.names = m.Lookups.Hostnames(req.addr)
		req.listed = func(list string) []netip.Addr { return m.Lookups.Listed(list, req.addr) }
	}
	req.path, req.query = modelTarget(e.Target)
	req.paths = modelPaths(e.Target)
	if m.Override != nil {
		req.override = m.Override(req.addr, req.bot, time.Unix(0, now))
	}

	v := modelVerdict{enforced: modelFinding{rule: noRule}, dryRun: modelFinding{rule: noRule}}
	switch req.override.Action {
	case fairshare.Allow:
		v.enforced.action = fairshare.Allow
		return v, nil
	case fairshare.Refuse, fairshare.Block:
		v.enforced = modelFinding{action: req.override.Action, rule: len(m.policy.Rules), wait: req.override.Wait,
			ban: fairshare.BanInForce}
		return v, nil
	}
	if m.banned(req, now, &v) {
		return v, nil
	}
	var gathered []int
	var blocked, dryBlocked bool
walk:
	for i := range m.policy.Rules {
		r := &m.policy.Rules[i]
		if !modelMatch(&r.Match, req, r.Action == fairshare.Allow) {
			continue
		}
		v.matched = append(v.matched, i)
		switch {
		case r.Action == fairshare.Allow:
			break walk
		case r.Action == fairshare.Block && r.DryRun:
			if v.dryRun.rule == noRule {
				v.dryRun = modelFinding{action: fairshare.Block, rule: i}
				dryBlocked = true
			}
		case r.Action == fairshare.Block:
			v.enforced = modelFinding{action: fairshare.Block, rule: i}
			blocked = true
			break walk
		default:
			if m.countsFor(i, req, now) {
				gathered = append(gathered, i)
			}
			if r.Last && !r.DryRun && modelMatch(&r.Match, req, true) {
				break walk
			}
		}
	}
	if dryBlocked && m.countsBlocked(v.dryRun.rule, req) {
		if err := m.countRefusal(req, now, &v.dryRun, &v, observed); err != nil {
			return v, err
		}
	}
	if blocked {
		if !m.countsBlocked(v.enforced.rule, req) {
			return v, nil
		}
		return v, m.countRefusal(req, now, &v.enforced, &v, observed)
	}
	v.enforced.action = fairshare.Allow
	passed := m.take(req, now, gathered, false, &v.enforced)
	tried := passed && m.take(req, now, gathered, true, &v.dryRun)
	for _, i := range gathered { // every request sets the time of the last one
		if l := m.policy.Rules[i].Limit; l.Algorithm == fairshare.Quiet {
			c := m.of(i, req)
			c.count = c.quiet(l, now)
			c.last = big.NewInt(now)
		}
	}
	if err := m.countRefusal(req, now, &v.enforced, &v, observed); err != nil {
		return v, err
	}
	if passed && v.dryRun.action == fairshare.Refuse {
		if err := m.countRefusal(req, now, &v.dryRun, &v, observed); err != nil {
			return v, err
		}
	}
	if passed {
		m.settle(req, now, gathered, tried)
	}
	return v, nil
}

// take tests the gathered limits in dry run, or the others, and charges them if none is
// over.
func (m *model) take(req *modelRequest, now int64, gathered []int, dry bool, f *modelFinding) bool {
	over, spoke := false, f.rule != noRule
	for _, i := range gathered {
		r := &m.policy.Rules[i]
		if r.DryRun != dry {
			continue
		}
		c := m.of(i, req)
		if c.passes(r.Limit, now) {
			continue
		}
		wait := c.wait(r.Limit, now)
		if !spoke && (!over || wait > f.wait) {
			*f = modelFinding{action: fairshare.Refuse, rule: i, wait: wait}
		}
		over = true
	}
	if over {
		return false
	}
	for _, i := range gathered {
		r := &m.policy.Rules[i]
		if l := r.Limit; r.DryRun == dry && (l.Resource == fairshare.Requests || l.Resource == fairshare.Concurrent) {
			m.of(i, req).charge(l, now, 1)
		}
	}
	return true
}

// settle charges the costs that are known after the answer, at the line's time.
func (m *model) settle(req *modelRequest, now int64, gathered []int, tried bool) {
	for _, i := range gathered {
		r := &m.policy.Rules[i]
		if r.DryRun && !tried {
			continue
		}
		c, l := m.of(i, req), r.Limit
		switch l.Resource {
		case fairshare.Requests:
			if r.Refund.Has(modelStatus(req.Entry)) {
				c.refund(l, now)
			} else if l.Distinct != fairshare.EveryRequest {
				m.counted[m.pageKey(i, req)] = now
			}
		case fairshare.Concurrent:
			if req.Duration > 0 {
				m.slots = append(m.slots, modelSlot{now + int64(req.Duration), m.key(i, req)})
			} else {
				c.count--
			}
		case fairshare.Bytes:
			c.settle(l, now, req.Bytes)
		case fairshare.CPU:
			c.settle(l, now, req.CPU.Microseconds())
		case fairshare.Time:
			took := req.Duration
			if req.Has&accesslog.HasUpstream != 0 {
				took = req.Upstream
			}
			c.settle(l, now, took.Microseconds())
		case fairshare.Cost: // no log has it
		case fairshare.Errors:
			if modelStatuses(l).Has(modelStatus(req.Entry)) {
				c.settle(l, now, 1)
			}
		}
	}
}

func modelStatuses(l *fairshare.Limit) *fairshare.StatusSet {
	set := l.Statuses
	if set.Empty() {
		set.Add(400, 499)
	}
	return &set
}

// banned reports whether a ban in force refuses the request.
func (m *model) banned(req *modelRequest, now int64, v *modelVerdict) bool {
	if req.proxy {
		return false
	}
	if m.exempt(req) {
		return false
	}
	for i := range m.policy.Rules {
		r := &m.policy.Rules[i]
		if r.Ban == nil || !r.Ban.All && !modelMatch(&r.Match, req, false) ||
			r.Ban.Unless != nil && modelMatch(r.Ban.Unless, req, true) {
			continue
		}
		until := now
		for _, key := range []string{m.key(i, req), m.crowdKey(i, req)} {
			if b := m.bans[key]; b != nil {
				until = max(until, b.until)
			}
		}
		if until == now {
			continue
		}
		f := modelFinding{action: fairshare.Refuse, rule: i, wait: time.Duration(until - now),
			ban: fairshare.BanInForce}
		most := &v.enforced
		if r.DryRun {
			most = &v.dryRun
		}
		if f.wait > most.wait {
			*most = f
		}
	}
	return v.enforced.rule != noRule
}

// exempt reports whether a rule allows the client by its identity alone.
func (m *model) exempt(req *modelRequest) bool {
	return slices.ContainsFunc(m.policy.Rules, func(r fairshare.Rule) bool {
		return r.Action == fairshare.Allow && modelOnlyIdentity(&r.Match) && modelMatch(&r.Match, req, true)
	})
}

// countsBlocked reports whether a blocked request counts towards the ban of its rule.
func (m *model) countsBlocked(rule int, req *modelRequest) bool {
	ban := m.policy.Rules[rule].Ban
	if ban == nil || m.exempt(req) || ban.Unless != nil && modelMatch(ban.Unless, req, true) {
		return false
	}
	from := modelRegexp(`^[^:]*://([^/]*)`).FindStringSubmatch(req.Referer)
	return req.Host == "" || from == nil || modelHost(from[1]) == modelHost(req.Host)
}

// countsFor reports whether the limit of a rule counts the request.
func (m *model) countsFor(rule int, req *modelRequest, now int64) bool {
	const unit = 1 << 26 // of the times that the guard remembers
	l := m.policy.Rules[rule].Limit
	if l.Distinct == fairshare.EveryRequest || req.path == "" {
		return true
	}
	at, found := m.counted[m.pageKey(rule, req)]
	return !found || (at+int64(l.Window))/unit <= now/unit
}

// pageKey is the key of a rule with what its limit distinguishes.
func (m *model) pageKey(rule int, req *modelRequest) string {
	path := req.path
	if len(req.paths) > 1 {
		path, _, _ = strings.Cut(modelAuthority.ReplaceAllString(req.Target, ""), "?")
		path = "as sent: " + path
	}
	key := m.key(rule, req) + " page " + modelHost(req.Host) + modelTrim(path)
	if m.policy.Rules[rule].Limit.Distinct == fairshare.DistinctQueries {
		key += "?" + modelQuery(req.query)
	}
	return key
}

var (
	modelOddQuery = regexp.MustCompile(`[;#\x00-\x20\x7f]|%([^0-9A-Fa-f]|.[^0-9A-Fa-f]|.?$)|(?i)%(0|1|7f|2[356]|3b)`)
	modelSymbols  = regexp.MustCompile(`[^0-9a-z]`)
)

// modelQuery returns the same text for queries that count as one.
func modelQuery(query string) string {
	if modelOddQuery.MatchString(query) {
		return query
	}
	var pairs []string
	names := map[string]bool{}
	for pair := range strings.SplitSeq(query, "&") {
		if pair == "" {
			continue
		}
		name, _, _ := strings.Cut(pair, "=")
		name = modelBrackets.ReplaceAllString(modelDecode(name), "$1")
		name = modelSymbols.ReplaceAllString(strings.ToLower(name), "")
		if names[name] {
			return query
		}
		names[name] = true
		pairs = append(pairs, modelEscape.ReplaceAllStringFunc(pair, func(esc string) string {
			if s := modelDecode(esc); s != "+" && s != "=" && s != " " {
				return s
			}
			return strings.ToUpper(esc)
		}))
	}
	slices.Sort(pairs)
	return "sorted " + strings.Join(pairs, "&")
}

// banBy returns what the ban of a rule is by.
func (m *model) banBy(rule int) []fairshare.KeyPart {
	r := &m.policy.Rules[rule]
	if r.Limit == nil && r.Ban.By != 0 {
		return []fairshare.KeyPart{{Kind: r.Ban.By}}
	}
	if r.Limit == nil {
		return nil
	}
	return r.Limit.By
}

// countRefusal counts a refusal towards the ban of its rule.
func (m *model) countRefusal(req *modelRequest, now int64, f *modelFinding, v, observed *modelVerdict) error {
	refused := f.action == fairshare.Refuse || f.action == fairshare.Block
	if !refused || f.ban != fairshare.NotBanned || m.policy.Rules[f.rule].Ban == nil || req.proxy {
		return nil
	}
	t, key := m.policy.Rules[f.rule].Ban, m.key(f.rule, req)
	refusals := &fairshare.Limit{Resource: fairshare.Refusals, N: t.After, Window: orIf0(t.Within, 10*time.Minute)}
	c := m.count("refusals " + key)
	c.settle(refusals, now, 1)
	wait, err := m.ban(f.rule, key, m.banOf(f.rule, req), now, !c.passes(refusals, now), v, observed)
	if wait == 0 || err != nil {
		return err
	}
	if network := m.crowdKey(f.rule, req); network != "" {
		prefix, _ := req.addr.Prefix(48)
		together := 0 // clients of the /48 that are banned by the rule
		for _, b := range m.bans {
			if b.rule == f.rule && b.kind == fairshare.ByAddr && b.until > now && b.client.Prefix.Addr().Is6() &&
				prefix.Contains(b.client.Prefix.Addr()) {
				together++
			}
		}
		if together >= 128 {
			longer, err := m.ban(f.rule, network, modelBanned{fairshare.ByNetwork,
				fairshare.ClientID{Prefix: prefix}}, now, true, v, observed)
			if err != nil {
				return err
			}
			wait = max(wait, longer)
		}
	}
	f.ban, f.wait = fairshare.BanStarted, wait
	return nil
}

// ban counts a refusal. If there are enough, it bans and returns the length.
func (m *model) ban(rule int, key string, banned modelBanned, now int64, reached bool, v,
	observed *modelVerdict) (time.Duration, error) {
	r := &m.policy.Rules[rule]
	t, b := r.Ban, m.bans[key]
	if b != nil && b.until > now {
		return 0, nil // it was exempt; requests do not prolong a ban
	}
	if b == nil {
		if !reached {
			return 0, nil
		}
		b = &modelBan{modelBanned: banned, rule: rule, since: now}
		m.bans[key] = b
	}
	b.number = max(0, b.number-(now-b.since)/int64(orIf0(t.Forgive, 24*time.Hour)))
	b.since = max(b.since, now)
	if !reached {
		return 0, nil
	}
	most := float64(max(orIf0(t.Max, max(24*time.Hour, t.For)), t.For))
	length := float64(t.For)
	for range b.number {
		length = min(length*max(t.Growth, 1), most)
	}
	b.number++
	if len(v.begun) == len(observed.begun) {
		return 0, fmt.Errorf("no ban of %v began, want number %d", banned.client, b.number)
	}
	got := observed.begun[len(v.begun)]
	v.begun = append(v.begun, got)
	want := fairshare.BanRecord{
		Client: banned.client, Kind: banned.kind, Rule: r.Name, Number: int(b.number), DryRun: r.DryRun,
		Began: time.Unix(0, now), Until: got.Until, Since: got.Until,
	}
	took := got.Until.Sub(got.Began)
	if got != want || float64(took) < length*0.999999 || float64(took) > length*1.100001 {
		return 0, fmt.Errorf("ban %+v began, want %+v and %v or up to a tenth more", got, want, time.Duration(length))
	}
	b.until = now + int64(took)
	b.since = b.until
	return took, nil
}

// banOf returns the client that a ban of a rule is about.
func (m *model) banOf(rule int, req *modelRequest) modelBanned {
	kind := fairshare.ByAddr
	if by := m.banBy(rule); len(by) > 0 {
		kind = by[0].Kind
	}
	bits4, bits6 := orElse(m.policy.IPv4Prefix, 32), orElse(m.policy.IPv6Prefix, 64)
	switch {
	case kind == fairshare.ByBot && req.bot.State == fairshare.Verified:
		return modelBanned{kind, fairshare.ClientID{Bot: req.bot.Name}}
	case kind == fairshare.ByBot:
		kind = fairshare.ByAddr
	case kind == fairshare.ByNetwork:
		bits4, bits6 = 24, 48
	}
	if req.addr.Is4() {
		bits6 = bits4
	}
	prefix, _ := req.addr.Prefix(bits6)
	return modelBanned{kind, fairshare.ClientID{Prefix: prefix}}
}

// crowdKey is the key of a rule's ban of an IPv6 /48 of which it has banned many clients;
// "" if the rule does not do this.
func (m *model) crowdKey(rule int, req *modelRequest) string {
	if m.banOf(rule, req).kind != fairshare.ByAddr || !req.addr.Is6() || orElse(m.policy.IPv6Prefix, 64) <= 48 {
		return ""
	}
	prefix, _ := req.addr.Prefix(48)
	return fmt.Sprintf("%d crowd of %v", rule, prefix)
}

func orIf0(d, otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}
	return d
}

func (m *model) of(rule int, req *modelRequest) *modelCount { return m.count(m.key(rule, req)) }

func (m *model) count(key string) *modelCount {
	if m.counts[key] == nil {
		m.counts[key] = &modelCount{}
	}
	return m.counts[key]
}

// key is the key under which a rule counts a request.
func (m *model) key(rule int, req *modelRequest) string {
	key := fmt.Sprintf("%d", rule)
	by := m.banBy(rule)
	if len(by) == 0 {
		by = []fairshare.KeyPart{{Kind: fairshare.ByAddr}}
	}
	for _, part := range by {
		text := ""
		switch part.Kind {
		case fairshare.ByEveryone:
			key += " everyone"
			continue
		case fairshare.ByUserAgent:
			text = req.UserAgent
		case fairshare.ByBot:
			if req.bot.State == fairshare.Verified {
				text = req.bot.Name
			}
		case fairshare.ByHost:
			text = modelHost(req.Host)
		case fairshare.ByPath:
			if text = req.path; len(req.paths) > 1 {
				text = modelKey(req.Target)
			}
			text = modelTrim(text)
		case fairshare.ByCookie:
			values := map[string]bool{}
			for _, c := range modelCookies(req) {
				if c[0] == part.Name {
					text = modelDecode(strings.ReplaceAll(c[1], "+", " "))
					values[text] = true
				}
			}
			if len(values) > 1 {
				text = ""
			}
		case fairshare.ByHeader:
			text = modelHeader(req, part.Name)
		}
		if text != "" {
			key += fmt.Sprintf(" %v=%q", part, text)
			continue
		}
		bits4, bits6 := orElse(m.policy.IPv4Prefix, 32), orElse(m.policy.IPv6Prefix, 64)
		name := "addr"
		if part.Kind == fairshare.ByNetwork {
			bits4, bits6, name = 24, 48, "network"
		}
		if req.addr.Is4() {
			bits6 = bits4
		}
		prefix, _ := req.addr.Prefix(bits6)
		key += fmt.Sprintf(" %s=%v", name, prefix)
	}
	return key
}

func orElse(n, otherwise int) int {
	if n == 0 {
		return otherwise
	}
	return n
}

// Counters.

// at returns the costs of the previous and the present window, and the time since the
// present one began.
func (c *modelCount) at(l *fairshare.Limit, now int64) (prev, cur, e *big.Int) {
	w := int64(l.Window)
	window := now / w
	switch window - c.window {
	case 0:
	case 1:
		c.prev, c.cur = c.cur, 0
	default:
		c.prev, c.cur = 0, 0
	}
	c.window = window
	return big.NewInt(c.prev), big.NewInt(c.cur), big.NewInt(now % w)
}

// passes reports whether a request passes now.
func (c *modelCount) passes(l *fairshare.Limit, now int64) bool {
	settled := l.Resource != fairshare.Requests
	switch {
	case l.Resource == fairshare.Concurrent:
		return c.count+1 <= l.N
	case l.Algorithm == fairshare.Quiet:
		return c.quiet(l, now)+1 <= l.N
	case l.Algorithm == fairshare.GCRA:
		burst := new(big.Rat).Mul(modelT(l), ratOf(modelBurst(l)))
		tat := c.reached(now)
		if settled { // max(now, tat) − now < burst·T
			return new(big.Rat).Sub(tat, ratOf(now)).Cmp(burst) < 0
		}
		tat.Add(tat, modelT(l)) // tat' − now ≤ burst·T
		return tat.Sub(tat, ratOf(now)).Cmp(burst) <= 0
	}
	prev, cur, e := c.at(l, now)
	return modelFits(l, prev, cur, e, settled)
}

// modelFits is prev·(W−e) + (cur+c)·W ≤ N·W, or with < and without c.
func modelFits(l *fairshare.Limit, prev, cur, e *big.Int, settled bool) bool {
	w := big.NewInt(int64(l.Window))
	sum := new(big.Int).Mul(prev, new(big.Int).Sub(w, e))
	sum.Add(sum, new(big.Int).Mul(cur, w))
	most := new(big.Int).Mul(big.NewInt(l.N), w)
	if settled {
		return sum.Cmp(most) < 0
	}
	return sum.Add(sum, w).Cmp(most) <= 0
}

// wait is the time to the first moment at which the same request passes.
func (c *modelCount) wait(l *fairshare.Limit, now int64) time.Duration {
	w := int64(l.Window)
	switch {
	case l.Resource == fairshare.Concurrent:
		return 0
	case l.Algorithm == fairshare.Quiet || l.N == 0:
		return l.Window
	case l.Algorithm == fairshare.GCRA:
		free := c.reached(now)
		free.Sub(free, new(big.Rat).Mul(modelT(l), ratOf(modelBurst(l))))
		settled := l.Resource != fairshare.Requests
		if !settled {
			free.Add(free, modelT(l)) // it passes at this time
		}
		free.Sub(free, ratOf(now))
		whole := new(big.Int).Div(free.Num(), free.Denom())
		if settled || !free.IsInt() { // it passes only after this time
			whole.Add(whole, big.NewInt(1))
		}
		return time.Duration(whole.Int64())
	}
	prev, cur, e := c.at(l, now)
	settled := l.Resource != fairshare.Requests
	begin := now - now%w
	for _, window := range []struct{ prev, cur, from, start *big.Int }{
		{prev, cur, e, big.NewInt(begin)},
		{cur, new(big.Int), new(big.Int), big.NewInt(begin + w)},
		{new(big.Int), new(big.Int), new(big.Int), big.NewInt(begin + 2*w)},
	} {
		// The first e of this window at which it fits, by binary search: the older the
		// window, the less it counts.
		low, high := window.from.Int64(), w-1
		if !modelFits(l, window.prev, window.cur, big.NewInt(high), settled) {
			continue
		}
		for low < high {
			mid := low + (high-low)/2
			if modelFits(l, window.prev, window.cur, big.NewInt(mid), settled) {
				high = mid
			} else {
				low = mid + 1
			}
		}
		return time.Duration(window.start.Int64() + low - now)
	}
	panic("a request does not pass after two windows")
}

// quiet returns the count since the last pause.
func (c *modelCount) quiet(l *fairshare.Limit, now int64) int64 {
	if c.last == nil || now-c.last.Int64() >= int64(l.Window) {
		c.count = 0
	}
	return c.count
}

// reached is max(now, tat).
func (c *modelCount) reached(now int64) *big.Rat {
	if c.tat == nil || c.tat.Cmp(ratOf(now)) < 0 {
		return ratOf(now)
	}
	return new(big.Rat).Set(c.tat)
}

func (c *modelCount) charge(l *fairshare.Limit, now, cost int64) {
	switch {
	case l.Resource == fairshare.Concurrent:
		c.count++
	case l.Algorithm == fairshare.Quiet:
		c.count = c.quiet(l, now) + 1
		c.last = big.NewInt(now)
	case l.Algorithm == fairshare.GCRA:
		c.tat = c.reached(now)
		c.tat.Add(c.tat, new(big.Rat).Mul(modelT(l), ratOf(cost)))
	default:
		c.at(l, now)
		c.cur += cost
	}
}

// settle charges after the answer: GCRA at most to now + 2·burst·T.
func (c *modelCount) settle(l *fairshare.Limit, now, cost int64) {
	if cost == 0 {
		return
	}
	c.charge(l, now, cost)
	if l.Algorithm == fairshare.GCRA {
		most := new(big.Rat).Mul(modelT(l), ratOf(2*modelBurst(l)))
		if most.Add(most, ratOf(now)); c.tat.Cmp(most) > 0 {
			c.tat = most
		}
	}
}

// refund gives back the last charge.
func (c *modelCount) refund(l *fairshare.Limit, now int64) {
	switch l.Algorithm {
	case fairshare.Quiet:
		c.count = max(0, c.count-1)
	case fairshare.GCRA:
		c.tat.Sub(c.tat, modelT(l))
		c.tat = c.reached(now)
	default:
		c.cur = max(0, c.cur-1)
	}
}

func modelT(l *fairshare.Limit) *big.Rat { return big.NewRat(int64(l.Window), l.N) }

func modelBurst(l *fairshare.Limit) int64 {
	if l.Burst == 0 {
		return l.N
	}
	return l.Burst
}

func ratOf(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

// Matching.

// modelMatch reports whether a match holds. A permission is favorable.
func modelMatch(m *fairshare.Match, req *modelRequest, favorable bool) bool {
	any := func(texts []string, fits func(string) bool) bool {
		return texts == nil || slices.ContainsFunc(texts, fits)
	}
	contains := func(value string) func(string) bool {
		return func(text string) bool {
			if re, ok := strings.CutPrefix(text, "re:"); ok {
				return modelRegexp(re).MatchString(value)
			}
			if text == "" {
				return value == ""
			}
			return strings.Contains(strings.ToLower(value), strings.ToLower(text))
		}
	}
	whole := func(value, flags string) func(string) bool {
		return func(text string) bool {
			if re, ok := strings.CutPrefix(text, "re:"); ok {
				return modelRegexp(re).MatchString(value)
			}
			return modelRegexp("(?s" + flags + ")^" + strings.ReplaceAll(regexp.QuoteMeta(text), `\*`, ".*") + "$").
				MatchString(value)
		}
	}
	cookies := modelCookies(req)
	if m.Addr != nil && !m.Addr.Contains(req.addr) ||
		!any(m.Bot, func(s string) bool { return modelBot(s, &req.bot, favorable) }) ||
		m.Label != nil && !slices.ContainsFunc(req.override.Labels, func(label string) bool {
			return any(m.Label, func(s string) bool {
				if re, ok := strings.CutPrefix(s, "re:"); ok {
					return modelRegexp(re).MatchString(label)
				}
				return strings.EqualFold(s, label)
			})
		}) ||
		m.Hostname != nil && !slices.ContainsFunc(req.names,
			func(name string) bool { return any(m.Hostname, whole(name, "i")) }) ||
		m.Listed != nil && !slices.ContainsFunc(m.Listed, func(l fairshare.Listing) bool {
			counts := func(answer netip.Addr) bool { return modelListed(&l, answer) }
			return slices.ContainsFunc(req.listed(l.List), counts)
		}) ||
		!modelAny(favorable, req.paths, func(path string) bool {
			return any(m.Path, whole(path, "")) || !favorable && any(m.Path, whole(modelTrim(path), ""))
		}) ||
		!any(m.Host, whole(modelHost(req.Host), "i")) ||
		!any(m.Method, func(s string) bool { return strings.EqualFold(s, req.Method) }) ||
		!any(m.UserAgent, contains(req.UserAgent)) ||
		!any(m.Cookie, func(s string) bool {
			switch s {
			case "none":
				return len(cookies) == 0
			case "any":
				return len(cookies) > 0
			}
			return slices.ContainsFunc(cookies, func(c [2]string) bool { return whole(c[0], "")(s) })
		}) {
		return false
	}
	for name, texts := range m.Header {
		if !any(texts, contains(modelHeader(req, name))) {
			return false
		}
	}
	for name, texts := range m.Query {
		beforeHash, _, _ := strings.Cut(req.query, "#")
		readings := [][]string{strings.Split(req.query, "&"), modelSeparator.Split(req.query, -1),
			strings.Split(beforeHash, "&"), modelSeparator.Split(beforeHash, -1)}
		if !modelAny(favorable, readings, func(pairs []string) bool {
			plain, all, one := false, true, false
			for _, pair := range pairs {
				key, value, _ := strings.Cut(pair, "=")
				key = modelDecode(strings.ReplaceAll(key, "+", " "))
				if pair == "" || modelSpelling(key) != modelSpelling(name) {
					continue
				}
				once := modelDecode(strings.ReplaceAll(value, "+", " "))
				values := []string{once, modelDecode(value), modelDecode(strings.ReplaceAll(once, "+", " "))}
				if !strings.Contains(once, "%") {
					values = values[:2]
				}
				holds := modelAny(favorable, values, func(value string) bool {
					return any(texts, func(s string) bool { return s == "*" || contains(value)(s) })
				})
				plain, all, one = plain || key == name, all && holds, one || holds
			}
			return favorable && plain && all || !favorable && one
		}) {
			return false
		}
	}
	return !slices.ContainsFunc(m.Not, func(not fairshare.Match) bool { return modelMatch(&not, req, !favorable) })
}

// modelBot reports whether one value of a match fits a bot.
func modelBot(text string, b *fairshare.Bot, favorable bool) bool {
	verified := b.State == fairshare.Verified
	if b.Name == "" || favorable && (!verified || b.UserTriggered) {
		return false
	}
	switch text {
	case "known":
		return true
	case "verified":
		return verified
	case "forged":
		return b.State == fairshare.Forged
	}
	return slices.ContainsFunc(append([]string{b.Name}, b.Categories...), func(name string) bool {
		if re, ok := strings.CutPrefix(text, "re:"); ok {
			return modelRegexp(re).MatchString(name)
		}
		return strings.EqualFold(name, text)
	})
}

// modelListed reports whether an answer of a DNS list is a match.
func modelListed(l *fairshare.Listing, answer netip.Addr) bool {
	a := answer.As4()
	if l.HTTPBL {
		days, threat, kind := a[1], a[2], a[3]
		return kind != 0 && (l.Types == 0 || l.Types&kind != 0) && threat >= l.Threat && (l.Days == 0 ||
			days <= l.Days)
	}
	if a[1] == 255 && a[2] == 255 {
		return false // the list refuses to answer
	}
	return l.Codes == nil || slices.ContainsFunc(l.Codes, func(p netip.Prefix) bool { return p.Contains(answer) })
}

var modelRegexps sync.Map // of compiled ones, by text

func modelRegexp(expr string) *regexp.Regexp {
	if re, ok := modelRegexps.Load(expr); ok {
		return re.(*regexp.Regexp)
	}
	re := regexp.MustCompile(expr)
	modelRegexps.Store(expr, re)
	return re
}

// modelOnlyIdentity reports whether a match tests only the identity of clients.
func modelOnlyIdentity(m *fairshare.Match) bool {
	return (m.Addr != nil || m.Bot != nil || m.Hostname != nil || m.Label != nil) && m.Path == nil && m.Host == nil &&
		m.Method == nil && m.UserAgent == nil &&
		m.Cookie == nil && m.Header == nil && m.Query == nil && m.Listed == nil &&
		!slices.ContainsFunc(m.Not, func(not fairshare.Match) bool { return !modelOnlyIdentity(&not) })
}

func modelHost(host string) string {
	host = modelRegexp(`^(\[[^\]]*\]|[^:]*):\d*$`).ReplaceAllString(host, "$1")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

func modelHeader(req *modelRequest, name string) string {
	switch strings.ToLower(name) {
	case "cookie":
		return req.Cookie
	case "referer":
		return req.Referer
	case "user-agent":
		return req.UserAgent
	case "x-forwarded-for":
		return req.Forwarded
	}
	return ""
}

// modelCookies returns names and values; the test's cookies are all valid.
func modelCookies(req *modelRequest) (cookies [][2]string) {
	for pair := range strings.SplitSeq(req.Cookie, ";") {
		if name, value, ok := strings.Cut(strings.TrimSpace(pair), "="); ok && name != "" {
			cookies = append(cookies, [2]string{name, value})
		}
	}
	return cookies
}

var (
	modelAuthority = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://[^/]*`)
	modelHostPort  = regexp.MustCompile(`^[^/\\;%]+:[0-9]+$`)
	modelEscape    = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)
	modelSlashes   = regexp.MustCompile(`/+`)
	modelSeparator = regexp.MustCompile(`[&;]`)
	modelBrackets  = regexp.MustCompile(`(?s)^(.[^\[]*)\[.*`)
)

// modelSpelling returns the name of a parameter in PHP.
func modelSpelling(name string) string {
	return strings.NewReplacer(".", "_", " ", "_", "[", "_").
		Replace(modelBrackets.ReplaceAllString(strings.TrimLeft(name, " "), "$1"))
}

// modelAny reports whether a test holds for any of the readings; for a
// permission, for all of them.
func modelAny[T any](permission bool, readings []T, holds func(T) bool) bool {
	if permission {
		return !slices.ContainsFunc(readings, func(reading T) bool { return !holds(reading) })
	}
	return slices.ContainsFunc(readings, holds)
}

func modelDecode(s string) string {
	return modelEscape.ReplaceAllStringFunc(s, func(esc string) string {
		var c byte
		fmt.Sscanf(esc, "%%%02x", &c)
		return string([]byte{c})
	})
}

// modelTarget splits a request target.
func modelTarget(target string) (path, query string) {
	path, _, _ = strings.Cut(modelAuthority.ReplaceAllString(target, ""), "?")
	_, query, _ = strings.Cut(target, "?")
	if path == "" || path == "*" || path == target && modelHostPort.MatchString(path) {
		return path, query
	}
	path = modelSlashes.ReplaceAllString(modelDecode(path), "/")
	path, _ = modelDots(path)
	return path, query
}

// modelPaths returns the readings of the target's path. The guard's package has a model
// of these.
func modelPaths(target string) []string {
	var req fairshare.Request
	req.SetTarget(target)
	paths, complete := req.Readings()
	if !complete {
		panic(fmt.Sprintf("%q has too many readings for this test", target))
	}
	return paths
}

// modelTrim removes a slash at the end, unless it is the whole path.
func modelTrim(path string) string {
	return regexp.MustCompile(`(.)/$`).ReplaceAllString(path, "$1")
}

var (
	modelOther    = regexp.MustCompile(`^//+[^/]*`)
	modelParams   = regexp.MustCompile(`;[^/]*`)
	modelPathInfo = regexp.MustCompile(`(\.(?:php|pl|cgi))/.*`)
)

// modelKey returns the reading that is the key of limits by path, for the paths of this
// test.
func modelKey(target string) string {
	path, _, _ := strings.Cut(modelAuthority.ReplaceAllString(target, ""), "?")
	path = modelParams.ReplaceAllString(modelDecode(path), "")
	for strings.HasPrefix(path, "//") {
		if path = modelOther.ReplaceAllString(path, ""); path == "" {
			path = "/"
		}
	}
	path = modelPathInfo.ReplaceAllString(path, "$1")
	path, _ = modelDots(modelSlashes.ReplaceAllString(path, "/"))
	return path
}

// modelDots is remove_dot_segments of RFC 3986 §5.2.4 for paths that begin
// with a slash, by segments.
func modelDots(path string) (string, bool) {
	segments := strings.Split(path, "/")
	var out []string
	dots := false
	for i, s := range segments {
		last := i == len(segments)-1
		switch s {
		case ".", "..":
			dots = true
			if s == ".." && len(out) > 1 {
				out = out[:len(out)-1]
			}
			if last {
				out = append(out, "")
			}
		default:
			out = append(out, s)
		}
	}
	return strings.Join(out, "/"), dots
}

// modelStatus is the status that counts for a client: none if it sent no request.
func modelStatus(e *accesslog.Entry) int {
	if e.NoRequest {
		return 0
	}
	return e.Status
}
