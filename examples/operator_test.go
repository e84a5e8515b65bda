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
	"fairshare/membans"
	"fairshare/memlimit"
	"fairshare/policyfile"
	"fairshare/registry"
	"fairshare/sqlregistry"
)

// operatorName is the name of the operator in a story.
const operatorName = "operator"

// restart is the command that ends the process and starts it again.
const restart = "restarts fairshare"

// A state is what survives a restart of serve: the registry, and the snapshot of the
// counters. Tests of cmd/fairshare check the same with real processes.
type state struct {
	t         *testing.T
	registry  *sqlregistry.Registry
	key       []byte // of references
	overrides atomic.Pointer[registrar.Overrides]
	counters  bytes.Buffer
	ids       map[string]string // the reference of each client and rule
}

func newState(t *testing.T) *state {
	t.Helper()
	m := &state{t: t, ids: map[string]string{}}
	var err error
	m.registry, err = sqlregistry.Open(t.Context(), filepath.Join(t.TempDir(), "registry.db"), sqlregistry.Options{})
	m.must(err)
	t.Cleanup(func() { m.registry.Close() })
	m.key, err = m.registry.ReferenceKey(t.Context())
	m.must(err)
	m.loadOverrides()
	return m
}

func (m *state) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// loadOverrides reads the operators' overrides from the registry.
func (m *state) loadOverrides() {
	m.t.Helper()
	record, labels, err := m.registry.Overrides(m.t.Context())
	m.must(err)
	m.overrides.Store(registrar.NewOverrides(record, labels))
}

func (m *state) override(addr netip.Addr, bot fairshare.Bot, now time.Time) fairshare.Override {
	return m.overrides.Load().Override(addr, bot, now)
}

// save writes the counters for the next process. Bans are already in the registry.
func (m *state) save(limiter *memlimit.Limiter, now time.Time) {
	m.t.Helper()
	m.counters.Reset()
	m.must(limiter.Save(&m.counters, now))
}

// restore loads the state at the start of a process.
func (m *state) restore(limiter *memlimit.Limiter, bans *membans.Bans, now time.Time) {
	m.t.Helper()
	if m.counters.Len() > 0 {
		loaded, err := limiter.Load(&m.counters, now)
		m.must(err)
		if len(loaded.Fresh) > 0 {
			m.t.Errorf("limits start empty after a restart: %v", loaded.Fresh)
		}
	}
	for ban, err := range m.registry.Bans(m.t.Context(), now, true) {
		m.must(err)
		bans.Restore(ban)
	}
	bans.Observe(func(ban fairshare.BanRecord) {
		if err := m.registry.Write(m.t.Context(), registry.Batch{Bans: []fairshare.BanRecord{ban}}); err != nil {
			m.t.Error(err)
		}
	})
	m.loadOverrides()
}

// refused checks that the reference of a client and rule does not change.
func (m *state) refused(r *httpguard.Report) {
	key := r.Request.Addr.String() + " " + r.Finding.Rule.Name
	if was := m.ids[key]; was != "" && was != r.ID {
		m.t.Errorf("%s: reference %s, it was %s", key, r.ID, was)
	}
	m.ids[key] = r.ID
}

// execute has the effects of an operator's command on the registry and on a running serve.
func (m *state) execute(command string, p *process, policy *fairshare.Policy, now time.Time) {
	m.t.Helper()
	ctx := m.t.Context()
	args, err := parseCommand(command, policy)
	m.must(err)
	record := registry.OverrideRecord{Client: args.client, Since: now}
	if args.period > 0 {
		record.Until = now.Add(args.period)
	}
	effective := true
	switch args.verb {
	case "ban":
		if record.Action = fairshare.Block; args.period > 0 {
			record.Action = fairshare.Refuse
		}
		m.must(m.registry.SetOverride(ctx, record))
	case "allow":
		record.Action = fairshare.Allow
		m.must(m.registry.SetOverride(ctx, record))
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
		effective = was != nil || len(lifted) > 0
	case "unallow":
		was, err := m.registry.RemoveOverride(ctx, args.client)
		m.must(err)
		effective = was != nil && was.Action == fairshare.Allow
	case "label":
		m.must(m.registry.Label(ctx, registry.Label{Client: args.client, Name: args.label}))
	case "unlabel":
		removed, err := m.registry.Unlabel(ctx, args.client, args.label)
		m.must(err)
		effective = len(removed) > 0
	}
	if !effective {
		m.t.Fatalf("story: %q: there is nothing to remove", command)
	}
	m.loadOverrides()
}

// A command is an operator's command, see docs/registry.md.
type command struct {
	verb   string
	client fairshare.ClientID
	period time.Duration // 0: without an end
	label  string
}

// parseCommand reads "fairshare ban 203.0.113.9 --for 2h".
func parseCommand(text string, policy *fairshare.Policy) (c command, err error) {
	fields := strings.Fields(text)
	if len(fields) < 3 || fields[0] != "fairshare" {
		return c, fmt.Errorf("not a command of an operator: %q", text)
	}
	c.verb = fields[1]
	if c.client, err = fairshare.ParseClientID(fields[2]); err != nil {
		return c, err
	}
	rest := fields[3:]
	switch {
	case c.client.Bot != "" && bots.BuiltIn().Bot(c.client.Bot) == nil:
		return c, fmt.Errorf("no bot is called %q", c.client.Bot)
	case c.client.Prefix.IsValid() && !strings.Contains(fields[2], "/"):
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
		err = fmt.Errorf("not a command of an operator: %q", text)
	}
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%q is not understood: %q", rest, text)
	}
	return c, err
}
