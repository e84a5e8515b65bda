package sqlregistry

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"fairshare"
	"fairshare/registry"
)

// childVar is the environment variable that makes this program a child process; it
// names the registry to use.
const childVar = "FAIRSHARE_REGISTRY_TEST_CHILD"

func TestMain(m *testing.M) {
	kind, path, child := strings.Cut(os.Getenv(childVar), ":")
	if !child {
		flag.Parse()
		if checks := flag.Lookup("rapid.checks"); slower > 1 && checks.Value.String() == checks.DefValue {
			_ = checks.Value.Set("10")
		}
		os.Exit(m.Run())
	}
	if err := map[string]func(string) error{"hammer": hammer, "share": share}[kind](path); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// child starts a process; out reads its output.
func child(t *testing.T, kind, path string) (c *exec.Cmd, out *bufio.Reader) {
	t.Helper()
	c = exec.Command(os.Args[0])
	c.Env = append(os.Environ(), childVar+"="+kind+":"+path)
	c.Stderr = os.Stderr
	pipe, err := c.StdoutPipe()
	check(t, "StdoutPipe", err)
	check(t, "Start", c.Start())
	return c, bufio.NewReader(pipe)
}

// hammer writes until it is killed. For each number it writes a ban, for each fifth
// also an override; then it prints the number.
func hammer(path string) error {
	r, err := Open(ctx, path, Options{Clients: 2000})
	if err != nil {
		return err
	}
	stats, err := r.Stats(ctx)
	if err != nil {
		return err
	}
	var b registry.Batch
	for i := range 200 {
		b.Clients = append(b.Clients, dirty(fmt.Sprintf("11.0.0.%d", i), start, 1))
	}
	for n := int(stats.Bans); ; n++ {
		b.Bans = []fairshare.BanRecord{banned(numbered(n), start, time.Hour)}
		if err := r.Write(ctx, b); err != nil {
			return err
		}
		if n%5 == 0 {
			if err := r.SetOverride(ctx, registry.OverrideRecord{Client: id(numbered(n)), Action: fairshare.Block,
				Since: start}); err != nil {
				return err
			}
		}
		if n%7 == 0 {
			if _, err := r.Prune(ctx, start, 100); err != nil {
				return err
			}
		}
		fmt.Println(n)
	}
}

func TestKillLosesNoWrittenData(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registry.db")
	last, written := -1, -1
	for round := range 12/slower + 3 {
		c, out := child(t, "hammer", path)
		for range 1 + rand.IntN(60/slower) {
			if _, err := fmt.Fscanln(out, &last); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
		}
		check(t, "Kill", c.Process.Kill())
		for { // the numbers printed before the kill
			if _, err := fmt.Fscanln(out, &last); err != nil {
				break
			}
		}
		if err := c.Wait(); err == nil {
			t.Fatal("the process ended without a kill")
		}
		if last <= written {
			t.Fatalf("round %d: %d after %d", round, last, written)
		}
		written = last
		r, err := Open(ctx, path, Options{})
		check(t, "Open", err)
		bans, words := map[string]bool{}, map[string]bool{}
		for _, b := range allBans(t, r, start, true) {
			bans[b.Client.String()] = true
		}
		said, _, err := r.Overrides(ctx)
		check(t, "Overrides", err)
		for _, s := range said {
			words[s.Client.String()] = true
		}
		for n := range last + 1 {
			if !bans[numbered(n)] || n%5 == 0 && !words[numbered(n)] {
				t.Errorf("round %d: of %d numbers, %d is lost", round, last, n)
			}
		}
		stats, err := r.Stats(ctx)
		check(t, "Stats", err)
		if stats.Bans != int64(len(bans)) || stats.Clients < 200 {
			t.Errorf("%+v with %d bans", stats, len(bans))
		}
		sound(t, r)
		check(t, "Close", r.Close())
	}
}

// sound checks that the file is not damaged and that its counts are right.
func sound(t testing.TB, r *Registry) {
	t.Helper()
	check(t, "reading", r.reading(ctx, func(l *link) error {
		var ok string
		if _, err := l.row(ctx, "PRAGMA integrity_check", nil, &ok); err != nil || ok != "ok" {
			t.Errorf("integrity_check: %s: %v", ok, err)
		}
		wrong, err := l.integer(ctx,
			`SELECT clients <> (SELECT count(*) FROM clients) OR bans <> (SELECT count(*) FROM bans) OR stories <> (SELECT count(*) FROM stories)
			OR stories <> (SELECT total(stories) FROM networks)`+ofCounts)
		if wrong != 0 {
			t.Error("the counts are wrong")
		}
		return err
	}))
}

const shares = 200 / slower

// share uses a registry together with other processes and prints its reference key.
func share(path string) error {
	r, err := Open(ctx, path, Options{})
	if err != nil {
		return err
	}
	key, err := r.ReferenceKey(ctx)
	if err != nil {
		return err
	}
	seen := 0
	var version registry.Version
	for n := range shares {
		own := fmt.Sprintf("10.%d.%d.%d", os.Getpid()>>8&255, os.Getpid()&255, n)
		if err := r.Write(ctx, registry.Batch{
			Clients: []registry.ClientDelta{dirty("192.0.2.1", start, 1), dirty(own, start, 1)},
			Bans:    []fairshare.BanRecord{banned(own, start, time.Hour)}}); err != nil {
			return err
		}
		if err := r.SetOverride(ctx, registry.OverrideRecord{Client: id(own), Action: fairshare.Block,
			Since: start}); err != nil {
			return err
		}
		c, err := r.Changes(ctx, version)
		if err != nil {
			return err
		}
		if c.Overrides {
			seen++
		}
		version = c.Version
		if n%10 == 9 {
			if _, err := r.Lift(ctx, id(own), start); err != nil {
				return err
			}
		}
	}
	if seen != shares {
		return fmt.Errorf("%d changes were seen, not %d", seen, shares)
	}
	fmt.Printf("%x\n", key)
	return r.Close()
}

// Several processes create a registry at the same time, and use it at the same time.
func TestProcessesShareARegistry(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registry.db")
	const processes = 3
	keys := make(chan string, processes)
	var all sync.WaitGroup
	for range processes {
		c, out := child(t, "share", path)
		all.Go(func() {
			text, err := io.ReadAll(out)
			if err == nil {
				err = c.Wait()
			}
			if err != nil {
				t.Errorf("a child: %v", err)
			}
			keys <- string(text)
		})
	}
	r := opened(t, path, Options{})
	all.Wait()
	key, err := r.ReferenceKey(ctx)
	check(t, "ReferenceKey", err)
	for range processes {
		if got := <-keys; got != fmt.Sprintf("%x\n", key) {
			t.Errorf("a child has the key %s", got)
		}
	}
	found, err := r.Client(ctx, id("192.0.2.1"))
	check(t, "Client", err)
	if found.Record.Spent.Requests != processes*shares {
		t.Errorf("%d requests", found.Record.Spent.Requests)
	}
	stats, err := r.Stats(ctx)
	check(t, "Stats", err)
	if stats.Overrides != processes*shares || stats.Clients != processes*shares+1 ||
		stats.Bans != processes*shares*9/10 {
		t.Errorf("%+v", stats)
	}
	sound(t, r)
}

// Many goroutines use one registry, and one of them closes it.
func TestGoroutinesShareARegistry(t *testing.T) {
	path := filled(t, 300)
	r := opened(t, path, Options{})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 3 {
				for _, err := range useAll(r) {
					if !strings.Contains(err.Error(), "closed") {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Go(func() { check(t, "Close", r.Close()) })
	all.Wait()
	sound(t, opened(t, path, Options{}))
}

// A caller that reads a listing slowly, or stops, does not delay writes.
func TestReadsDoNotBlockWrites(t *testing.T) {
	r := opened(t, "", Options{})
	b := registry.Batch{}
	for n := range 3 * bansPage {
		b.Bans = append(b.Bans, banned(numbered(n), start, time.Hour))
	}
	check(t, "Write", r.Write(ctx, b))
	seen := 0
	for _, err := range r.Bans(ctx, start, false) {
		check(t, "Bans", err)
		if seen++; seen%bansPage == 0 {
			check(t, "Note", r.Note(ctx, id("192.0.2.1"), fmt.Sprint(seen)))
			_, err := r.Changes(ctx, registry.Version{})
			check(t, "Changes", err)
			pages, all, err := checkpointOnce(r)
			check(t, "checkpoint", err)
			if !all {
				t.Errorf("%d pages wait for a reader", pages)
			}
		}
		if seen == 2*bansPage {
			break
		}
	}
}

func checkpointOnce(r *Registry) (pages int64, all bool, err error) {
	l, err := connect(ctx, r.path, mode{mode: "rw"}, time.Second, smallCache)
	if err != nil {
		return 0, false, err
	}
	defer l.close()
	// The registry's own checkpoint or a finished reading may be in the way for a
	// moment. A listing would be until it ends, and so would all of these.
	for range 100 {
		if pages, all, err = checkpoint(ctx, l); err != nil || all {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	return pages, all, err
}

// The -wal file does not grow with the total of all writes.
func TestWALIsBounded(t *testing.T) {
	r := opened(t, "", Options{})
	most := int64(0)
	for n := range 300 / slower {
		var b registry.Batch
		for i := range 250 {
			b.Clients = append(b.Clients, dirty(numbered(rand.IntN(1<<24)|i), start, 1))
		}
		check(t, "Write", r.Write(ctx, b))
		info, err := os.Stat(r.path + "-wal")
		check(t, "Stat", err)
		most = max(most, info.Size())
		if n%10 == 0 {
			_, err := r.Prune(ctx, start, 1000)
			check(t, "Prune", err)
		}
	}
	if most > 200<<20 {
		t.Errorf("it had %d MB", most>>20)
	}
}
