// Package sqlregistry records clients in one SQLite file: what they used, their
// bans by rules, the stories of their refusals, and operators' decisions (overrides,
// labels and notes). Start with [Open], which returns a [Registry].
//
// Its guarantees:
//
//   - Any number of processes can use the file at once: a server, commands,
//     another server. All methods are safe for concurrent use.
//   - An operator's change is synced to the disk when its method returns:
//     [Registry.SetOverride], RemoveOverride, Lift, Label, Unlabel, Note, Forget.
//   - The data of [Registry.Write] survives the end of the process, even a kill. A
//     power failure may lose the data since the system last wrote its dirty pages,
//     usually the last half minute. It never damages the file.
//   - Reads never wait for writes, nor writes for reads.
//   - The file is bounded ([Options]) by [Registry.Prune], and by Write if Prune is
//     too slow. Free space in the file is reused, but not returned to the disk.
//   - An error is an [*Error] with the path of the file and a hint.
//
// Time is an argument of every method that needs it.
//
// While a process has a registry open, no other code in it may open and close the
// file: POSIX then drops all locks of the process.
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

// Options configure Open. The zero Options opens a registry for writing.
type Options struct {
	ReadOnly  bool // never creates, never migrates, never writes
	MustExist bool // never creates

	// Bounds of Prune; 0 means the default. Write exceeds those of clients and stories
	// by at most a sixteenth.
	Clients int           // 1,000,000; bans and overrides can add more
	Stories int           // 100,000; a network (IPv4 /16, IPv6 /32) has at most a tenth
	Bans    int           // 1,048,576, including those that have ended
	Age     time.Duration // 90 days; older records are removed

	Log func(string) // gets messages about migrations and problems; may be nil

	busy time.Duration // how long to wait for another process; 0: 5 s
}

const (
	readers  = 4 // connections that read
	pageSize = 4096
	maxWAL   = 4 << 20 // size of the -wal file in bytes after a complete checkpoint

	bigCache, smallCache = 16 << 10, 2 << 10 // KiB
)

var errClosed = errors.New("closed")

// A Registry is an open registry. It is safe for concurrent use.
type Registry struct {
	path    string
	file    os.FileInfo // of the open file
	o       Options
	version int // the newest version of the file that this program knows

	writer chan *writer  // holds the connection that writes; empty while it is in use, or if writing is not allowed
	read   chan *link    // connections that read; nil: not open yet
	poll   chan *link    // the connection for Changes
	alone  chan struct{} // holds one value; its owner may lock other processes out

	closing   chan struct{}
	closed    sync.Once
	closeErr  error
	check     chan struct{} // requests a checkpoint
	checkDone chan struct{}
}

// Open opens the registry in a file. Unless Options forbid it, it creates a missing
// file; the folder must exist. It copies a registry of an older version
// ("registry.db.v1") and updates it.
//
// With ReadOnly it can open a registry that other processes write, and a registry
// on a full or read-only disk. There each call may lock other processes out while
// it runs.
func Open(ctx context.Context, path string, o Options) (*Registry, error) {
	return open(ctx, path, o, migrations)
}

func open(ctx context.Context, path string, o Options, migrations []string) (*Registry, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, &Error{Path: path, Details: err.Error()}
	}
	defaults(&o)
	r := &Registry{
		path: abs, o: o, version: len(migrations), writer: make(chan *writer, 1), read: make(chan *link, readers),
		poll:  make(chan *link, 1),
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
		return nil, &Error{Path: abs, Kind: ErrMissing}
	case errors.Is(err, fs.ErrNotExist):
		if err := create(ctx, abs, o.busy, migrations); err != nil {
			return nil, fault(ctx, abs, err)
		}
	case errors.Is(err, fs.ErrPermission):
		return nil, &Error{Path: abs, Kind: ErrReadOnly, Details: "it cannot be read, either"}
	case err != nil:
		return nil, &Error{Path: abs, Details: err.Error()}
	case !info.Mode().IsRegular():
		return nil, &Error{Path: abs, Details: "not a regular file"}
	case info.Size() == 0: // create never leaves an empty file under this name
		return nil, &Error{Path: abs, Kind: ErrDamaged, Details: "it is empty"}
	case info.Size()%pageSize != 0 && r.noWAL(): // else the -wal file has that page
		return nil, &Error{Path: abs, Kind: ErrDamaged, Details: "it is truncated"}
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

// checkFile returns an error if the path no longer names the open file: SQLite
// would continue to write to the old file, which no other process sees.
func (r *Registry) checkFile() error {
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
		_, err = l.conn.ExecContext(ctx, "PRAGMA journal_mode = WAL") // the mode of create
	}
	if err == nil {
		err = checkTables(ctx, l)
	}
	if err == nil {
		// Find out here, not at the first write, that the file cannot be written.
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

// checkTables reads a little of each table and index. It detects a file that is
// truncated, or overwritten at its beginning. Reading a large file completely
// takes too long; other damage is detected when it is read.
func checkTables(ctx context.Context, l *link) error {
	for _, query := range []string{
		"SELECT clients FROM counts WHERE id = 1",
		"SELECT length(value) FROM settings WHERE name = 'reference key'",
	} {
		if _, err := l.integer(ctx, query); err != nil {
			return err
		}
	}
	for _, edge := range []string{
		"clients ORDER BY client", "clients INDEXED BY clients_last ORDER BY kept, last", "words ORDER BY client",
		"labels ORDER BY client", "notes ORDER BY client",
		"bans ORDER BY client", "bans INDEXED BY bans_until ORDER BY until", "stories ORDER BY rowid",
		"stories INDEXED BY stories_id ORDER BY id",
		"stories INDEXED BY stories_last ORDER BY last", "networks INDEXED BY networks_stories ORDER BY stories",
		"changes ORDER BY id",
	} {
		for _, query := range []string{"SELECT 1 FROM " + edge + " LIMIT 1",
			"SELECT 1 FROM " + strings.ReplaceAll(edge, ",", " DESC,") + " DESC LIMIT 1"} {
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
