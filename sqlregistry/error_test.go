package sqlregistry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairshare"
	"fairshare/registry"
	"fairshare/registry/key"
)

// is reports whether err has a kind and a hint.
func is(err, kind error) bool {
	var e *Error
	return errors.Is(err, kind) && errors.As(err, &e) && e.Hint() != "" && strings.Contains(e.Error(), e.Path) &&
		!strings.Contains(e.Error(), "SQL ")
}

// filled creates a registry with rows in every table, closes it and returns its path.
func filled(t testing.TB, clients int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "registry.db")
	r, err := Open(ctx, path, Options{})
	check(t, "Open", err)
	var b registry.Batch
	for i := range clients {
		name := fmt.Sprintf("10.0.%d.%d", i/256, i%256)
		d := dirty(name, start.Add(time.Duration(i)), int64(i))
		d.Spent.Refused, d.Bot = int64(i), "bot"
		b.Clients = append(b.Clients, d)
		if i%4 == 0 {
			b.Bans = append(b.Bans, banned(name, start, time.Hour))
			b.Stories = append(b.Stories, registry.Story{ID: name, Client: id(name), Rule: "rapid", Last: start,
				Path: strings.Repeat("/x", 100)})
		}
	}
	check(t, "Write", r.Write(ctx, b))
	for i := range min(5, clients/3) {
		client := b.Clients[i*3].Client
		check(t, "SetOverride", r.SetOverride(ctx, registry.OverrideRecord{Client: client, Action: fairshare.Block,
			Since: start}))
		check(t, "Label", r.Label(ctx, registry.Label{Client: client, Name: "x"}))
		check(t, "Note", r.Note(ctx, client, "y"))
	}
	_, err = r.Lift(ctx, id("10.0.0.0"), start)
	check(t, "Lift", err)
	check(t, "Close", r.Close())
	return path
}

// useAll calls all methods and returns the errors.
func useAll(r *Registry) (errs []error) {
	add := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	_, _, err := r.Overrides(ctx)
	add(err)
	for _, sort := range []string{"requests", "refused", "cpu", "last-seen"} {
		_, err = r.Clients(ctx, registry.Query{Sort: sort, Limit: 1000})
		add(err)
	}
	_, err = r.Clients(ctx, registry.Query{Bot: "bot"})
	add(err)
	_, err = r.Client(ctx, id("10.0.0.0/24"))
	add(err)
	_, err = r.Client(ctx, id("10.0.0.4"))
	add(err)
	for _, err := range r.Bans(ctx, start, true) {
		add(err)
	}
	_, err = r.Story(ctx, "10.0.0.4")
	add(err)
	_, err = r.Stories(ctx, id("10.0.0.0/8"), 1000)
	add(err)
	_, err = r.Stats(ctx)
	add(err)
	_, err = r.Settings(ctx)
	add(err)
	_, err = r.ReferenceKey(ctx)
	add(err)
	_, err = r.Changes(ctx, registry.Version{Overrides: 1})
	add(err)
	if r.o.ReadOnly {
		return errs
	}
	add(r.Write(ctx, registry.Batch{
		Clients: []registry.ClientDelta{dirty("10.0.0.9", start, 1), dirty("10.9.0.9", start, 1)},
		Bans:    []fairshare.BanRecord{banned("10.0.0.9", start.Add(1), time.Hour)},
		Stories: []registry.Story{{ID: "a", Client: id("10.0.0.4"), Rule: "rapid"},
			{ID: "b", Client: id("10.0.0.5"), Rule: "rapid"}}}))
	add(r.SetOverride(ctx, registry.OverrideRecord{Client: id("10.0.0.5"), Action: fairshare.Allow, Since: start}))
	_, err = r.RemoveOverride(ctx, id("10.0.0.3"))
	add(err)
	_, err = r.Lift(ctx, id("10.0.0.16/28"), start)
	add(err)
	_, err = r.Prune(ctx, start.Add(91*24*time.Hour), 20)
	add(err)
	_, err = r.Forget(ctx, id("10.0.0.32/27"), start)
	add(err)
	return errs
}

func TestOtherFilesAreReportedAsDamaged(t *testing.T) {
	good, err := os.ReadFile(filled(t, 300))
	check(t, "ReadFile", err)
	other := filepath.Join(t.TempDir(), "other.db")
	check(t, "touch", touch(other))
	l, err := connect(ctx, other, mode{mode: "rw"}, time.Second, smallCache)
	check(t, "connect", err)
	_, err = l.conn.ExecContext(ctx, "CREATE TABLE t (a)")
	check(t, "CREATE", err)
	check(t, "close", l.close())
	text, err := os.ReadFile(other)
	check(t, "ReadFile", err)
	for what, content := range map[string][]byte{
		"empty":                    {},
		"a text":                   []byte(strings.Repeat("no registry\n", 1000)),
		"another program's":        text,
		"garbage at its beginning": append([]byte(strings.Repeat("x", 100)), good[100:]...),
		"cut to a page":            good[:4096],
		"cut to the half":          good[:len(good)/8192*4096],
		"cut within a page":        good[:len(good)-1000],
	} {
		path := filepath.Join(t.TempDir(), "registry.db")
		for _, o := range []Options{{}, {ReadOnly: true}} {
			check(t, "WriteFile", os.WriteFile(path, content, 0o600))
			r, err := Open(ctx, path, o)
			if !is(err, ErrDamaged) {
				t.Errorf("%s, %+v: %v", what, o, err)
			}
			if err == nil {
				r.Close()
			}
			if after, _ := os.ReadFile(path); len(after) != len(content) {
				t.Errorf("%s: it has %d bytes, not %d", what, len(after), len(content))
			}
		}
		if !strings.Contains((&Error{Path: path, Kind: ErrDamaged}).Hint(), path) {
			t.Error("the hint does not name the file")
		}
	}
}

// With any byte changed, each call returns data or ErrDamaged.
func TestFlippedBytesAreReportedAsDamage(t *testing.T) {
	good, err := os.ReadFile(filled(t, 300))
	check(t, "ReadFile", err)
	path := filepath.Join(t.TempDir(), "registry.db")
	found, random := 0, rand.New(rand.NewPCG(1, 2))
	for n := range 400 / slower {
		bad := append([]byte(nil), good...)
		at := random.IntN(len(bad))
		switch n % 3 {
		case 0:
			bad[at] ^= 1 << random.IntN(8)
		case 1: // the head of a page
			at = at/4096*4096 + random.IntN(40)
			bad[at] = byte(random.Uint32())
		case 2:
			for i := at; i < min(at+300, len(bad)); i++ {
				bad[i] = byte(random.Uint32())
			}
		}
		check(t, "WriteFile", os.WriteFile(path, bad, 0o600))
		r, err := Open(ctx, path, Options{busy: time.Millisecond})
		errs := []error{err}
		if err == nil {
			errs = useAll(r)
			if err := r.Close(); err != nil {
				errs = append(errs, err)
			}
		}
		for _, err := range errs {
			if !is(err, ErrDamaged) && !is(err, ErrNewer) {
				t.Errorf("byte %d: %v", at, err)
			}
		}
		if len(errs) > 0 {
			found++
		}
		for _, suffix := range []string{"-wal", "-shm", "-journal", fmt.Sprintf(".v%d", len(migrations))} {
			_ = os.Remove(path + suffix)
		}
	}
	if found < 50/slower {
		t.Errorf("only %d changes were detected: the test shows nothing", found)
	}
}

func TestNewerVersionIsNotChanged(t *testing.T) {
	path := filled(t, 20)
	more := append(append([]string{}, migrations...), "CREATE TABLE later (a);")
	r, err := open(ctx, path, Options{}, more)
	check(t, "open", err)
	check(t, "Close", r.Close())
	for _, o := range []Options{{}, {ReadOnly: true}} {
		if _, err := Open(ctx, path, o); !is(err, ErrNewer) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func TestMigrationKeepsACopy(t *testing.T) {
	path := filled(t, 300)
	var messages []string
	o := Options{Log: func(s string) { messages = append(messages, s) }}
	more := append(append([]string{}, migrations...), "ALTER TABLE notes ADD COLUMN by TEXT NOT NULL DEFAULT 'x';",
		"CREATE TABLE later (a);")
	if _, err := open(ctx, path, Options{ReadOnly: true}, more); err == nil || errors.Is(err, ErrDamaged) {
		t.Errorf("read-only: %v", err)
	}
	copied := fmt.Sprintf("%s.v%d", path, len(migrations))
	bad := append(append([]string{}, migrations...), "CREATE TABLE later (a); CREATE TABLE words (a);")
	if _, err := open(ctx, path, o, bad); err == nil {
		t.Error("a migration that fails is passed over")
	}
	r, err := open(ctx, path, o, more)
	check(t, "open", err)
	if errs := useAll(r); errs != nil {
		t.Error(errs)
	}
	check(t, "Close", r.Close())
	if len(messages) != 1 || !strings.Contains(messages[0], copied) {
		t.Errorf("logged %q", messages)
	}
	info, err := os.Stat(copied)
	check(t, "Stat", err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the copy has mode %v", info.Mode())
	}
	old := opened(t, copied, Options{})
	if stats, err := old.Stats(ctx); err != nil || stats.Clients != 300 || stats.Overrides != 5 {
		t.Errorf("the copy has %+v: %v", stats, err)
	}
	if left, _ := filepath.Glob(path + "*new*"); left != nil {
		t.Errorf("these files remain: %q", left)
	}
}

// A registry of version 1 keeps its stories, and its copy stays as it was.
func TestStoriesOfVersion1AreMigrated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registry.db")
	old, err := open(ctx, path, Options{}, migrations[:1])
	check(t, "open", err)
	check(t, "Close", old.Close())
	l, err := connect(ctx, path, mode{mode: "rw"}, time.Second, smallCache)
	check(t, "connect", err)
	k, err := key.Of(id("192.0.2.1"))
	check(t, "keyOf", err)
	_, err = l.conn.ExecContext(ctx,
		`INSERT INTO stories VALUES (?1, 'dead links', ?2, '0123456789', x'C0000201', '', 0, 2, 2, 0, 429, 1000, 2000, 40, 3000,
		'addr', 'errors', 13, 12, 60, 'GET', 'example.org', '/later', 'ua')`, []byte(k), key.Network(k))
	check(t, "insert", err)
	check(t, "close", l.close())

	r := opened(t, path, Options{})
	stories, err := r.Story(ctx, "0123456789")
	check(t, "Story", err)
	if len(stories) != 1 {
		t.Fatalf("%d stories", len(stories))
	}
	s := stories[0]
	if s.Client != id("192.0.2.1") || s.Used != 13 || s.Path != "/later" || s.UserAgent != "ua" ||
		!s.BanBegan.IsZero() || s.BanMethod != "" || s.BanPath != "" || s.Robots != "" {
		t.Errorf("migrated: %+v", s)
	}
	s.BanBegan, s.BanMethod, s.BanPath, s.Robots = start, "HEAD", "/dead", "line 2, Disallow: /"
	check(t, "Write", r.Write(ctx, registry.Batch{Stories: []registry.Story{s}}))
	if stories, err = r.Story(ctx, "0123456789"); err != nil || len(stories) != 1 ||
		!stories[0].BanBegan.Equal(start) || stories[0].BanMethod != "HEAD" || stories[0].BanPath != "/dead" ||
		stories[0].Robots != "line 2, Disallow: /" {
		t.Errorf("written: %+v, %v", stories, err)
	}
	copied, err := open(ctx, path+".v1", Options{ReadOnly: true}, migrations[:1])
	check(t, "open the copy", err)
	if stats, err := copied.Stats(ctx); err != nil {
		t.Errorf("the copy: %+v, %v", stats, err)
	}
	check(t, "Close", copied.Close())
}

func TestFileLockedByAnotherProcess(t *testing.T) {
	path := filled(t, 10)
	r := opened(t, path, Options{busy: 10 * time.Millisecond})
	l, err := connect(ctx, path, mode{mode: "rw"}, time.Second, smallCache)
	check(t, "connect", err)
	_, err = l.conn.ExecContext(ctx, "BEGIN EXCLUSIVE")
	check(t, "BEGIN", err)
	messages := registry.OverrideRecord{Client: id("10.0.0.5"), Action: fairshare.Allow, Since: start}
	if err := r.SetOverride(ctx, messages); !is(err, ErrBusy) {
		t.Errorf("SetOverride: %v", err)
	}
	if _, err := Open(ctx, path, Options{busy: 10 * time.Millisecond}); !is(err, ErrBusy) {
		t.Errorf("Open: %v", err)
	}
	if _, err := r.Client(ctx, messages.Client); err != nil {
		t.Errorf("a reader waits for a writer: %v", err)
	}
	patient := opened(t, path, Options{ReadOnly: true})
	if _, _, err := patient.Overrides(ctx); err != nil {
		t.Errorf("read-only: %v", err)
	}
	done, cancel := context.WithCancel(ctx)
	cancel()
	if err := r.SetOverride(done, messages); !errors.Is(err, context.Canceled) {
		t.Errorf("SetOverride: %v", err)
	}
	check(t, "close", l.close())
	check(t, "SetOverride", r.SetOverride(ctx, messages))
}

func TestClosedAndReadOnly(t *testing.T) {
	path := filled(t, 10)
	r := opened(t, path, Options{ReadOnly: true})
	if errs := useAll(r); errs != nil {
		t.Error(errs)
	}
	if err := r.Note(ctx, id("10.0.0.1"), "x"); !is(err, ErrReadOnly) {
		t.Errorf("Note: %v", err)
	}
	check(t, "Close", r.Close())
	w := opened(t, path, Options{})
	check(t, "Close", w.Close())
	for _, r := range []*Registry{r, w} {
		for _, err := range useAll(r) {
			var e *Error
			if !errors.As(err, &e) || e.Details != "closed" && !is(err, ErrReadOnly) {
				t.Error(err)
			}
		}
	}
	if _, err := Open(ctx, filepath.Join(t.TempDir(), "no", "registry.db"), Options{}); !is(err, ErrMissing) {
		t.Errorf("no folder: %v", err)
	}
	if _, err := Open(ctx, t.TempDir(), Options{}); err == nil {
		t.Error("a folder was opened")
	}
}

// If a registry is deleted but its -wal file remains, the new registry is empty, not a
// mixture of both.
func TestFilesOfADeletedRegistryAreNotReused(t *testing.T) {
	path := filled(t, 500)
	r := opened(t, path, Options{})
	check(t, "Write", r.Write(ctx, registry.Batch{Clients: []registry.ClientDelta{dirty("192.0.2.1", start, 1)}}))
	left, err := os.ReadFile(path + "-wal")
	check(t, "reading the -wal file", err)
	check(t, "Close", r.Close())
	check(t, "Remove", os.Remove(path))
	check(t, "WriteFile", os.WriteFile(path+"-wal", left, 0o600))

	r = opened(t, path, Options{})
	stats, err := r.Stats(ctx)
	check(t, "Stats", err)
	same(t, "clients", stats.Clients, int64(0))
	result := ""
	l := <-r.writer
	_, err = l.row(ctx, "PRAGMA integrity_check", nil, &result)
	r.writer <- l
	check(t, "integrity_check", err)
	same(t, "integrity_check", result, "ok")
}

// Data written to a removed file would be lost.
func TestRemovedFileIsReported(t *testing.T) {
	path := filled(t, 10)
	r := opened(t, path, Options{})
	_, err := r.Changes(ctx, registry.Version{})
	check(t, "Changes", err)

	gone := func(when string) {
		t.Helper()
		_, err := r.Changes(ctx, registry.Version{})
		if !is(err, ErrGone) {
			t.Errorf("%s: Changes: %v", when, err)
		}
		err = r.Write(ctx, registry.Batch{Clients: []registry.ClientDelta{dirty("192.0.2.1", start, 1)}})
		if !is(err, ErrGone) {
			t.Errorf("%s: Write: %v", when, err)
		}
		if err := r.Note(ctx, id("192.0.2.1"), "x"); !is(err, ErrGone) {
			t.Errorf("%s: Note: %v", when, err)
		}
	}
	check(t, "Rename", os.Rename(path, path+".away"))
	gone("moved")
	check(t, "Rename", os.Rename(path+".away", path))
	check(t, "Write to the restored file", r.Write(ctx, registry.Batch{
		Clients: []registry.ClientDelta{dirty("192.0.2.1", start, 1)}}))

	check(t, "Rename", os.Rename(path, path+".away"))
	other := opened(t, path, Options{})
	gone("replaced")
	check(t, "SetOverride to the other", other.SetOverride(ctx,
		registry.OverrideRecord{Client: id("192.0.2.2"), Action: fairshare.Block,
			Since: start}))
}
