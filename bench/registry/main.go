//go:build linux

// Command registry compares the two registries, the file and PostgreSQL, with many clients, and prints the table of
// BENCHMARKS.md. Both do the same calls, one after the other. It starts a PostgreSQL server of its own on loopback in
// the temporary folder, with a disk that is synced, and removes all at the end.
//
//	cd bench && go run ./registry [-clients 5000000]
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"fairshare/pgregistry"
	"fairshare/pgregistry/pgtest"
	"fairshare/registry"
	"fairshare/registry/registrytest"
	"fairshare/sqlregistry"
)

func main() {
	log.SetFlags(0)
	clients := flag.Int("clients", 5_000_000, "clients in each registry; 5000000 need about 6 GB")
	flag.Parse()
	dir, err := os.MkdirTemp("", "fairshare-registry")
	if err != nil {
		log.Fatal(err)
	}
	end := &cleaner{B: new(testing.B)}
	end.Cleanup(func() { os.RemoveAll(dir) })
	defer end.clean()
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-interrupted
		end.Fatal("interrupted")
	}()
	if err := run(dir, *clients, end); err != nil {
		end.Fatal(err)
	}
}

// A cleaner is what pgtest needs of a test.
type cleaner struct {
	*testing.B
	all []func()
}

func (c *cleaner) Cleanup(do func()) { c.all = append(c.all, do) }
func (c *cleaner) Skip(args ...any)  { c.Fatal(args...) }
func (c *cleaner) Fatalf(format string, args ...any) {
	c.Fatal(fmt.Sprintf(format, args...))
}

func (c *cleaner) Fatal(args ...any) {
	c.clean()
	log.Fatal(args...)
}

func (c *cleaner) clean() {
	for len(c.all) > 0 {
		last := len(c.all) - 1
		do := c.all[last]
		c.all = c.all[:last]
		do()
	}
}

// A side is one of the registries.
type side struct {
	registrytest.Load
	steps   []registrytest.Step
	medians map[string]time.Duration
}

func run(dir string, clients int, end *cleaner) error {
	ctx := context.Background()
	server := pgtest.Start(end, "shared_buffers=1GB", "max_wal_size=4GB", "fsync=on", "max_connections=200")
	keep := func(r registry.Registry, err error) (registry.Registry, error) {
		if err == nil {
			end.Cleanup(func() { r.Close() })
		}
		return r, err
	}
	file, database := &side{}, &side{}
	file.Open = func(b registry.Bounds) (registry.Registry, error) {
		return keep(sqlregistry.Open(ctx, filepath.Join(dir, "registry.db"), sqlregistry.Options{Clients: b.Clients,
			Bans: b.Bans}))
	}
	database.Open = func(b registry.Bounds) (registry.Registry, error) {
		return keep(pgregistry.Open(ctx, server.URL("postgres"), pgregistry.Options{Bounds: b}))
	}
	both := []*side{file, database}
	fill := func(n int) error {
		for i, s := range both {
			begin := time.Now()
			if err := s.Fill(n); err != nil {
				return err
			}
			log.Printf("%d clients in %s, %v", n, []string{"the file", "PostgreSQL"}[i],
				time.Since(begin).Round(time.Second))
		}
		return nil
	}
	for _, n := range []int{1000, clients} {
		if err := fill(n); err != nil {
			return err
		}
		file.steps, database.steps = file.Steps(), database.Steps()
		if err := measure(n, file, database); err != nil {
			return err
		}
	}
	server.Exec(end, "ANALYZE") // as autovacuum does after a while
	file.steps, database.steps = file.LastSteps(), database.LastSteps()
	return measure(clients, file, database)
}

// measure measures each step of both sides in turn, and prints a table.
func measure(clients int, file, database *side) error {
	for i := range file.steps {
		for more := true; more; {
			var err error
			if more, err = file.Measure(&file.steps[i]); err != nil {
				return err
			}
			if _, err = database.Measure(&database.steps[i]); err != nil {
				return err
			}
		}
		log.Print(file.steps[i].Name)
	}
	var names []string
	names, file.medians = file.Took()
	_, database.medians = database.Took()
	fmt.Printf("\n| %d clients, medians | file | PostgreSQL | ratio |\n|---|---|---|---|\n", clients)
	for _, name := range names {
		a, b := file.medians[name], database.medians[name]
		fmt.Printf("| %s | %s | %s | %.2g |\n", name, duration(a), duration(b), b.Seconds()/a.Seconds())
	}
	return nil
}

// duration writes a duration with two or three digits.
func duration(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < time.Second:
		return strings.TrimSuffix(fmt.Sprintf("%.3g ms", d.Seconds()*1e3), ".0")
	}
	return fmt.Sprintf("%.3g s", d.Seconds())
}
