package redislimit

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"fairshare/internal/prose"
	"github.com/redis/rueidis"
)

//go:embed beat.lua
var beatScript string

const (
	beatEach   = time.Second
	touchEach  = 2 * time.Second // what requests in progress have is reported again
	mostWindow = 5 * time.Minute
	metaTag    = "{group}"
)

// A group is what a member knows of the others.
type group struct {
	mu       sync.Mutex
	members  []Member
	counts   []counted // of the last five minutes
	policy   string
	differs  time.Time // since when policies differ
	reported bool
}

type counted struct {
	at time.Time
	n  int
}

func (g *group) setPolicy(policy string) {
	g.mu.Lock()
	g.policy, g.differs, g.reported = policy, time.Time{}, false
	g.mu.Unlock()
}

func (g *group) list() []Member {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.members)
}

// most notes how many members are alive, and returns the most of five minutes.
func (g *group) most(now time.Time, n int) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.counts) > 0 && now.Sub(g.counts[0].at) > mostWindow {
		g.counts = g.counts[1:]
	}
	for len(g.counts) > 0 && g.counts[len(g.counts)-1].n <= n { // only decreasing counts matter
		g.counts = g.counts[:len(g.counts)-1]
	}
	g.counts = append(g.counts, counted{now, n})
	return g.counts[0].n
}

func (c *core) id() string { return hex.EncodeToString(c.me[:]) }

// begin connects and starts all goroutines. It waits for the first heartbeat.
func (c *core) begin(ctx context.Context) {
	c.wg.Add(1)
	go c.pulses()
	first := &master{core: c}
	first.init()
	c.routes.Store(&routes{only: first, masters: map[string]*master{"": first}})
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	client, err := c.store.Wait(ctx)
	if err == nil {
		err = c.findMasters(ctx, client)
	}
	if err == nil {
		err = c.beat(ctx, client, c.beatAs())
	}
	c.routes.Load().start()
	if err != nil {
		for _, m := range c.routes.Load().masters {
			m.away(reason(err))
		}
	} else {
		for _, m := range c.routes.Load().masters {
			m.probe(ctx)
		}
	}
	c.wg.Add(1)
	go c.beats()
}

// beats beats until the core stops.
func (c *core) beats() {
	defer c.wg.Done()
	ticker := time.NewTicker(beatEach)
	defer ticker.Stop()
	touched := time.Now()
	for {
		select {
		case <-c.ctx.Done():
			return
		case now := <-ticker.C:
			c.stats.turn(now)
			c.clock.slew(now)
			if now.Sub(touched) >= touchEach {
				c.touch()
				touched = now
			}
		}
		client, err := c.store.Client()
		if err != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(c.ctx, beatEach)
		if c.store.topology == cluster {
			if err := c.findMasters(ctx, client); err == nil {
				c.routes.Load().start()
			}
		}
		_ = c.beat(ctx, client, c.beatAs()) // a lost one is noticed by the probes
		cancel()
	}
}

// run runs a small script.
func run(ctx context.Context, client rueidis.Client, script string, keys []string, args ...string) (
	[]rueidis.RedisMessage, error) {
	command := client.B().Arbitrary("EVAL", script, strconv.Itoa(len(keys))).Keys(keys...).Args(args...).Build()
	return client.Do(ctx, command).ToArray()
}

func (c *core) beatAs() string {
	if c.opts.Look {
		return "look"
	}
	return "beat"
}

// beat tells the others that this member is alive, and learns which others are.
func (c *core) beat(ctx context.Context, client rueidis.Client, what string) error {
	secretText := c.secret.Load()
	c.group.mu.Lock()
	info := strconv.Quote(c.opts.Member) + " " + strconv.Quote(c.group.policy)
	c.group.mu.Unlock()
	before := c.opts.Now()
	reply, err := run(ctx, client, beatScript, []string{c.prefix + metaTag + "members", c.prefix + metaTag + "meta"},
		c.id(), info, string(secretText[:]), random(), what)
	if err != nil || what == "leave" {
		return err
	}
	after := c.opts.Now()
	if len(reply) < 3 || len(reply)%2 == 0 {
		return errors.New("the heartbeat has an unknown reply")
	}
	if at, ok := timeOf(reply); ok {
		c.clock.sample(c, at, before, after)
	}
	if text, err := reply[2].ToString(); err == nil && len(text) == len(secret{}) && text != string(secretText[:]) {
		s := secret([]byte(text))
		c.secret.Store(&s)
	}
	var members []Member
	for i := 3; i+1 < len(reply); i += 2 {
		id, _ := reply[i].ToString()
		text, _ := reply[i+1].ToString()
		members = append(members, parseMember(id, text))
	}
	slices.SortFunc(members, func(a, b Member) int { return strings.Compare(a.ID, b.ID) })
	c.note(members, time.Now())
	return nil
}

// parseMember parses what a member says of itself.
func parseMember(id, text string) Member {
	m := Member{ID: id}
	_, rest, _ := strings.Cut(text, " ")
	since, rest, _ := strings.Cut(rest, " ")
	if s, err := strconv.ParseInt(since, 10, 64); err == nil {
		m.Since = time.Unix(s, 0)
	}
	if quoted, err := strconv.QuotedPrefix(rest); err == nil {
		m.Name, _ = strconv.Unquote(quoted)
		m.Policy, _ = strconv.Unquote(strings.TrimSpace(rest[len(quoted):]))
	}
	return m
}

// note takes the list of members alive.
func (c *core) note(members []Member, now time.Time) {
	n := max(1, len(members))
	c.members.Store(int64(n))
	c.most.Store(int64(c.group.most(now, n)))
	g := &c.group
	g.mu.Lock()
	before := g.members
	g.members = members
	var other string
	for i := range members {
		if members[i].Policy != g.policy && g.policy != "" && members[i].Policy != "" {
			other = members[i].Name
		}
	}
	report := false
	switch {
	case other == "":
		g.differs, g.reported = time.Time{}, false
	case g.differs.IsZero():
		g.differs = now
	case now.Sub(g.differs) > 5*time.Minute && !g.reported:
		g.reported, report = true, true
	}
	g.mu.Unlock()
	if report {
		c.events.send(OtherPolicy, "member %s has had another policy for five minutes: give all members the same file",
			prose.Printable(other))
	}
	if before == nil {
		return
	}
	for kind, lists := range map[EventKind][2][]Member{MemberJoined: {before, members}, MemberLeft: {members, before}} {
		for _, m := range lists[1] {
			if !slices.ContainsFunc(lists[0], func(o Member) bool { return o.ID == m.ID }) {
				c.events.send(kind, "%s: %s; the group has %s now", kind, prose.Printable(m.Name),
					prose.Plural(n, "member"))
			}
		}
	}
}

func timeOf(reply []rueidis.RedisMessage) (at time.Time, ok bool) {
	s, err := reply[0].AsInt64()
	us, err2 := reply[1].AsInt64()
	return time.Unix(s, us*1000), err == nil && err2 == nil
}

func random() string {
	var b [8]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// touch has all that requests in progress have reported again: others ignore it
// after five seconds.
func (c *core) touch() {
	for i := range c.book {
		sh := &c.book[i]
		sh.mu.Lock()
		for j := range sh.entries {
			if e := &sh.entries[j]; e.tracked && e.own-e.provisional > 0 && e.queued == unqueued && e.batch == 0 {
				e.noted = true
				c.queue(ref(i)<<32|ref(j), e, false)
			}
		}
		sh.mu.Unlock()
	}
}

// giveBack has the store forget what requests in progress have.
func (c *core) giveBack() {
	for i := range c.book {
		sh := &c.book[i]
		sh.mu.Lock()
		for j := range sh.entries {
			if e := &sh.entries[j]; e.tracked && e.own > e.provisional {
				e.own = e.provisional
				c.queue(ref(i)<<32|ref(j), e, true)
			}
		}
		sh.mu.Unlock()
	}
}

// leave tells the others that this member ends.
func (c *core) leave(ctx context.Context) {
	if client, err := c.store.Client(); err == nil {
		ctx, cancel := context.WithTimeout(ctx, beatEach)
		defer cancel()
		_ = c.beat(ctx, client, "leave")
	}
}

// flush reports all that is pending.
func (c *core) flush(ctx context.Context) error {
	for pause := 20 * time.Microsecond; ; pause = min(2*pause, 5*time.Millisecond) {
		waits := 0
		for _, m := range c.routes.Load().masters {
			for _, k := range m.carriers {
				k.mu.Lock()
				for _, late := range [3]*delays{&k.lazy, &k.notes, &k.held} {
					for _, d := range late.waiting() {
						k.urgent = append(k.urgent, d.ref)
					}
					late.drop(len(late.waiting()))
				}
				waits += len(k.urgent) + len(k.inquiries)
				if k.busy {
					waits++
				}
				k.mu.Unlock()
				k.awake()
			}
		}
		if waits == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", errFlush, ctx.Err())
		case <-time.After(pause):
		}
	}
}
