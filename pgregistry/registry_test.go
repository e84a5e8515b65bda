//go:build unix

package pgregistry

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fairshare/pgregistry/pgtest"
	"fairshare/registry"
	"fairshare/registry/registrytest"
)

var (
	ctx   = context.Background()
	start = time.Date(2021, 11, 21, 4, 0, 0, 123456789, time.UTC)

	id, check, same        = registrytest.ID, registrytest.Check, registrytest.Same
	dirty, banned, allBans = registrytest.Delta, registrytest.Ban, registrytest.AllBans

	schemas atomic.Int64
	long    = flag.Int("long", 0, "rows of the large registry that TestLarge makes, as 5000000: several minutes")
)

// opened returns a registry in a schema of its own, or in an existing one.
func opened(t testing.TB, url string, o Options) *Registry {
	t.Helper()
	if o.Schema == "" {
		o.Schema = fmt.Sprint("t", schemas.Add(1))
	}
	r, err := Open(ctx, url, o)
	check(t, "Open", err)
	t.Cleanup(func() { r.Close() })
	return r
}

// in opens registries in schemas of a server.
func in(s *pgtest.Server) registrytest.Opener {
	return func(t testing.TB, name string, b registry.Bounds) registry.Registry {
		t.Helper()
		return openedIn(t, s, name, Options{Bounds: b})
	}
}

var known sync.Map // test and name → schema

// openedIn opens a registry in a schema of its own or, in one test, in that of its name.
func openedIn(t testing.TB, s *pgtest.Server, name string, o Options) registry.Registry {
	t.Helper()
	o.Schema = fmt.Sprint("r", schemas.Add(1))
	if name != "" {
		of, _ := known.LoadOrStore(t.Name()+" "+name, o.Schema)
		o.Schema = of.(string)
	}
	r := opened(t, s.URL("postgres"), o)
	t.Cleanup(func() { // before it is closed
		if r.closing.Err() == nil {
			sound(t, r)
		}
	})
	return r
}

// sound checks that all counts are right.
func sound(t testing.TB, r *Registry) {
	t.Helper()
	var wrong bool
	_, err := r.row(ctx, r.pool, `SELECT sum(clients) <> (SELECT count(*) FROM {}clients) OR sum(bans) <> (SELECT count(*) FROM {}bans)
		OR sum(stories) <> (SELECT count(*) FROM {}stories)
		OR sum(stories) <> (SELECT coalesce(sum(stories), 0) FROM {}networks) FROM {}counts`, nil, &wrong)
	if err != nil || wrong {
		t.Errorf("the counts are wrong: %v %v", wrong, err)
	}
}

func TestRegistry(t *testing.T) {
	registrytest.Run(t, in(pgtest.Start(t, "max_connections=500")))
}

// TestLarge measures a large registry; it fails only if an answer is wrong.
func TestLarge(t *testing.T) {
	if *long == 0 {
		t.Skip("go test ./pgregistry -run TestLarge -v -long 5000000 measures a large registry")
	}
	registrytest.Large(t, *long, in(pgtest.Start(t, "shared_buffers=1GB", "max_wal_size=4GB", "fsync=on")))
}

// Some sequences of random calls are enough here: the file registry has many more.
func TestMain(m *testing.M) {
	flag.Parse()
	if checks := flag.Lookup("rapid.checks"); checks.Value.String() == checks.DefValue {
		_ = checks.Value.Set("12")
	}
	os.Exit(m.Run())
}
