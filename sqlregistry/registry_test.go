package sqlregistry

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"fairshare"
	"fairshare/registry"
	"fairshare/registry/registrytest"
)

var (
	ctx   = context.Background()
	start = time.Date(2026, 11, 21, 4, 0, 0, 123456789, time.UTC)
)

// opened returns a registry in its own file, or in an existing one.
func opened(t testing.TB, path string, o Options) *Registry {
	t.Helper()
	if path == "" {
		path = filepath.Join(t.TempDir(), "registry.db")
	}
	r, err := Open(ctx, path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// The helpers of registrytest.
var (
	id, check, same           = registrytest.ID, registrytest.Check, registrytest.Same
	dirty, banned, allBans    = registrytest.Delta, registrytest.Ban, registrytest.AllBans
	numbered, many, manyDirty = registrytest.Numbered, registrytest.Many, registrytest.ManyDeltas
)

const orderly = registrytest.Orderly

// inFolder opens files in a folder.
func inFolder(t testing.TB) registrytest.Opener {
	dir, files := t.TempDir(), 0
	return func(t testing.TB, name string, b registry.Bounds) registry.Registry {
		t.Helper()
		if files++; name == "" {
			name = fmt.Sprint("file ", files)
		}
		name = filepath.Join(dir, url.PathEscape(t.Name()+" "+name)+".db")
		return opened(t, name, Options{Clients: b.Clients, Stories: b.Stories, Bans: b.Bans, Age: b.Age})
	}
}

func TestRegistry(t *testing.T) {
	open := inFolder(t)
	registrytest.Run(t, func(t testing.TB, name string, b registry.Bounds) registry.Registry {
		r := open(t, name, b).(*Registry)
		t.Cleanup(func() { // before it is closed
			select {
			case <-r.closing:
			default:
				sound(t, r)
			}
		})
		return r
	})
}

func TestFileIsPrivateAndCreatedOnlyOnRequest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registry.db")
	for _, o := range []Options{{ReadOnly: true}, {MustExist: true}} {
		if _, err := Open(ctx, path, o); !is(err, ErrMissing) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	r := opened(t, path, Options{})
	check(t, "Note", r.Note(ctx, id("192.0.2.1"), "hello"))
	files, err := filepath.Glob(path + "*")
	check(t, "Glob", err)
	if len(files) != 3 {
		t.Errorf("files %q, want the file, -wal and -shm", files)
	}
	for _, file := range files {
		info, err := os.Stat(file)
		check(t, "Stat", err)
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", file, info.Mode())
		}
	}
}

// Operators' changes are synced, a server's data is not.
func TestOperatorsChangesAreSynced(t *testing.T) {
	r := opened(t, "", Options{})
	level := func() int64 {
		w := <-r.writer
		defer func() { r.writer <- w }()
		n, err := w.integer(ctx, "PRAGMA synchronous")
		check(t, "synchronous", err)
		return n
	}
	const normal, full = 1, 2
	client := id("192.0.2.1")
	for name, call := range map[string]func() error{
		"SetOverride": func() error {
			return r.SetOverride(ctx, registry.OverrideRecord{Client: client, Action: fairshare.Block})
		},
		"RemoveOverride": func() error { _, err := r.RemoveOverride(ctx, client); return err },
		"Lift":           func() error { _, err := r.Lift(ctx, client, start); return err },
		"Label":          func() error { return r.Label(ctx, registry.Label{Client: client, Name: "good-partner"}) },
		"Unlabel":        func() error { _, err := r.Unlabel(ctx, client, ""); return err },
		"Note":           func() error { return r.Note(ctx, client, "n") },
		"Forget":         func() error { _, err := r.Forget(ctx, client, start); return err },
	} {
		check(t, "Write", r.Write(ctx, registry.Batch{Clients: []registry.ClientDelta{dirty("192.0.2.2", start, 1)}}))
		if n := level(); n != normal {
			t.Errorf("Write: %d, want %d", n, normal)
		}
		check(t, name, call())
		if n := level(); n != full {
			t.Errorf("%s: %d, want %d", name, n, full)
		}
	}
}
