//go:build unix

package livepolicy

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/internal/lookup/lookuptest"
	"fairshare/internal/setup"
	"fairshare/pgregistry"
	"fairshare/pgregistry/pgtest"
	"fairshare/policyfile"
	"fairshare/registry"
	"fairshare/sqlregistry"
	"fairshare/visitor"
)

// A member is a policy that shares a registry with others, with what it has logged.
type member struct {
	*Policy
	folder string
	mu     sync.Mutex
	lines  []string
}

// join opens a member in a folder of its own.
func join(t *testing.T, url, text string) *member {
	t.Helper()
	return joinIn(t, url, text, t.TempDir())
}

func joinIn(t *testing.T, url, text, folder string) *member {
	t.Helper()
	file, err := policyfile.Options{Bots: setup.BotNames}.Parse("/etc/site.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return openMember(t, url, file, folder, httpguard.NewClock())
}

func openMember(t *testing.T, url string, file *policyfile.File, folder string, clock *httpguard.Clock,
	change ...func(*Options)) *member {
	t.Helper()
	m := &member{folder: folder}
	opts := Options{Clock: clock, Folder: folder, RegistryURL: url,
		Log: func(line string) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.lines = append(m.lines, line)
		}}
	for _, f := range change {
		f(&opts)
	}
	var err error
	if m.Policy, err = New(t.Context(), file, opts); err != nil {
		t.Fatal(err)
	}
	if err := m.OpenState(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.Stop()
		m.Close()
		if t.Failed() {
			t.Logf("%s\n%s", folder, strings.Join(m.logged(""), "\n"))
		}
	})
	return m
}

// logged returns the lines that contain a text.
func (m *member) logged(text string) (lines []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, line := range m.lines {
		if strings.Contains(line, text) {
			lines = append(lines, line)
		}
	}
	return lines
}

func (m *member) group() *group { return m.state.store.(*group) }

// request returns a request of a client that this member judges.
func (m *member) request(addr string) *fairshare.Request {
	req := &fairshare.Request{Addr: netip.MustParseAddr(addr), Time: m.Now(), Method: "GET", Path: "/"}
	req.Override = m.state.override()(req.Addr, req.Bot, m.Now())
	return req
}

func client(t *testing.T, addr string) fairshare.ClientID {
	t.Helper()
	id, err := fairshare.ParseClientID(addr)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const shareAll = "visitors: always\nshare: 8\nrules:\n" +
	"  - {name: rapid, limit: {requests: 5, per: 1m, by: addr}, ban: {after: 1, within: 1h, for: 1h}}\n"

// A member that joins knows the bans and the decisions of operators before its first request.
func TestJoiningMemberKnowsWhatOperatorsDecided(t *testing.T) {
	db := pgtest.Start(t)
	shared, err := pgregistry.Open(t.Context(), db.URL("postgres"), pgregistry.Options{})
	must(t, err)
	defer shared.Close()
	now := time.Now()
	must(t, shared.SetOverride(t.Context(), registry.OverrideRecord{Client: client(t, "203.0.113.1"),
		Action: fairshare.Block, Since: now}))
	must(t, shared.Label(t.Context(), registry.Label{Client: client(t, "203.0.113.2"), Name: "partner"}))
	must(t, shared.Write(t.Context(), registry.Batch{Bans: []fairshare.BanRecord{{Client: client(t, "203.0.113.3"),
		Rule: "rapid", Kind: fairshare.ByAddr, Began: now.Add(-time.Minute), Until: now.Add(time.Hour),
		Since: now.Add(-time.Minute)}}}))

	m := join(t, db.URL("postgres"), shareAll) // Start was not called
	if got := m.request("203.0.113.1").Override.Action; got != fairshare.Block {
		t.Errorf("the client that operators have banned: %v", got)
	}
	if got := m.request("203.0.113.2").Override.Labels; !slices.Equal(got, []string{"partner"}) {
		t.Errorf("labels: %q", got)
	}
	for addr, refused := range map[string]bool{"203.0.113.3": true, "203.0.113.4": false} {
		v, err := m.Current().Guard.Decide(t.Context(), m.request(addr))
		if err != nil || refused != (v.Action == fairshare.Refuse) {
			t.Errorf("%s: %v, %v; want refused %v", addr, v.Action, err, refused)
		}
	}
}

// A member that joins while the database holds its answers back judges requests by what it knows, and says so.
func TestJoiningMemberDoesNotWaitForASlowDatabase(t *testing.T) {
	db := pgtest.Start(t)
	first := join(t, db.URL("postgres"), shareAll)
	db.Exec(t, "ALTER TABLE fairshare.overrides RENAME TO hidden",
		"CREATE VIEW fairshare.overrides AS SELECT h.* FROM fairshare.hidden h, pg_sleep(60)")
	second := join(t, db.URL("postgres"), shareAll)
	if len(second.logged("could not all be read within 2s")) != 1 || len(first.logged("could not all")) != 0 {
		t.Error("the log does not say that decisions are missing")
	}
}

// When a member has seen a client first, the client gets standing on all members.
func TestMembersKnowTheClientsOfEachOther(t *testing.T) {
	db := pgtest.Start(t)
	a, b := join(t, db.URL("postgres"), shareAll), join(t, db.URL("postgres"), shareAll)
	must(t, b.group().readSeen(t.Context())) // at its start
	now := time.Now()
	write := func(addr string, first time.Time) {
		t.Helper()
		must(t, a.state.store.Write(t.Context(), registry.Batch{Clients: []registry.ClientDelta{{
			Client: client(t, addr), FirstSeen: first, LastSeen: now, Spent: registry.Spent{Requests: 1}}}}))
	}
	write("203.0.113.1", now.Add(-time.Hour))
	write("203.0.113.2", now.Add(-time.Minute))
	must(t, b.group().readSeen(t.Context()))
	write("203.0.113.3", now.Add(-time.Hour))
	must(t, b.group().readSeen(t.Context()))
	for addr, want := range map[string]bool{"203.0.113.1": true, "203.0.113.2": false, "203.0.113.3": true,
		"203.0.113.4": false} {
		if got := b.Current().Guard.HasStanding(b.request(addr)); got != want {
			t.Errorf("%s has standing: %v, want %v", addr, got, want)
		}
	}
	q := b.Current().Share
	for _, addr := range []string{"203.0.113.1", "203.0.113.4"} {
		claim := q.Claim(b.request(addr))
		if _, err := q.Wait(t.Context(), &claim); err != nil {
			t.Fatal(err)
		}
	}
	if st := q.Stats().Classes; st[1].Turns != 1 || st[6].Turns != 1 {
		t.Errorf("the queue: %+v", st)
	}
}

// A cookie of one member is valid on the others, also if these were started before, and also
// if the first one started while the database was away.
func TestMembersBelieveTheCookiesOfEachOther(t *testing.T) {
	db := pgtest.Start(t)
	believes := func(of, by *member) bool {
		t.Helper()
		value, signed, ok := of.visitors.Sign(fairshare.Visitor{}, of.request("203.0.113.1"), of.Now(), time.Now(),
			visitor.Change{})
		if !ok {
			t.Fatal("no cookie")
		}
		found := by.visitors.Read(value, by.Now(), time.Now())
		return found.ID == signed.ID
	}
	a := join(t, db.URL("postgres"), shareAll)
	b := join(t, db.URL("postgres"), shareAll)
	if !believes(a, b) || !believes(b, a) {
		t.Error("two members do not believe the cookies of each other")
	}
	db.Stop(t)
	c := join(t, db.URL("postgres"), shareAll)
	value, early, _ := c.visitors.Sign(fairshare.Visitor{}, c.request("203.0.113.1"), c.Now(), time.Now(),
		visitor.Change{})
	if believes(c, a) {
		t.Fatal("c has the secrets without the database")
	}
	db.Run(t)
	must(t, c.group().sync(t.Context()))
	for _, m := range []*member{c, a, b} {
		m.group().returned()
		m.refreshSecrets()
	}
	for _, of := range []*member{a, b, c} {
		for _, by := range []*member{a, b, c} {
			if !believes(of, by) {
				t.Errorf("%s does not believe the cookie of %s", by.folder, of.folder)
			}
		}
	}
	if found := a.visitors.Read(value, a.Now(), time.Now()); found.ID != early.ID {
		t.Error("a cookie that was given while the database was away is not valid later")
	}
	// Without the database, a member that was there signs as before.
	db.Stop(t)
	if d := joinIn(t, db.URL("postgres"), shareAll, copyOf(t, a)); !believes(d, b) {
		t.Error("after a restart without the database it has other secrets")
	}
}

// copyOf returns a folder with the secrets of a member.
func copyOf(t *testing.T, m *member) string {
	t.Helper()
	dir := t.TempDir()
	secrets, err := readSecrets(filepath.Join(m.folder, SecretsFile))
	must(t, err)
	var lines []string
	for _, secret := range secrets {
		lines = append(lines, time.Now().UTC().Format(time.RFC3339)+" "+string(secret))
	}
	must(t, replaceFile(filepath.Join(dir, SecretsFile), secretText(lines)))
	return dir
}

// A secret is known to all a day before it signs, and those of a joining server verify only.
func TestSharedSecretsRotate(t *testing.T) {
	start := time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)
	const day = 24 * time.Hour
	own, joined := newSecret(start), newSecret(start.Add(day))
	lines := mergeSecrets(nil, secretText([]string{own}), start)
	if !slices.Equal(lines, []string{own}) {
		t.Errorf("the first server: %q", lines)
	}
	lines = mergeSecrets(secretText(lines), secretText([]string{joined}), start.Add(day))
	if !slices.Equal(lines, []string{own, joined}) {
		t.Errorf("after a server has joined: %q", lines)
	}
	signs := func(lines []string, now time.Time) string {
		t.Helper()
		secrets, err := activeSecrets(lines, now)
		if err != nil || len(secrets) != len(lines) {
			t.Fatalf("%q, %v", secrets, err)
		}
		return string(secrets[0])
	}
	next := mergeSecrets(secretText(lines), nil, start.Add(29*day+time.Hour))
	if len(next) != 3 || !slices.Equal(next[1:], lines) {
		t.Fatalf("after 29 days: %q", next)
	}
	if got := signs(next, start.Add(29*day+2*time.Hour)); !strings.HasSuffix(own, got) {
		t.Errorf("a new secret signs at once: %q of %q", got, next)
	}
	if got := signs(next, start.Add(30*day+2*time.Hour)); !strings.HasSuffix(next[0], got) {
		t.Errorf("a day later it does not sign: %q of %q", got, next)
	}
	if again := mergeSecrets(secretText(next), secretText(lines), start.Add(31*day)); !slices.Equal(again, next) {
		t.Errorf("merged again: %q, want %q", again, next)
	}
	if late := mergeSecrets(secretText(next), nil, start.Add(122*day)); len(late) != 2 || late[1] != next[0] {
		t.Errorf("after four months: %q", late)
	}
	wrong := newSecret(start.Add(40 * day)) // by a server whose clock is ahead
	if healed := mergeSecrets(secretText([]string{wrong, own}), nil, start); !slices.Equal(healed, []string{own}) {
		t.Errorf("after a wrong clock: %q", healed)
	}
	healed := mergeSecrets(secretText([]string{own}), secretText([]string{wrong}), start)
	if !slices.Equal(healed, []string{own}) {
		t.Errorf("a server with a wrong secret joins: %q", healed)
	}
	var many []string
	for range 2 * mostSecrets {
		many = append(many, newSecret(start))
	}
	if all := mergeSecrets(secretText(lines), secretText(many), start.Add(29*day+time.Hour)); len(all) != mostSecrets {
		t.Errorf("%d secrets, want at most %d", len(all), mostSecrets)
	}
}

// An entry of the outbox that the database refuses is dropped with a line in the log, and
// those behind it arrive.
func TestRefusedEntryIsLogged(t *testing.T) {
	db := pgtest.Start(t)
	m := join(t, db.URL("postgres"), shareAll)
	own, err := m.group().writing(t.Context())
	must(t, err)
	label := "partner"
	_, err = own.Post(t.Context(), true,
		registry.Decision{At: time.Now(), Client: client(t, "203.0.113.1"), Override: &registry.OverrideRecord{
			Client: client(t, "203.0.113.1")}}, // without an action
		registry.Decision{At: time.Now(), Client: client(t, "203.0.113.2"), Label: &label})
	must(t, err)
	must(t, m.group().sync(t.Context()))
	lines := m.logged("which is dropped")
	if len(lines) != 1 || !strings.Contains(lines[0], "an override of 203.0.113.1") {
		t.Errorf("logged %q", lines)
	}
	left, err := own.Outbox(t.Context(), 10)
	if err != nil || len(left) != 0 {
		t.Errorf("the outbox has %+v, %v", left, err)
	}
	f, err := m.group().shared.Client(t.Context(), client(t, "203.0.113.2"))
	if err != nil || f == nil || !slices.Equal(f.Record.Labels, []string{"partner"}) {
		t.Errorf("the entry behind it: %+v, %v", f, err)
	}
}

// While the database is away, two members and their operators continue. Nothing is lost, nobody is refused, and each
// member logs one line when it goes and one when it is back.
func TestDatabaseIsAwayForAWhile(t *testing.T) {
	db := pgtest.Start(t)
	members := []*member{join(t, db.URL("postgres"), shareAll), join(t, db.URL("postgres"), shareAll)}
	for _, m := range members {
		m.Start(t.Context())
	}
	until := time.Now().Add(time.Hour)
	// change has a member ban a client by a rule, and its operators label one; both names end in n.
	change := func(m *member, n int) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		now := time.Now()
		must(t, m.state.store.banStore().Write(ctx, registry.Batch{At: now, Bans: []fairshare.BanRecord{{
			Client: client(t, fmt.Sprint("198.51.100.", n)), Rule: "rapid", Kind: fairshare.ByAddr,
			Began: now, Until: until, Since: now}}}))
		r, err := setup.OpenRegistry(ctx, m.folder, time.Now, sqlregistry.Options{MustExist: true})
		must(t, err)
		defer r.Close()
		must(t, r.Label(ctx, registry.Label{Client: client(t, fmt.Sprint("192.0.2.", n)),
			Name: "partner"}))
		must(t, r.SetOverride(ctx, registry.OverrideRecord{Client: client(t, fmt.Sprint("192.0.2.", n)),
			Action: fairshare.Allow, Since: now}))
	}
	n := 0
	for range 5 {
		for _, m := range members {
			n++
			change(m, n)
		}
	}
	db.Stop(t)
	for range 10 {
		for _, m := range members {
			n++
			change(m, n)
			if v, err := m.Current().Guard.Decide(t.Context(), m.request(fmt.Sprint("203.0.113.", n))); err != nil ||
				v.Action == fairshare.Refuse || v.Action == fairshare.Block {
				t.Fatalf("a client without the database: %+v, %v", v.Action, err)
			}
		}
	}
	db.Run(t)
	for _, m := range members {
		for len(m.logged("is back after")) == 0 {
			time.Sleep(50 * time.Millisecond)
		}
	}
	for range 5 {
		for _, m := range members {
			n++
			change(m, n)
		}
	}
	for _, m := range members {
		must(t, m.group().sync(t.Context())) // what the other one has handed over
	}
	for i := 1; i <= n; i++ {
		banned := client(t, fmt.Sprint("198.51.100.", i))
		known := client(t, fmt.Sprint("192.0.2.", i))
		for _, m := range members {
			own := m.group().store.reader()
			for _, r := range []registry.Reader{m.group().shared, own} {
				f, err := r.Client(t.Context(), banned)
				must(t, err)
				if f == nil || len(f.Bans) != 1 || !f.Bans[0].Until.Equal(until) {
					t.Errorf("ban %d of %d: %+v", i, n, f)
				}
				if f, err = r.Client(t.Context(), known); err != nil || f == nil || f.Record.Override == nil ||
					!slices.Equal(f.Record.Labels, []string{"partner"}) {
					t.Errorf("decisions about client %d of %d: %+v, %v", i, n, f, err)
				}
			}
		}
	}
	for _, m := range members {
		var about []string
		for _, line := range m.logged("registry") {
			if !strings.Contains(line, "tables were created") && !strings.Contains(line, "joins a shared") &&
				!strings.Contains(line, "notifications: ") { // it may notice the end of its connection first
				about = append(about, line)
			}
		}
		if len(about) != 2 || !strings.Contains(about[0], "handed over later") ||
			!strings.Contains(about[1], "is back after") {
			t.Errorf("logged:\n%s\nwant one line when it goes and one when it is back", strings.Join(about, "\n"))
		}
	}
}

// An address of a bot that one member has verified by the DNS is verified on the others, which did not ask. Names that
// belong to no bot are not shared.
func TestMembersKnowTheBotsOfEachOther(t *testing.T) {
	db := pgtest.Start(t)
	answers, silent := lookuptest.Start(t), lookuptest.Start(t)
	silent.Silence(true)
	answers.Host("203.0.113.7", "crawl-7.googlebot.com")
	answers.Host("203.0.113.8", "host-8.example.org")
	with := func(dns *lookuptest.Server) string {
		return fmt.Sprintf("dns: {server: %q}\n%s", dns.Addr(), shareAll)
	}
	a, b := join(t, db.URL("postgres"), with(answers)), join(t, db.URL("postgres"), with(silent))
	state := func(m *member, addr string) fairshare.BotState {
		const agent = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"
		return m.Current().Bots.Verifier.Look(netip.MustParseAddr(addr), agent).State
	}
	must(t, b.group().shareNames(t.Context()))
	for _, addr := range []string{"203.0.113.7", "203.0.113.8"} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		a.Current().Bots.DNS().Wait(ctx, netip.MustParseAddr(addr))
	}
	if got := state(a, "203.0.113.7"); got != fairshare.Verified {
		t.Fatalf("on the member that asks the DNS: %v", got)
	}
	must(t, a.group().shareNames(t.Context()))
	must(t, b.group().shareNames(t.Context()))
	for addr, want := range map[string]fairshare.BotState{"203.0.113.7": fairshare.Verified,
		"203.0.113.8": fairshare.Pending} {
		if got := state(b, addr); got != want {
			t.Errorf("%s on the other member: %v, want %v", addr, got, want)
		}
	}
	if _, err := a.group().shared.NamesSince(t.Context(), 0, func(c pgregistry.ConfirmedName) {
		if c.Addr.String() != "203.0.113.7" || c.Ago < 0 {
			t.Errorf("the database has %+v", c)
		}
	}); err != nil {
		t.Error(err)
	}
	// What waits for the database is bounded.
	for i := range 2 * mostNames {
		a.confirmed.add(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), []string{"a.googlebot.com"})
	}
	if n := len(a.confirmed.take()); n != mostNames {
		t.Errorf("%d names wait, want %d", n, mostNames)
	}
}
