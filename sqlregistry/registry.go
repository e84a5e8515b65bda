// Package sqlregistry keeps what is remembered of clients in one SQLite file:
// who they are, what they had, the bans that rules brought about, the stories
// of their refusals, and what operators have said. Start with [Open], which
// returns a [Registry].
//
// What the file promises:
//
//   - Any number of processes may use it at once: a server, commands, another
//     server. All methods are safe for concurrent use by goroutines, too.
//   - What an operator says ([Registry.Say], Unsay, Lift, Label, Unlabel, Note,
//     Forget) is on the disk, synced, when the method returns.
//   - What [Registry.Write] wrote outlives the process, however it ends. A
//     power failure may cost what was written since the system last wrote its
//     dirty pages, as a rule the last half minute; never more than that, and
//     never the file.
//   - Reading never waits for writing, nor writing for reading.
//   - It is bounded ([Options]); [Registry.Prune] keeps it so, and Write where
//     Prune comes too late. Room that became free in the file is used again,
//     not given back.
//   - A fault is an [*Error] that names the file and says what to do.
//
// Time is an argument everywhere.
//
// Nothing else in a process that has a registry open may open and close its
// file: POSIX drops all locks of a process then.
package sqlregistry

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Options says how to open a registry. The zero Options is for writing.
type Options struct {
	ReadOnly  bool // never creates, never migrates, never writes
	MustExist bool // never creates

	// Bounds that Prune keeps; 0 stands for the default. Write keeps to those
	// of clients and stories, too, and a sixteenth of them more.
	Clients int           // 1,000,000; Write lets bans and words go beyond
	Stories int           // 100,000; a network (IPv4 /16, IPv6 /32) holds at most a tenth
	Bans    int           // 1,048,576, former ones too
	Age     time.Duration // 90 days; what was not seen for longer goes

	Log func(string) // nil: nothing is said

	busy time.Duration // how long to wait for another process; 0: 5 s
}

const (
	readers  = 4 // connections that read
	pageSize = 4096
	maxWAL   = 4 << 20 // bytes that the -wal file keeps when all of it was taken over

	bigCache, smallCache = 16 << 10, 2 << 10 // KiB
)

var errClosed = errors.New("closed")

// A Registry is an open registry. It is safe for concurrent use.
type Registry struct {
	path    string
	file    os.FileInfo // that is open
	o       Options
	version int // that it knows

	writer chan *writer  // holds the one that writes; empty while it is used, and when it may not be
	read   chan *link    // those that read; nil: not open yet
	poll   chan *link    // the one that asks for changes
	alone  chan struct{} // holds one; who takes it may lock others out

	closing   chan struct{}
	closed    sync.Once
	closeErr  error
	check     chan struct{} // asks for a checkpoint
	checkDone chan struct{}
}

// Open opens the registry in a file and, unless told otherwise, makes it if
// there is none; its folder must be there. A registry of an older version is
// copied beside itself ("registry.db.v1") and brought up to date.
//
// Read-only it opens a registry that others write, and also one on a full or
// read-only disk; there each call may lock others out while it lasts.
func Open(ctx context.Context, path string, o Options) (*Registry, error) {
	return open(ctx, path, o, migrations)
}

func open(ctx context.Context, path string, o Options, migrations []string) (*Registry, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, &Error{Path: path, What: err.Error()}
	}
	defaults(&o)
	r := &Registry{
		path: abs, o: o, version: len(migrations), writer: make(chan *writer, 1), read: make(chan *link, readers), poll: make(chan *link, 1),
		alone: make(chan struct{}, 1), closing: make(chan struct{}),
	}
	for range readers {
		r.read <- nil
	}
	r.poll <- nil
	r.alone <- struct{}{}
	info, err := os.Stat(abs)
	switch {
	case errors.Is(err, fs.ErrNotExist) && (o.ReadOnly || o.MustExist):
		return nil, &Error{Path: abs, Kind: ErrNotThere}
	case errors.Is(err, fs.ErrNotExist):
		if err := create(ctx, abs, o.busy, migrations); err != nil {
			return nil, fault(ctx, abs, err)
		}
	case errors.Is(err, fs.ErrPermission):
		return nil, &Error{Path: abs, Kind: ErrReadOnly, What: "nor may it be read"}
	case err != nil:
		return nil, &Error{Path: abs, What: err.Error()}
	case !info.Mode().IsRegular():
		return nil, &Error{Path: abs, What: "it is no file"}
	case info.Size() == 0: // one is never made in place
		return nil, &Error{Path: abs, Kind: ErrDamaged, What: "it is empty"}
	case info.Size()%pageSize != 0 && r.noWAL(): // else the -wal file has that page
		return nil, &Error{Path: abs, Kind: ErrDamaged, What: "it was cut"}
	}
	if o.ReadOnly {
		err = r.reading(ctx, func(*link) error { return nil })
	} else {
		err = r.openWriting(ctx, migrations)
	}
	if err == nil {
		if r.file, err = os.Stat(abs); err != nil {
			r.Close()
		}
	}
	if err != nil {
		return nil, fault(ctx, abs, err)
	}
	return r, nil
}

// there returns an error when the file that is open is not the one of that
// name any more: SQLite would go on with it, and nobody else would see it.
func (r *Registry) there() error {
	now, err := os.Stat(r.path)
	if err == nil && !os.SameFile(now, r.file) || errors.Is(err, fs.ErrNotExist) {
		return &Error{Path: r.path, Kind: ErrGone}
	}
	return nil
}

func defaults(o *Options) {
	if o.Clients <= 0 {
		o.Clients = 1_000_000
	}
	if o.Stories <= 0 {
		o.Stories = 100_000
	}
	if o.Bans <= 0 {
		o.Bans = 1 << 20
	}
	if o.Age <= 0 {
		o.Age = 90 * 24 * time.Hour
	}
	if o.busy <= 0 {
		o.busy = 5 * time.Second
	}
	if o.Log == nil {
		o.Log = func(string) {}
	}
}

func (r *Registry) openWriting(ctx context.Context, migrations []string) error {
	l, err := connect(ctx, r.path, mode{mode: "rw", pragmas: []string{"synchronous = NORMAL"}}, r.o.busy, bigCache)
	if err != nil {
		return err
	}
	err = r.migrate(ctx, l, migrations)
	if err == nil {
		_, err = l.conn.ExecContext(ctx, "PRAGMA journal_mode = WAL") // as it was made
	}
	if err == nil {
		err = look(ctx, l)
	}
	if err == nil {
		// What is asked first of the writer must find that it may write.
		_, err = l.conn.ExecContext(ctx, "BEGIN IMMEDIATE; ROLLBACK")
	}
	if err != nil {
		return errors.Join(err, l.close())
	}
	r.writer <- &writer{link: l}
	r.check, r.checkDone = make(chan struct{}, 1), make(chan struct{})
	go r.checkpoints()
	return nil
}

// look reads a little of each table and index: what a file that was cut, or
// overwritten at its beginning, does not outlive. To read all of a large file
// takes too long; other damage is found when it is met.
func look(ctx context.Context, l *link) error {
	for _, query := range []string{
		"SELECT clients FROM counts WHERE id = 1",
		"SELECT length(value) FROM settings WHERE name = 'reference key'",
	} {
		if _, err := l.integer(ctx, query); err != nil {
			return err
		}
	}
	for _, edge := range []string{
		"clients ORDER BY client", "clients INDEXED BY clients_last ORDER BY kept, last", "words ORDER BY client", "labels ORDER BY client", "notes ORDER BY client",
		"bans ORDER BY client", "bans INDEXED BY bans_until ORDER BY until", "stories ORDER BY rowid", "stories INDEXED BY stories_id ORDER BY id",
		"stories INDEXED BY stories_last ORDER BY last", "networks INDEXED BY networks_stories ORDER BY stories", "changes ORDER BY id",
	} {
		for _, query := range []string{"SELECT 1 FROM " + edge + " LIMIT 1", "SELECT 1 FROM " + strings.ReplaceAll(edge, ",", " DESC,") + " DESC LIMIT 1"} {
			if _, err := l.conn.ExecContext(ctx, query); err != nil {
				return err
			}
		}
	}
	return nil
}

// Close waits for calls in progress and closes the file.
func (r *Registry) Close() error {
	r.closed.Do(func() {
		close(r.closing)
		var errs []error
		if r.check != nil {
			<-r.checkDone
			errs = append(errs, (<-r.writer).close())
		}
		for _, links := range []chan *link{r.read, r.poll} {
			for range cap(links) {
				if l := <-links; l != nil {
					errs = append(errs, l.close())
				}
			}
		}
		r.closeErr = fault(context.Background(), r.path, errors.Join(errs...))
	})
	return r.closeErr
}
