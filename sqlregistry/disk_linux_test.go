package sqlregistry

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"fairshare"
	"fairshare/internal/smalldisk"
	"fairshare/registry"
)

// fillUp fills the disk. makeRoom frees the space again.
func fillUp(t *testing.T, dir string) (makeRoom func()) {
	filler := filepath.Join(dir, "filler")
	f, err := os.Create(filler)
	check(t, "Create", err)
	defer f.Close()
	for _, piece := range []int{64 << 10, 1} {
		for {
			if _, err := f.Write(make([]byte, piece)); err != nil {
				break
			}
		}
	}
	return func() { check(t, "Remove", os.Remove(filler)) }
}

// crashed puts a registry into dir as a killed process leaves it: most of its data is
// in the -wal file. It holds an override and a ban.
func crashed(t *testing.T, dir string) (path string) {
	from := filled(t, 20)
	r, err := Open(ctx, from, Options{})
	check(t, "Open", err)
	check(t, "SetOverride", r.SetOverride(ctx, registry.OverrideRecord{Client: id("192.0.2.7"),
		Action: fairshare.Block, Since: start}))
	check(t, "Write", r.Write(ctx, registry.Batch{Bans: []fairshare.BanRecord{banned("192.0.2.8", start, time.Hour)}}))
	for _, suffix := range []string{"", "-wal"} {
		content, err := os.ReadFile(from + suffix)
		check(t, "ReadFile", err)
		check(t, "WriteFile", os.WriteFile(filepath.Join(dir, "registry.db"+suffix), content, 0o600))
	}
	check(t, "Close", r.Close())
	return filepath.Join(dir, "registry.db")
}

// remembered checks that the override and the ban of crashed are there.
func remembered(t *testing.T, r *Registry) {
	t.Helper()
	found, err := r.Client(ctx, id("192.0.2.7"))
	check(t, "Client", err)
	if found == nil || found.Record.Override == nil || found.Record.Override.Action != fairshare.Block {
		t.Errorf("the override is lost: %+v", found)
	}
	found, err = r.Client(ctx, id("192.0.2.8"))
	check(t, "Client", err)
	if found == nil || len(found.Bans) != 1 {
		t.Errorf("the ban is lost: %+v", found)
	}
	overrides, _, err := r.Overrides(ctx)
	check(t, "Overrides", err)
	if len(overrides) != 6 || len(allBans(t, r, start, true)) != 5 {
		t.Errorf("%d overrides, %d bans", len(overrides), len(allBans(t, r, start, true)))
	}
}

func TestWritesOnAFullDiskFail(t *testing.T) {
	dir := smalldisk.New(t, 4<<20)
	r := opened(t, filepath.Join(dir, "registry.db"), Options{})
	check(t, "SetOverride", r.SetOverride(ctx, registry.OverrideRecord{Client: id("192.0.2.7"),
		Action: fairshare.Block, Since: start}))
	makeRoom := fillUp(t, dir)
	write := func(n int) error {
		var b registry.Batch
		for i := range 100 {
			b.Clients = append(b.Clients, dirty(fmt.Sprintf("10.0.%d.%d", n, i), start, 1))
		}
		return r.Write(ctx, b)
	}
	written := 0
	var err error
	for ; written < 100 && err == nil; written++ {
		err = write(written)
	}
	if !is(err, ErrFull) || strings.Contains(err.Error(), "(") {
		t.Fatalf("after %d batches: %v", written, err)
	}
	if err := r.SetOverride(ctx, registry.OverrideRecord{Client: id("192.0.2.9"), Action: fairshare.Block,
		Since: start}); err != nil && !is(err, ErrFull) {
		t.Errorf("SetOverride: %v", err)
	}
	found, err := r.Client(ctx, id("192.0.2.7"))
	if err != nil || found == nil || found.Record.Override == nil {
		t.Errorf("%+v: %v", found, err)
	}
	makeRoom()
	check(t, "Write", write(written-1))
	stats, err := r.Stats(ctx)
	check(t, "Stats", err)
	if want := int64(written*100) + 1; stats.Clients != want && stats.Clients != want+1 {
		t.Errorf("%d clients, want %d", stats.Clients, want)
	}
	l, err := connect(ctx, r.path, mode{mode: "ro"}, time.Second, smallCache)
	check(t, "connect", err)
	var ok string
	_, err = l.row(ctx, "PRAGMA integrity_check", nil, &ok)
	check(t, "integrity_check", err)
	check(t, "close", l.close())
	if ok != "ok" {
		t.Error(ok)
	}
}

// If only the -wal file fills the disk, a checkpoint frees space: it copies the pages
// into the file, which has the space already.
func TestDiskFilledByTheWALIsFreed(t *testing.T) {
	dir := smalldisk.New(t, 4<<20)
	var messages atomic.Int64
	path := filepath.Join(dir, "registry.db")
	r := opened(t, path, Options{Log: func(string) { messages.Add(1) }})
	var known registry.Batch
	for i := range 200 { // no row grows
		known.Clients = append(known.Clients, dirty(fmt.Sprintf("10.%d.0.1", i), start, 50))
	}
	check(t, "Write", r.Write(ctx, known))
	check(t, "Close", r.Close())
	r = opened(t, path, Options{Log: r.o.Log})
	writes := 0 // of one row each, so that the disk is full before a checkpoint is due
	write := func() error {
		err := r.Write(ctx, registry.Batch{Clients: []registry.ClientDelta{
			dirty(fmt.Sprintf("10.%d.0.1", writes%200), start, 1)}})
		if err == nil {
			writes++
		}
		return err
	}
	var err error
	for err == nil && writes < checkEvery {
		err = write()
	}
	size := func(suffix string) int64 {
		info, err := os.Stat(path + suffix)
		check(t, "Stat", err)
		return info.Size()
	}
	if !is(err, ErrFull) || size("-wal") < 3<<20 || size("") > 1<<20 {
		t.Fatalf("after %d writes: %v; the file has %d bytes, -wal %d", writes, err, size(""), size("-wal"))
	}
	for end := time.Now().Add(time.Minute); writes < 3*checkEvery; { // the disk fills and is freed again
		if err := write(); err != nil && !is(err, ErrFull) || time.Now().After(end) {
			t.Fatalf("after %d writes: %v", writes, err)
		}
	}
	found, err := r.Client(ctx, id("10.0.0.1"))
	check(t, "Client", err)
	if want := int64(50 + 3*checkEvery/200); found == nil || found.Record.Spent.Requests != want {
		t.Errorf("%+v, want %d requests", found, want)
	}
	if messages.Load() != 0 {
		t.Errorf("%d messages", messages.Load())
	}
}

// Overrides and bans can be read from a full disk, after a crash and after Close.
func TestRegistryOnAFullDiskCanBeRead(t *testing.T) {
	for _, end := range []string{"crash", "good"} {
		t.Run(end, func(t *testing.T) {
			dir := smalldisk.New(t, 4<<20)
			path := crashed(t, dir)
			if end == "good" {
				r, err := Open(ctx, path, Options{})
				check(t, "Open", err)
				check(t, "Close", r.Close())
			}
			makeRoom := fillUp(t, dir)
			if r, err := Open(ctx, path, Options{}); err == nil { // then reading works, too
				remembered(t, r)
				check(t, "Close", r.Close())
			} else if !is(err, ErrFull) {
				t.Errorf("Open: %v", err)
			}
			for range 2 {
				r, err := Open(ctx, path, Options{ReadOnly: true})
				check(t, "Open", err)
				remembered(t, r)
				if _, err := r.Changes(ctx, registry.Version{}); err != nil {
					t.Error(err)
				}
				again, err := Open(ctx, path, Options{ReadOnly: true}) // while the first is open
				check(t, "Open", err)
				remembered(t, again)
				check(t, "Close", again.Close())
				check(t, "Close", r.Close())
			}
			read, err := Open(ctx, path, Options{ReadOnly: true})
			check(t, "Open", err)
			makeRoom()
			written := opened(t, path, Options{})
			remembered(t, written)
			check(t, "SetOverride", written.SetOverride(ctx,
				registry.OverrideRecord{Client: id("192.0.2.7"), Action: fairshare.Block,
					Since: start, Reason: "again"}))
			found, err := read.Client(ctx, id("192.0.2.7"))
			check(t, "Client", err)
			if found.Record.Override.Reason != "again" {
				t.Errorf("it reads old data: %+v", found.Record.Override)
			}
			check(t, "Close", read.Close())
		})
	}
	dir := smalldisk.New(t, 1<<20)
	defer fillUp(t, dir)()
	if _, err := Open(ctx, filepath.Join(dir, "registry.db"), Options{}); !is(err, ErrFull) {
		t.Errorf("new: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "registry*")); left != nil {
		t.Errorf("these files remain: %q", left)
	}
}

func TestRegistryOnAReadOnlyDiskCanBeRead(t *testing.T) {
	for _, end := range []string{"crash", "good"} {
		t.Run(end, func(t *testing.T) {
			dir := smalldisk.New(t, 4<<20)
			path := crashed(t, dir)
			if end == "good" {
				r, err := Open(ctx, path, Options{})
				check(t, "Open", err)
				check(t, "Close", r.Close())
			}
			check(t, "Mount", syscall.Mount("fairshare", dir, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
			if _, err := Open(ctx, path, Options{}); !is(err, ErrReadOnly) {
				t.Errorf("Open: %v", err)
			}
			r, err := Open(ctx, path, Options{ReadOnly: true})
			if end == "crash" { // the -wal file cannot be read without writing
				if !is(err, ErrReadOnly) {
					t.Errorf("Open read-only: %v", err)
				}
				return
			}
			check(t, "Open", err)
			remembered(t, r)
			check(t, "Close", r.Close())
		})
	}
}
