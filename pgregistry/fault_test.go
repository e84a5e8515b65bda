//go:build unix

package pgregistry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"fairshare"
	"fairshare/pgregistry/pgtest"
	"fairshare/registry"

	"github.com/jackc/pgx/v5"
)

// Several servers write the same clients, bans and stories at the same time, in any
// order, while operators decide and rows are pruned: no call fails, and counts add up.
func TestServersShareARegistry(t *testing.T) {
	s := pgtest.Start(t, "deadlock_timeout=50ms", "default_transaction_isolation=serializable")
	testServersShareARegistry(t, s.URL("postgres"))
}

// All of that works through pgbouncer in transaction mode. With the URL of the server itself, notifications arrive;
// without it, the log says that changes are read each second.
func TestThroughAPooler(t *testing.T) {
	s := pgtest.Start(t)
	url := s.Pooler(t)
	testServersShareARegistry(t, url)
	var logged sync.Map
	deaf := opened(t, url, Options{Schema: "fairshare", Listen: true,
		Log: func(line string) { logged.Store(line, true) }})
	lines := 0
	logged.Range(func(line, _ any) bool {
		if lines++; !strings.Contains(line.(string), "listen_url") {
			t.Errorf("logged: %s", line)
		}
		return true
	})
	if lines != 1 {
		t.Errorf("%d lines were logged, want 1", lines)
	}
	follower := opened(t, url, Options{Schema: "fairshare", Listen: true, ListenURL: s.URL("postgres")})
	for range 2 { // at the start, and for the change
		select {
		case <-follower.Woken():
		case <-time.After(20 * time.Second):
			t.Fatal("no notification")
		}
		check(t, "Label", deaf.Label(ctx, registry.Label{Client: id("192.0.2.1"), Name: "partner"}))
	}
	select {
	case <-deaf.Woken():
		t.Error("a notification came through the pooler")
	default:
	}
}

func testServersShareARegistry(t *testing.T, url string) {
	const servers, rounds, clients = 4, 25, 40
	var all sync.WaitGroup
	var opened [servers]*Registry
	for n := range servers { // they also create the tables at the same time
		all.Go(func() {
			r, err := Open(ctx, url, Options{})
			if err != nil {
				t.Error(err)
				return
			}
			opened[n] = r
			for round := range rounds {
				var b registry.Batch
				for _, i := range rand.Perm(clients) {
					name := fmt.Sprintf("192.0.2.%d", i)
					b.Clients = append(b.Clients, dirty(name, start, 1))
					b.Stories = append(b.Stories, registry.Story{ID: name, Client: id(name), Rule: "rapid",
						Last: start})
					if i%3 == round%3 {
						b.Bans = append(b.Bans, banned(name, start.Add(time.Duration(n)), time.Hour))
					}
				}
				if err := r.Write(ctx, b); err != nil {
					t.Error(err)
				}
				own := id(fmt.Sprintf("198.51.100.%d", n))
				for _, err := range []error{
					r.SetOverride(ctx, registry.OverrideRecord{Client: own, Action: fairshare.Block, Since: start}),
					r.Label(ctx, registry.Label{Client: id("192.0.2.7"), Name: fmt.Sprint("x", n)}),
					r.Note(ctx, id("192.0.2.8"), fmt.Sprint(round)),
				} {
					if err != nil {
						t.Error(err)
					}
				}
				if _, err := r.Prune(ctx, start, 100); err != nil {
					t.Error(err)
				}
				if _, err := r.Unlabel(ctx, id("192.0.2.7"), ""); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if t.Failed() {
		return
	}
	r := opened[0]
	sound(t, r)
	for i := range clients {
		f, err := r.Client(ctx, id(fmt.Sprintf("192.0.2.%d", i)))
		check(t, "Client", err)
		if f == nil || f.Record.Spent.Requests != servers*rounds || len(f.Bans) != 1 ||
			!f.Bans[0].Began.Equal(start.Add(servers-1)) {
			t.Errorf("client %d: %+v", i, f)
		}
	}
	for _, r := range opened {
		check(t, "Close", r.Close())
	}
}

// Of two bans by one rule that several servers have started, the longer one stays, in
// whatever order they are written. Others learn of it by Changes, in the order of commits.
func TestLongestBanWins(t *testing.T) {
	s := pgtest.Start(t)
	a := opened(t, s.URL("postgres"), Options{Schema: "bans"})
	b := opened(t, s.URL("postgres"), Options{Schema: "bans"})
	long, short := banned("192.0.2.1", start, 3*time.Hour), banned("192.0.2.1", start.Add(time.Second), time.Hour)
	before, err := b.Changes(ctx, registry.Version{})
	check(t, "Changes", err)
	for _, order := range [][]fairshare.BanRecord{{long, short}, {short, long}} {
		check(t, "Write", a.Write(ctx, registry.Batch{Bans: order[:1]}))
		check(t, "Write", b.Write(ctx, registry.Batch{Bans: order[1:]}))
		if order[0] == short { // it began later: the longer one comes from a clock behind
			continue
		}
		same(t, "bans", allBans(t, a, start, true), []fairshare.BanRecord{long})
	}
	same(t, "bans at last", allBans(t, a, start, true), []fairshare.BanRecord{long})
	var many registry.Batch
	for i := range 300 {
		many.Bans = append(many.Bans, banned(fmt.Sprintf("198.51.%d.%d", i/250, i%250), start, time.Hour))
	}
	check(t, "Write", a.Write(ctx, many))
	after, err := b.Changes(ctx, before.Version)
	check(t, "Changes", err)
	if len(after.Bans) != 301 || after.Overrides {
		t.Errorf("%d bans, overrides changed: %v", len(after.Bans), after.Overrides)
	}
	if none, err := b.Changes(ctx, after.Version); err != nil || none.Bans != nil || none.Version != after.Version {
		t.Errorf("again: %+v, %v", none, err)
	}
	var huge registry.Batch // more than Changes returns at once
	for i := range mostChanged + 10 {
		huge.Bans = append(huge.Bans, banned(fmt.Sprintf("10.1.%d.%d", i/250, i%250), start, time.Hour))
	}
	check(t, "Write", a.Write(ctx, huge))
	last := []fairshare.BanRecord{banned("203.0.113.1", start, time.Hour)}
	check(t, "Write", a.Write(ctx, registry.Batch{Bans: last}))
	heard := 0
	for version := after.Version; ; {
		c, err := b.Changes(ctx, version)
		check(t, "Changes", err)
		if version = c.Version; len(c.Bans) == 0 {
			break
		}
		heard += len(c.Bans)
	}
	if heard != mostChanged+11 {
		t.Errorf("%d bans were heard, want %d", heard, mostChanged+11)
	}
}

// After a kill of the database everything that was acknowledged is there, and the same
// Registry works again. Listeners hear of changes before and after.
func TestKilledServerLosesNothing(t *testing.T) {
	s := pgtest.Start(t)
	r := opened(t, s.URL("postgres"), Options{})
	follower := opened(t, s.URL("postgres"), Options{Schema: r.o.Schema, Listen: true})
	woken := func() {
		t.Helper()
		select {
		case <-follower.Woken():
		case <-time.After(20 * time.Second):
			t.Fatal("no notification")
		}
	}
	woken() // it listens
	for n := range 3 {
		ban := banned(fmt.Sprintf("192.0.2.%d", n), start, time.Hour)
		check(t, "Write", r.Write(ctx, registry.Batch{Bans: []fairshare.BanRecord{ban}}))
		check(t, "Note", r.Note(ctx, id(fmt.Sprintf("198.51.100.%d", n)), "x"))
		woken()
		s.Kill()
		err := r.Write(ctx, registry.Batch{Bans: []fairshare.BanRecord{banned("203.0.113.1", start, time.Hour)}})
		var e *Error
		if !errors.Is(err, registry.ErrAway) || !errors.As(err, &e) || e.Hint() == "" {
			t.Fatalf("without a server: %v", err)
		}
		if _, err := Open(ctx, s.URL("postgres"), Options{}); !errors.Is(err, registry.ErrAway) {
			t.Errorf("Open: %v", err)
		}
		s.Run(t)
		if bans := allBans(t, r, start, true); len(bans) != n+1 {
			t.Fatalf("%d bans, want %d", len(bans), n+1)
		}
		f, err := r.Client(ctx, id(fmt.Sprintf("198.51.100.%d", n)))
		if err != nil || f == nil || f.Record.Note != "x" {
			t.Errorf("the note of %d: %+v, %v", n, f, err)
		}
		woken() // it listens again
	}
}

// A server that does not answer delays a call only as long as its context allows, and a
// lost connection for notifications is opened again.
func TestStoppedServer(t *testing.T) {
	s := pgtest.Start(t)
	r := opened(t, s.URL("postgres"), Options{Listen: true})
	check(t, "Note", r.Note(ctx, id("192.0.2.1"), "x"))
	s.Signal(syscall.SIGSTOP)
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	begin := time.Now()
	if err := r.Note(short, id("192.0.2.1"), "y"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Note: %v", err)
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	s.Signal(syscall.SIGCONT)
	check(t, "Note", r.Note(ctx, id("192.0.2.1"), "z"))
	for len(r.Woken()) > 0 {
		<-r.Woken()
	}
	s.Exec(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
	select {
	case <-r.Woken():
	case <-time.After(20 * time.Second):
		t.Error("it does not listen again")
	}
	check(t, "Note", r.Note(ctx, id("192.0.2.1"), "after the connections were cut"))
}

// A process that is stopped within a transaction blocks others only for a time.
func TestStoppedMemberBlocksOthersForAWhile(t *testing.T) {
	s := pgtest.Start(t)
	r := opened(t, s.URL("postgres"), Options{})
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	check(t, "Connect", err)
	defer conn.Close(ctx)
	_, err = conn.PgConn().Exec(ctx, "BEGIN; SET LOCAL idle_in_transaction_session_timeout = '500ms'; "+
		"SELECT "+r.locks(lockChanges, lockRecords)).ReadAll()
	check(t, "BEGIN", err)
	check(t, "Note", r.Note(ctx, id("192.0.2.1"), "x"))
	_, err = conn.PgConn().Exec(ctx, "SELECT 1").ReadAll()
	if err == nil {
		t.Error("the transaction of the other process was not ended")
	}
	conn2, err := pgx.Connect(ctx, s.URL("postgres"))
	check(t, "Connect", err)
	defer conn2.Close(ctx)
	_, err = conn2.PgConn().Exec(ctx, "BEGIN; SELECT "+r.locks(lockChanges)).ReadAll()
	check(t, "BEGIN", err)
	if err := r.Note(ctx, id("192.0.2.1"), "y"); !errors.Is(err, registry.ErrBusy) {
		t.Errorf("while another holds the lock: %v", err)
	}
}

func TestStandbyIsReadOnly(t *testing.T) {
	s := pgtest.Start(t)
	r := opened(t, s.URL("postgres"), Options{Schema: "shop"})
	check(t, "Note", r.Note(ctx, id("192.0.2.1"), "x"))
	standby := s.Standby(t)
	_, err := Open(ctx, standby.URL("postgres"), Options{Schema: "shop"})
	if !errors.Is(err, registry.ErrReadOnly) || !strings.Contains(err.Error(), "standby") {
		t.Errorf("Open of a standby: %v", err)
	}
	reader := opened(t, standby.URL("postgres"), Options{Schema: "shop", ReadOnly: true})
	f, err := reader.Client(ctx, id("192.0.2.1"))
	if err != nil || f == nil || f.Record.Note != "x" {
		t.Errorf("%+v, %v", f, err)
	}
	// The primary server is found among several.
	both := fmt.Sprintf("postgres://%s@127.0.0.1:%d,127.0.0.1:%d/postgres", pgtest.User, standby.Port, s.Port)
	w := opened(t, both, Options{Schema: "shop"})
	check(t, "Note", w.Note(ctx, id("192.0.2.1"), "y"))
}

// A newer program updates older tables, once; an older program refuses newer ones.
func TestVersions(t *testing.T) {
	s := pgtest.Start(t)
	url := s.URL("postgres")
	for _, o := range []Options{{ReadOnly: true}, {MustExist: true}} {
		if _, err := Open(ctx, url, o); !errors.Is(err, registry.ErrMissing) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	old := opened(t, url, Options{Schema: "v"})
	check(t, "Note", old.Note(ctx, id("192.0.2.1"), "x"))
	newer := append(migrations[:len(migrations):len(migrations)], "ALTER TABLE {}notes ADD COLUMN by_whom text")
	var all sync.WaitGroup
	var logged sync.Map
	for n := range 4 {
		all.Go(func() {
			r, err := open(ctx, url, Options{Schema: "v", Log: func(line string) { logged.Store(line, n) }}, newer)
			if err != nil {
				t.Error(err)
				return
			}
			r.Close()
		})
	}
	all.Wait()
	lines := 0
	logged.Range(func(line, _ any) bool {
		if lines++; !strings.Contains(line.(string), "updated from version 1 to 2") {
			t.Errorf("logged: %s", line)
		}
		return true
	})
	if lines != 1 {
		t.Errorf("%d lines were logged, want 1", lines)
	}
	if _, err := Open(ctx, url, Options{Schema: "v"}); !errors.Is(err, registry.ErrNewer) {
		t.Errorf("an older program: %v", err)
	}
	s.Exec(t, "DROP TABLE v.notes")
	if err := old.Note(ctx, id("192.0.2.1"), "y"); !errors.Is(err, registry.ErrDamaged) {
		t.Errorf("without a table: %v", err)
	}
}

// A full disk of the database is an error with a hint; nothing is half written.
func TestFullDisk(t *testing.T) {
	s := pgtest.StartOn(t, 96<<20)
	r := opened(t, s.URL("postgres"), Options{Schema: "full"})
	s.Exec(t, "CREATE TABLE filler (text text)", "ALTER TABLE filler ALTER text SET STORAGE PLAIN")
	var err error
	for n := 0; err == nil && n < 200; n++ {
		var b registry.Batch
		for i := range 2000 {
			d := dirty(fmt.Sprintf("10.%d.%d.%d", n, i/250, i%250), start, 1)
			d.UserAgent = strings.Repeat("x", 256)
			b.Clients = append(b.Clients, d)
		}
		err = r.Write(ctx, b)
	}
	var e *Error
	if !errors.As(err, &e) || e.Hint() == "" || !errors.Is(err, registry.ErrFull) && !errors.Is(err, registry.ErrAway) {
		t.Fatalf("on a full disk: %v", err)
	}
}

func TestURLs(t *testing.T) {
	for url, want := range map[string]string{
		"postgres://shop:geheim@db/shop":          "the URL contains a password",
		"postgres://db/shop?password=geheim":      "the URL contains a password",
		"postgresql://db/shop?sslmode=verify-all": "sslmode",
		"mysql://db/shop":                         "does not begin with postgres://",
		"postgres://db:port/shop":                 "not a valid URL",
	} {
		_, err := Open(ctx, url, Options{})
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), want) || e.Hint() == "" {
			t.Errorf("%s: %v", url, err)
		}
		if err != nil && strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: the error contains the password: %v", url, err)
		}
	}
	_, err := Open(ctx, "postgres://127.0.0.1/shop", Options{Schema: "a; DROP"})
	if !errors.Is(err, registry.ErrArgument) {
		t.Errorf("schema: %v", err)
	}
	for url, tls := range map[string]bool{"postgres://db/shop": true, "postgres://db/shop?sslmode=disable": false,
		"postgres://127.0.0.1/shop?sslmode=disable": false, "postgres:///shop?host=/run/postgresql": false} {
		c, _, err := config(url, &Options{})
		check(t, url, err)
		if got := c.ConnConfig.TLSConfig != nil && !c.ConnConfig.TLSConfig.InsecureSkipVerify; got != tls {
			t.Errorf("%s: verifies the server: %v", url, got)
		}
	}
}

// The password comes from the function or the environment, and a user needs only the
// documented privileges.
func TestPasswordAndPrivileges(t *testing.T) {
	s := pgtest.Start(t)
	opened(t, s.URL("postgres"), Options{Schema: "shop"})
	s.Exec(t, "CREATE ROLE secret LOGIN PASSWORD 'geheim'")
	url := strings.Replace(s.URL("postgres"), pgtest.User+"@", "secret@", 1)
	password := func() (string, error) { return "geheim", nil }
	var e *Error
	_, err := Open(ctx, url, Options{Schema: "shop"})
	if !errors.As(err, &e) || !strings.Contains(e.Hint(), "password_file") {
		t.Errorf("without a password: %v", err)
	}
	_, err = Open(ctx, url, Options{Schema: "shop", Password: password})
	if !errors.Is(err, registry.ErrReadOnly) || !errors.As(err, &e) || !strings.Contains(e.Hint(), "docs/registry.md") {
		t.Errorf("without privileges: %v", err)
	}
	s.Exec(t, "GRANT USAGE ON SCHEMA shop TO secret",
		"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA shop TO secret")
	r := opened(t, url, Options{Schema: "shop", Password: password})
	check(t, "Write", r.Write(ctx, registry.Batch{Clients: []registry.ClientDelta{dirty("192.0.2.1", start, 1)},
		Bans:    []fairshare.BanRecord{banned("192.0.2.1", start, time.Hour)},
		Stories: []registry.Story{{ID: "a", Client: id("192.0.2.1"), Rule: "rapid", Last: start}}}))
	_, err = r.Prune(ctx, start.Add(1000*24*time.Hour), 100)
	check(t, "Prune", err)
	t.Setenv("PGPASSWORD", "geheim")
	opened(t, url, Options{Schema: "shop"})
}

// Texts that PostgreSQL cannot store are encoded, and all texts return as they were.
func TestTextsReturnAsTheyWere(t *testing.T) {
	for _, text := range []string{"", "Größe", "\x00", "\xff\xfe", `\x`, `\x41`, `\y`, "a\\x41"} {
		stored := encode(text)
		back, err := decode(stored)
		if back != text || err != nil || strings.Contains(stored, "\x00") {
			t.Errorf("%q became %q, then %q: %v", text, stored, back, err)
		}
	}
	if _, err := decode(`\xgg`); err == nil {
		t.Error("a broken text was decoded")
	}
}
