package registrytest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"fairshare"
	"fairshare/registry"
	"fairshare/registry/key"

	"pgregory.net/rapid"
)

// A model is a slow and simple registry.
type model struct {
	o         registry.Bounds
	rows      map[fairshare.ClientID]*modelRow
	made      int // rows so far
	overrides map[fairshare.ClientID]registry.OverrideRecord
	labels    map[registry.Label]bool
	notes     map[fairshare.ClientID]string
	bans      map[banName]fairshare.BanRecord
	stories   map[storyName]registry.Story
	lifted    []registry.LiftedClient // not yet pruned
	changed   int                     // changes of overrides
	unread    []registry.LiftedClient // since the last call of Changes
}

type modelRow struct {
	made int
	rec  registry.ClientRecord
}

type banName struct {
	client fairshare.ClientID
	kind   fairshare.KeyKind
	rule   string
}

type storyName struct {
	client fairshare.ClientID
	rule   string
}

func newModel(o registry.Bounds) *model {
	return &model{
		o: o, rows: map[fairshare.ClientID]*modelRow{}, overrides: map[fairshare.ClientID]registry.OverrideRecord{},
		labels: map[registry.Label]bool{},
		notes:  map[fairshare.ClientID]string{}, bans: map[banName]fairshare.BanRecord{},
		stories: map[storyName]registry.Story{},
	}
}

// holds reports whether a is b, or a wider prefix.
func holds(a, b fairshare.ClientID) bool {
	return a == b || a.Bot == "" && b.Bot == "" && a.Prefix.Bits() <= b.Prefix.Bits() &&
		a.Prefix.Contains(b.Prefix.Addr())
}

func less(a, b fairshare.ClientID) int {
	if c := cmp.Compare(min(len(a.Bot), 1), min(len(b.Bot), 1)); c != 0 || a.Bot != "" {
		return cmp.Or(c, cmp.Compare(a.Bot, b.Bot))
	}
	return cmp.Or(a.Prefix.Addr().Compare(b.Prefix.Addr()), cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()))
}

func (m *model) row(id fairshare.ClientID) *modelRow {
	r := m.rows[id]
	if r == nil {
		m.made++
		r = &modelRow{made: m.made, rec: registry.ClientRecord{Client: id}}
		m.rows[id] = r
	}
	return r
}

// protection returns why a client must not be removed: 2 an operator, 1 a ban, 0 no
// reason.
func (m *model) protection(id fairshare.ClientID) int {
	_, overridden := m.overrides[id]
	if overridden || m.notes[id] != "" || len(m.labelsOf(id)) > 0 {
		return 2
	}
	for name := range m.bans {
		if name.client == id {
			return 1
		}
	}
	return 0
}

// unprotect removes a client that never sent a request and has no protection.
func (m *model) unprotect(id fairshare.ClientID) {
	if r := m.rows[id]; r != nil && r.rec.LastSeen.IsZero() && m.protection(id) == 0 {
		delete(m.rows, id)
	}
}

func (m *model) labelsOf(id fairshare.ClientID) (names []string) {
	for l := range m.labels {
		if l.Client == id {
			names = append(names, l.Name)
		}
	}
	slices.Sort(names)
	return names
}

func (m *model) write(b registry.Batch) {
	for _, ban := range b.Bans {
		name := banName{ban.Client, ban.Kind, ban.Rule}
		if slices.ContainsFunc(m.lifted, func(l registry.LiftedClient) bool {
			return holds(l.Client, ban.Client) &&
				!ban.Began.After(l.At)
		}) || ban.Began.Before(m.bans[name].Began) ||
			m.bans[name].Until.After(ban.Began) && m.bans[name].Until.After(ban.Until) {
			continue
		}
		if _, known := m.bans[name]; !known {
			m.row(ban.Client)
		}
		m.bans[name] = ban
	}
	remembered := func(id fairshare.ClientID, first *time.Time, last time.Time) bool {
		for _, l := range m.lifted {
			if l.Forget && holds(l.Client, id) {
				if !last.After(l.At) {
					return false
				}
				if !first.After(l.At) {
					*first = l.At.Add(1)
				}
			}
		}
		return true
	}
	for _, d := range b.Clients {
		if !remembered(d.Client, &d.FirstSeen, d.LastSeen) {
			continue
		}
		if m.rows[d.Client] == nil && len(m.rows) >= m.o.Clients+m.o.Clients/16 {
			continue
		}
		rec := &m.row(d.Client).rec
		if rec.FirstSeen.IsZero() || d.FirstSeen.Before(rec.FirstSeen) {
			rec.FirstSeen = d.FirstSeen
		}
		if d.LastSeen.After(rec.LastSeen) {
			rec.LastSeen = d.LastSeen
		}
		rec.Spent.Add(d.Spent)
		rec.UserAgent, rec.Bot, rec.BotState = d.UserAgent, d.Bot, d.BotState
	}
	for _, s := range b.Stories {
		if remembered(s.Client, &s.First, s.Last) {
			name := storyName{s.Client, s.Rule}
			_, known := m.stories[name]
			m.stories[name] = s
			if !known && len(m.stories) > m.o.Stories+m.o.Stories/16 {
				m.dropStory(0)
			}
		}
	}
}

func (m *model) addChange(l registry.LiftedClient) {
	m.lifted, m.unread = append(m.lifted, l), append(m.unread, l)
}

func (m *model) lift(id fairshare.ClientID, at time.Time) (lifted []fairshare.BanRecord) {
	m.addChange(registry.LiftedClient{Client: id, At: at})
	for _, b := range m.sortedBans() {
		if holds(id, b.Client) && !b.Began.After(at) {
			lifted = append(lifted, b)
			delete(m.bans, banName{b.Client, b.Kind, b.Rule})
			m.unprotect(b.Client)
		}
	}
	return lifted
}

func (m *model) forget(id fairshare.ClientID, at time.Time) (f registry.Forgotten) {
	m.addChange(registry.LiftedClient{Client: id, At: at, Forget: true})
	drop := func(client fairshare.ClientID) bool { return holds(id, client) }
	overrides, labels := len(m.overrides), len(m.labels)
	maps.DeleteFunc(m.overrides, func(c fairshare.ClientID, _ registry.OverrideRecord) bool { return drop(c) })
	maps.DeleteFunc(m.labels, func(l registry.Label, _ bool) bool { return drop(l.Client) })
	maps.DeleteFunc(m.notes, func(c fairshare.ClientID, _ string) bool { return drop(c) })
	f.Override, f.Labels = overrides > len(m.overrides), labels-len(m.labels)
	if f.Override || f.Labels > 0 {
		m.changed++
	}
	f.Clients, f.Bans, f.Stories = len(m.rows), len(m.bans), len(m.stories)
	maps.DeleteFunc(m.rows, func(c fairshare.ClientID, _ *modelRow) bool { return drop(c) })
	maps.DeleteFunc(m.bans, func(n banName, _ fairshare.BanRecord) bool { return drop(n.client) })
	maps.DeleteFunc(m.stories, func(n storyName, _ registry.Story) bool { return drop(n.client) })
	f.Clients, f.Bans, f.Stories = f.Clients-len(m.rows), f.Bans-len(m.bans), f.Stories-len(m.stories)
	return f
}

func (m *model) sortedBans() []fairshare.BanRecord {
	return slices.SortedFunc(maps.Values(m.bans), func(a, b fairshare.BanRecord) int {
		return cmp.Or(less(a.Client, b.Client), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Rule, b.Rule))
	})
}

// record returns a client's record with operators' decisions.
func (m *model) record(id fairshare.ClientID) registry.ClientRecord {
	rec := registry.ClientRecord{Client: id}
	if r := m.rows[id]; r != nil {
		rec = r.rec
	}
	if override, found := m.overrides[id]; found {
		rec.Override = &override
	}
	rec.Labels, rec.Note = m.labelsOf(id), m.notes[id]
	rec.Sticky = rec.Override != nil || rec.Labels != nil || rec.Note != ""
	return rec
}

func (m *model) client(id fairshare.ClientID) *registry.Found {
	f := &registry.Found{Record: m.record(id)}
	for c := range m.rows {
		if c != id && holds(id, c) {
			f.Inside++
		}
	}
	wider := func(c fairshare.ClientID) bool { return c != id && holds(c, id) }
	for c, override := range m.overrides {
		if wider(c) {
			f.Within = append(f.Within, override)
		}
	}
	for l := range m.labels {
		if wider(l.Client) {
			f.Labels = append(f.Labels, l)
		}
	}
	bits := func(a, b fairshare.ClientID) int { return cmp.Compare(b.Prefix.Bits(), a.Prefix.Bits()) }
	slices.SortFunc(f.Within, func(a, b registry.OverrideRecord) int { return bits(a.Client, b.Client) })
	slices.SortFunc(f.Labels, func(a, b registry.Label) int {
		return cmp.Or(bits(a.Client, b.Client),
			cmp.Compare(a.Name, b.Name))
	})
	var inside []fairshare.BanRecord
	for _, b := range m.sortedBans() {
		if wider(b.Client) {
			f.Bans = append(f.Bans, b)
		} else if holds(id, b.Client) {
			inside = append(inside, b)
		}
	}
	slices.SortStableFunc(f.Bans, func(a, b fairshare.BanRecord) int { return bits(a.Client, b.Client) })
	f.Bans = append(f.Bans, inside...)
	f.Stories = m.storiesOf(func(s registry.Story) bool { return holds(id, s.Client) })
	if m.rows[id] == nil && len(f.Within)+len(f.Labels)+len(f.Bans)+len(f.Stories)+f.Inside == 0 {
		return nil
	}
	return f
}

func (m *model) storiesOf(is func(registry.Story) bool) (found []registry.Story) {
	for _, s := range m.stories {
		if is(s) {
			found = append(found, s)
		}
	}
	slices.SortFunc(found, func(a, b registry.Story) int {
		return cmp.Or(b.Last.Compare(a.Last), less(a.Client, b.Client), cmp.Compare(a.Rule, b.Rule))
	})
	return found
}

// clients returns all clients that a query selects, in its order.
func (m *model) clients(q registry.Query) (found []registry.ClientRecord) {
	for id := range m.rows {
		rec := m.record(id)
		if (q.Bot == "" || rec.Bot == q.Bot || id.Bot == q.Bot) &&
			(q.Label == "" || slices.Contains(rec.Labels, q.Label)) && (rec.Sticky || !q.Sticky) {
			found = append(found, rec)
		}
	}
	compare, _ := registry.Compare(q.Sort)
	slices.SortFunc(found, func(a, b registry.ClientRecord) int {
		return cmp.Or(compare(&a, &b), less(a.Client, b.Client))
	})
	return found
}

// prune does the same as Registry.Prune, one row after the other.
func (m *model) prune(now time.Time, rows int) (more bool) {
	overrides := len(m.overrides)
	defer func() {
		if len(m.overrides) < overrides {
			m.changed++
		}
	}()
	for range rows {
		if !m.pruneOverride(now) && !m.pruneChange(now) && !m.pruneBan(now) && !m.pruneStory(now) &&
			!m.pruneClient(now) {
			return false
		}
	}
	return true
}

func (m *model) pruneOverride(now time.Time) bool {
	for _, override := range slices.SortedFunc(maps.Values(m.overrides), func(a, b registry.OverrideRecord) int {
		return cmp.Or(a.Until.Compare(b.Until), less(a.Client, b.Client))
	}) {
		if !override.Until.IsZero() && override.Until.Before(now.Add(-7*24*time.Hour)) {
			delete(m.overrides, override.Client)
			m.unprotect(override.Client)
			return true
		}
	}
	return false
}

func (m *model) pruneChange(now time.Time) bool {
	if len(m.lifted) == 0 || !m.lifted[0].At.Before(now.Add(-registry.ChangesStay)) {
		return false
	}
	m.lifted = m.lifted[1:]
	return true
}

func (m *model) pruneBan(now time.Time) bool {
	bans := m.sortedBans()
	slices.SortStableFunc(bans, func(a, b fairshare.BanRecord) int { return a.Until.Compare(b.Until) })
	if len(bans) == 0 || len(bans) <= m.o.Bans && !bans[0].Until.Before(now.Add(-m.o.Age)) {
		return false
	}
	delete(m.bans, banName{bans[0].Client, bans[0].Kind, bans[0].Rule})
	m.unprotect(bans[0].Client)
	return true
}

func (m *model) pruneStory(now time.Time) bool {
	all := m.storiesOf(func(registry.Story) bool { return true })
	if len(all) == 0 {
		return false
	}
	if oldest := all[len(all)-1]; oldest.Last.Before(now.Add(-m.o.Age)) {
		delete(m.stories, storyName{oldest.Client, oldest.Rule})
		return true
	}
	if len(all) > m.o.Stories {
		return m.dropStory(0)
	}
	return m.dropStory(m.o.Stories / 10)
}

// dropStory removes the oldest story of the network with the most stories, if it has
// more than that many.
func (m *model) dropStory(more int) bool {
	all := m.storiesOf(func(registry.Story) bool { return true })
	network := func(s registry.Story) string {
		k, _ := key.Of(s.Client)
		return string(key.Network(k))
	}
	many := map[string]int{}
	for _, s := range all {
		many[network(s)]++
	}
	most := slices.MaxFunc(slices.Collect(maps.Keys(many)),
		func(a, b string) int { return cmp.Or(cmp.Compare(many[a], many[b]), cmp.Compare(a, b)) })
	if many[most] <= more {
		return false
	}
	for _, s := range slices.Backward(all) {
		if network(s) == most || many[most] == 1 {
			delete(m.stories, storyName{s.Client, s.Rule})
			return true
		}
	}
	return false
}

func (m *model) pruneClient(now time.Time) bool {
	grade := func(id fairshare.ClientID) int {
		if m.protection(id) != 1 {
			return m.protection(id) * 2
		}
		for name, b := range m.bans {
			if name.client == id && b.Until.After(now) {
				return 2
			}
		}
		return 1
	}
	ids := slices.SortedFunc(maps.Keys(m.rows), func(a, b fairshare.ClientID) int {
		return cmp.Or(cmp.Compare(grade(a), grade(b)), m.rows[a].rec.LastSeen.Compare(m.rows[b].rec.LastSeen),
			cmp.Compare(m.rows[a].made, m.rows[b].made))
	})
	if len(ids) == 0 || grade(ids[0]) == 4 {
		return false
	}
	if old := grade(ids[0]) == 0 && m.rows[ids[0]].rec.LastSeen.Before(now.Add(-m.o.Age)); !old &&
		len(ids) <= m.o.Clients {
		return false
	}
	delete(m.rows, ids[0])
	return true
}

// testRegistryMatchesModel calls random methods of a registry and of the model.
func testRegistryMatchesModel(t *testing.T, open Opener) {
	clients := ids("192.0.2.1", "192.0.2.2", "192.0.2.0/24", "192.0.0.0/16", "198.51.100.7", "198.51.100.0/24",
		"0.0.0.0/0", "203.0.113.128/25", "255.255.255.255",
		"2001:db8::/64", "2001:db8:0:1::/64", "2001:db8::/48", "2001:db8::/32", "2001:db8:ffff:ffff::/64", "::/0",
		"::/64", "::1", "c000:201::/32", "googlebot", "bing bot", "b")
	opened := 0
	rapid.Check(t, func(rt *rapid.T) {
		o := registry.Bounds{Clients: 16, Stories: rapid.SampledFrom([]int{10, 16}).Draw(rt, "bound"), Bans: 6,
			Age: 90 * 24 * time.Hour}
		opened++
		name := fmt.Sprint("model ", opened)
		r := open(t, name, o)
		defer func() { r.Close() }()
		m, now := newModel(o), start
		version := registry.Version{}
		ok := func(what string, err error) {
			if err != nil {
				rt.Fatalf("%s: %v", what, err)
			}
		}
		equal := func(what string, got, want any) {
			rt.Helper()
			if d := diff(got, want); d != "" {
				rt.Fatalf("%s (-want +got):\n%s", what, d)
			}
		}
		client := func() fairshare.ClientID { return rapid.SampledFrom(clients).Draw(rt, "client") }
		tick := func() time.Time { // all times differ
			now = now.Add(time.Duration(rapid.Int64Range(1, int64(time.Minute)).Draw(rt, "ns")))
			return now
		}
		rule := rapid.SampledFrom([]string{"rapid", "", "long\x00rule \xff"})
		text := rapid.SampledFrom([]string{"", "agent", "\xff\x00'"})
		seen, err := r.Changes(ctx, version)
		ok("Changes", err)
		version = seen.Version
		changed := m.changed
		do := map[string]func(){
			"write": func() {
				var b registry.Batch
				for range rapid.IntRange(0, 4).Draw(rt, "clients") {
					at := tick()
					b.Clients = append(b.Clients, registry.ClientDelta{Client: client(), FirstSeen: at, LastSeen: at,
						UserAgent: text.Draw(rt, "agent"), BotState: fairshare.Forged,
						Bot: rapid.SampledFrom([]string{"", "googlebot", "b"}).Draw(rt, "bot"),
						Spent: registry.Spent{Requests: rapid.Int64Range(0, 150).Draw(rt, "requests"),
							Refused: rapid.Int64Range(0, 150).Draw(rt, "refused"),
							CPU:     time.Duration(rapid.Int64Range(0, 15e9).Draw(rt, "cpu")), Bytes: 7}})
				}
				for range rapid.IntRange(0, 8).Draw(rt, "stories") {
					at := tick()
					b.Stories = append(b.Stories, registry.Story{ID: rapid.StringMatching("[a-c]").Draw(rt, "id"),
						Client: client(), Rule: rule.Draw(rt, "rule"),
						Addr:   rapid.SampledFrom(clients).Draw(rt, "addr").Prefix.Addr(),
						Action: fairshare.Refuse, Ban: fairshare.BanStarted, Status: 429, First: at, Last: at,
						Count: 3, Until: at.Add(time.Hour), By: "addr", Resource: "requests", Used: 5, Allowed: 4,
						Window: time.Minute,
						Method: "GET", Host: "example.org", Path: text.Draw(rt, "path"),
						UserAgent: text.Draw(rt, "agent"),
						BanBegan:  at, BanMethod: "HEAD", BanPath: text.Draw(rt, "path of the ban"),
						Robots: text.Draw(rt, "line of robots.txt")})
				}
				for range rapid.IntRange(0, 3).Draw(rt, "bans") {
					began := tick().Add(-time.Duration(rapid.IntRange(0, 2).Draw(rt, "ago")) * time.Minute)
					b.Bans = append(b.Bans, fairshare.BanRecord{Client: client(), Rule: rule.Draw(rt, "rule"),
						Kind: rapid.SampledFrom([]fairshare.KeyKind{fairshare.ByAddr, fairshare.ByNetwork}).
							Draw(rt, "kind"), Number: 2,
						Began: began, Until: began.Add(time.Duration(rapid.IntRange(1, 100).
							Draw(rt, "hours")) * time.Hour), DryRun: rapid.Bool().Draw(rt, "dry")})
				}
				m.write(b)
				ok("Write", r.Write(ctx, b))
			},
			"override": func() {
				override := registry.OverrideRecord{Client: client(), Action: rapid.SampledFrom(
					[]fairshare.Action{fairshare.Allow, fairshare.Refuse, fairshare.Block}).Draw(rt, "action"),
					Since: tick(), Reason: text.Draw(rt, "reason")}
				if rapid.Bool().Draw(rt, "ends") {
					override.Until = now.Add(time.Duration(rapid.IntRange(1, 100).Draw(rt, "hours")) * time.Hour)
				}
				m.row(override.Client)
				m.overrides[override.Client] = override
				m.changed++
				ok("SetOverride", r.SetOverride(ctx, override))
			},
			"unsay": func() {
				id := client()
				var want *registry.OverrideRecord
				if override, found := m.overrides[id]; found {
					want = &override
					m.changed++
				}
				delete(m.overrides, id)
				m.unprotect(id)
				was, err := r.RemoveOverride(ctx, id)
				ok("RemoveOverride", err)
				equal("RemoveOverride", was, want)
			},
			"label": func() {
				l := registry.Label{Client: client(), Name: rapid.SampledFrom([]string{"x", "y"}).Draw(rt, "name")}
				if !m.labels[l] {
					m.changed++
				}
				m.row(l.Client)
				m.labels[l] = true
				ok("Label", r.Label(ctx, l))
			},
			"unlabel": func() {
				id, name := client(), rapid.SampledFrom([]string{"x", "y", ""}).Draw(rt, "name")
				var want []string
				for _, l := range m.labelsOf(id) {
					if name == "" || name == l {
						want = append(want, l)
						delete(m.labels, registry.Label{Client: id, Name: l})
					}
				}
				if want != nil {
					m.changed++
				}
				m.unprotect(id)
				removed, err := r.Unlabel(ctx, id, name)
				ok("Unlabel", err)
				equal("Unlabel", removed, want)
			},
			"note": func() {
				id, note := client(), text.Draw(rt, "note")
				delete(m.notes, id)
				if note != "" {
					m.notes[id] = note
					m.row(id)
				}
				m.unprotect(id)
				ok("Note", r.Note(ctx, id, note))
			},
			"lift": func() {
				id, at := client(), tick()
				want := m.lift(id, at)
				lifted, err := r.Lift(ctx, id, at)
				ok("Lift", err)
				equal("Lift", lifted, want)
			},
			"forget": func() {
				id, at := client(), tick()
				want := m.forget(id, at)
				forgotten, err := r.Forget(ctx, id, at)
				ok("Forget", err)
				equal("Forget", forgotten, want)
			},
			"prune": func() {
				rows := rapid.IntRange(1, 10).Draw(rt, "rows")
				want := m.prune(now, rows)
				more, err := r.Prune(ctx, now, rows)
				ok("Prune", err)
				equal("Prune", more, want)
			},
			"wait": func() { now = now.Add(time.Duration(rapid.IntRange(1, 40*24).Draw(rt, "hours")) * time.Hour) },
			"reopen": func() {
				ok("Close", r.Close())
				r = open(t, name, o)
			},
			"changes": func() {
				c, err := r.Changes(ctx, version)
				ok("Changes", err)
				for len(m.unread) > len(m.lifted) { // those that were pruned before the call
					m.unread = m.unread[1:]
				}
				equal("Lifted", withoutStored(c.Lifted), m.unread)
				equal("Overrides changed", c.Overrides, changed != m.changed)
				version, changed, m.unread = c.Version, m.changed, nil
			},
			"": func() {
				id := client()
				found, err := r.Client(ctx, id)
				ok("Client", err)
				equal("Client "+id.String(), found, m.client(id))
				overrides, labels, err := r.Overrides(ctx)
				ok("Overrides", err)
				equal("Overrides", overrides, slices.SortedFunc(maps.Values(m.overrides),
					func(a, b registry.OverrideRecord) int { return less(a.Client, b.Client) }))
				equal("labels", labels, slices.SortedFunc(maps.Keys(m.labels),
					func(a, b registry.Label) int {
						return cmp.Or(less(a.Client, b.Client),
							cmp.Compare(a.Name, b.Name))
					}))
				for _, all := range []bool{true, false} {
					var bans []fairshare.BanRecord
					for b, err := range r.Bans(ctx, now, all) {
						ok("Bans", err)
						bans = append(bans, b)
					}
					equal("Bans", bans, slices.DeleteFunc(m.sortedBans(),
						func(b fairshare.BanRecord) bool { return !all && !b.Until.After(now) }))
				}
				for _, ref := range []string{"a", "b"} {
					s, err := r.Story(ctx, ref)
					ok("Story", err)
					equal("Story", s, m.storiesOf(func(s registry.Story) bool { return s.ID == ref }))
				}
				s, err := r.Stories(ctx, id, 0)
				ok("Stories", err)
				equal("Stories", s, m.storiesOf(func(s registry.Story) bool { return holds(id, s.Client) }))
				stats, err := r.Stats(ctx)
				ok("Stats", err)
				stats.Bytes = 0
				equal("Stats", stats, registry.Stats{Clients: int64(len(m.rows)), Bans: int64(len(m.bans)),
					Stories: int64(len(m.stories)), Labels: int64(len(m.labels)), Overrides: int64(len(m.overrides))})
				q := registry.Query{Sort: rapid.SampledFrom([]string{"requests", "refused", "blocked", "dry-run", "cpu",
					"time", "bytes", "errors", "last-seen", "client"}).Draw(rt, "sort"),
					Bot:    rapid.SampledFrom([]string{"", "", "googlebot"}).Draw(rt, "bot"),
					Label:  rapid.SampledFrom([]string{"", "", "x"}).Draw(rt, "label"),
					Sticky: rapid.Bool().Draw(rt, "sticky"), Limit: rapid.IntRange(1, 25).Draw(rt, "limit")}
				got, err := r.Clients(ctx, q)
				ok("Clients", err)
				want := m.clients(q)
				want = want[:min(len(want), q.Limit)]
				compare, _ := registry.Compare(q.Sort)
				if len(got) != len(want) {
					rt.Fatalf("%+v: %d clients, want %d", q, len(got), len(want))
				}
				for i := range got { // equal ones in any order
					if compare(&got[i], &want[i]) != 0 {
						rt.Fatalf("%+v: %v in place %d, want %v", q, got[i], i, want[i])
					}
				}
				for _, g := range got {
					equal("record", g, m.record(g.Client))
				}
			},
		}
		rt.Repeat(actions(do))
	})
}

func actions(do map[string]func()) map[string]func(*rapid.T) {
	all := map[string]func(*rapid.T){}
	for name, f := range do {
		all[name] = func(*rapid.T) { f() }
	}
	return all
}
