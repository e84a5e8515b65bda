package examples

import (
	"bytes"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fairshare"
	"fairshare/bots"
	"fairshare/httpguard"
	"fairshare/internal/registrar"
	"fairshare/memlimit"
	"fairshare/policyfile"
	"fairshare/sqlregistry"
)

// operatorName is who gives commands in a story.
const operatorName = "operator"

// restart is the command that ends the process and starts it anew.
const restart = "restarts fairshare"

// A memory is what outlives a process of serve: the registry, and the counters
// that the last one wrote. Tests of cmd/fairshare show the same of real ones.
type memory struct {
	t        *testing.T
	registry *sqlregistry.Registry
	key      []byte // of references
	words    atomic.Pointer[registrar.Overrides]
	counters bytes.Buffer
	ids      map[string]string // the reference of each client and rule
}

func remember(t *testing.T) *memory {
	t.Helper()
	m := &memory{t: t, ids: map[string]string{}}
	var err error
	m.registry, err = sqlregistry.Open(t.Context(), filepath.Join(t.TempDir(), "registry.db"), sqlregistry.Options{})
	m.must(err)
	t.Cleanup(func() { m.registry.Close() })
	m.key, err = m.registry.ReferenceKey(t.Context())
	m.must(err)
	m.hear()
	return m
}

func (m *memory) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// hear reads what operators have said.
func (m *memory) hear() {
	m.t.Helper()
	said, labels, err := m.registry.Overrides(m.t.Context())
	m.must(err)
	m.words.Store(registrar.NewOverrides(said, labels))
}

func (m *memory) word(addr netip.Addr, bot fairshare.Bot, now time.Time) fairshare.Override {
	return m.words.Load().Override(addr, bot, now)
}

// save writes what a process leaves to the next one. Bans are in the registry
// since they began.
func (m *memory) save(limiter *memlimit.Limiter, now time.Time) {
	m.t.Helper()
	m.counters.Reset()
	m.must(limiter.Save(&m.counters, now))
}

// recall is how a process begins.
func (m *memory) recall(limiter *memlimit.Limiter, bans *fairshare.Bans, now time.Time) {
	m.t.Helper()
	if m.counters.Len() > 0 {
		loaded, err := limiter.Load(&m.counters, now)
		m.must(err)
		if len(loaded.Fresh) > 0 {
			m.t.Errorf("limits begin anew after a restart: %v", loaded.Fresh)
		}
	}
	for ban, err := range m.registry.Bans(m.t.Context(), now, true) {
		m.must(err)
		bans.Restore(ban)
	}
	bans.Observe(func(ban fairshare.Banned) {
		if err := m.registry.Write(m.t.Context(), sqlregistry.Batch{Bans: []fairshare.Banned{ban}}); err != nil {
			m.t.Error(err)
		}
	})
	m.hear()
}

// refused looks whether a client's reference is the one that it had.
func (m *memory) refused(r *httpguard.Report) {
	who := r.Request.Addr.String() + " " + r.Finding.Rule.Name
	if was := m.ids[who]; was != "" && was != r.ID {
		m.t.Errorf("%s: reference %s, it was %s", who, r.ID, was)
	}
	m.ids[who] = r.ID
}

// carryOut does what the command of an operator does, and has the guard follow
// as a running serve does.
func (m *memory) carryOut(command string, p *process, policy *fairshare.Policy, now time.Time) {
	m.t.Helper()
	ctx := m.t.Context()
	args, err := parseCommand(command, policy)
	m.must(err)
	said := fairshare.OverrideRecord{Client: args.client, Since: now}
	if args.period > 0 {
		said.Until = now.Add(args.period)
	}
	did := true
	switch args.verb {
	case "ban":
		if said.Action = fairshare.Block; args.period > 0 {
			said.Action = fairshare.Refuse
		}
		m.must(m.registry.SetOverride(ctx, said))
	case "allow":
		said.Action = fairshare.Allow
		m.must(m.registry.SetOverride(ctx, said))
	case "unban":
		was, err := m.registry.RemoveOverride(ctx, args.client)
		m.must(err)
		if was != nil && was.Action == fairshare.Allow {
			m.t.Fatalf("story: %q: it is allowed", command)
		}
		lifted, err := m.registry.Lift(ctx, args.client, now)
		m.must(err)
		_, err = p.guard.Lift(ctx, args.client, now, now)
		m.must(err)
		did = was != nil || len(lifted) > 0
	case "unallow":
		was, err := m.registry.RemoveOverride(ctx, args.client)
		m.must(err)
		did = was != nil && was.Action == fairshare.Allow
	case "label":
		m.must(m.registry.Label(ctx, fairshare.Label{Client: args.client, Name: args.label}))
	case "unlabel":
		removed, err := m.registry.Unlabel(ctx, args.client, args.label)
		m.must(err)
		did = len(removed) > 0
	}
	if !did {
		m.t.Fatalf("story: %q: there is nothing to take back", command)
	}
	m.hear()
}

// A command is one of an operator's, as docs/registry.md has them.
type command struct {
	verb   string
	client fairshare.ClientID
	period time.Duration // 0: for ever
	label  string
}

// parseCommand reads "fairshare ban 203.0.113.9 --for 2h".
func parseCommand(text string, policy *fairshare.Policy) (c command, err error) {
	words := strings.Fields(text)
	if len(words) < 3 || words[0] != "fairshare" {
		return c, fmt.Errorf("no command of an operator: %q", text)
	}
	c.verb = words[1]
	if c.client, err = fairshare.ParseClientID(words[2]); err != nil {
		return c, err
	}
	rest := words[3:]
	switch {
	case c.client.Bot != "" && bots.BuiltIn().Bot(c.client.Bot) == nil:
		return c, fmt.Errorf("no bot is called %q", c.client.Bot)
	case c.client.Prefix.IsValid() && !strings.Contains(words[2], "/"):
		c.client = fairshare.PrefixID(policy.Client(c.client.Prefix.Addr()))
	}
	switch c.verb {
	case "ban", "allow":
		if len(rest) == 2 && rest[0] == "--for" {
			c.period, err = policyfile.ParseDuration(rest[1])
			rest = nil
		}
	case "label", "unlabel":
		if len(rest) == 1 {
			c.label, rest = rest[0], nil
		} else if c.verb == "label" {
			err = fmt.Errorf("which label? %q", text)
		}
	case "unban", "unallow":
	default:
		err = fmt.Errorf("no command of an operator: %q", text)
	}
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%q is not understood: %q", rest, text)
	}
	return c, err
}
