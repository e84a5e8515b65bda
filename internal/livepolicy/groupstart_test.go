//go:build unix

package livepolicy

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/pgregistry/pgtest"
)

// While a table of the database is locked, such as by a migration, a server starts soon, with the bans that it knows.
func TestStartWhileATableOfTheDatabaseIsLocked(t *testing.T) {
	db := pgtest.Start(t)
	url, folder := db.URL("postgres"), t.TempDir()
	file := parseFile(t, shareAll)
	t.Run("before", func(t *testing.T) {
		m := openMember(t, url, file, folder, httpguard.NewClock())
		m.Start(t.Context())
		for range 6 {
			if _, err := m.Current().Guard.Decide(t.Context(), m.request("203.0.113.7")); err != nil {
				t.Fatal(err)
			}
		}
	})
	conn, err := pgx.Connect(t.Context(), url)
	must(t, err)
	defer conn.Close(t.Context())
	for _, table := range []string{"bans", "changes", "settings", "state"} {
		t.Run(table, func(t *testing.T) {
			_, err := conn.Exec(t.Context(), "BEGIN; LOCK TABLE fairshare."+table+" IN ACCESS EXCLUSIVE MODE")
			must(t, err)
			began := time.Now()
			m := openMember(t, url, file, folder, httpguard.NewClock())
			took := time.Since(began)
			_, err = conn.Exec(t.Context(), "ROLLBACK")
			must(t, err)
			if took > 3*connectTime/2 {
				t.Errorf("it took %v", took)
			}
			v, err := m.Current().Guard.Decide(t.Context(), m.request("203.0.113.7"))
			must(t, err)
			if v.Action != fairshare.Refuse {
				t.Errorf("the banned client: %v", v.Action)
			}
		})
	}
}
