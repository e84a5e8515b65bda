//go:build unix

package livepolicy

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/pgregistry/pgtest"
	"fairshare/policyfile"
)

// A lockedDatabase is the registry of a member that has banned a client and has ended.
type lockedDatabase struct {
	url, folder string
	file        *policyfile.File
}

func banAndEnd(t *testing.T) *lockedDatabase {
	t.Helper()
	d := &lockedDatabase{pgtest.Start(t).URL("postgres"), t.TempDir(), parseFile(t, shareAll)}
	t.Run("a ban begins", func(t *testing.T) {
		m := openMember(t, d.url, d.file, d.folder, httpguard.NewClock())
		m.Start(t.Context())
		for range 6 {
			_, err := m.Current().Guard.Decide(t.Context(), m.request("203.0.113.7"))
			must(t, err)
		}
	})
	t.Run("the server knows that it is stored", func(t *testing.T) {
		openMember(t, d.url, d.file, d.folder, httpguard.NewClock())
	})
	return d
}

// start starts the member while a table is locked. The ban has to be in force.
func (d *lockedDatabase) start(t *testing.T, table string, clock *httpguard.Clock) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), d.url)
	must(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), "BEGIN; LOCK TABLE fairshare."+table+" IN ACCESS EXCLUSIVE MODE")
	must(t, err)
	began := time.Now()
	m := openMember(t, d.url, d.file, d.folder, clock)
	if took := time.Since(began); took > connectTime {
		t.Errorf("the start took %v", took)
	}
	v, err := m.Current().Guard.Decide(t.Context(), m.request("203.0.113.7"))
	must(t, err)
	if v.Ban != fairshare.BanInForce {
		t.Errorf("the banned client: %+v", v)
	}
}

// While a table of the database is locked, such as by a migration, a server starts soon, with the bans that it knows.
func TestStartWhileATableOfTheDatabaseIsLocked(t *testing.T) {
	d := banAndEnd(t)
	for _, table := range []string{"bans", "changes", "settings", "state"} {
		t.Run(table, func(t *testing.T) { d.start(t, table, httpguard.NewClock()) })
	}
}

// A server whose clock was set reads all bans again. It keeps those that it knows until the database sends some.
func TestBansStayWhileTheDatabaseDoesNotSendThem(t *testing.T) {
	banAndEnd(t).start(t, "bans",
		httpguard.NewClockOf(func() time.Time { return time.Now().Add(10 * time.Second) }))
}
