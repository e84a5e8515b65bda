package sqlregistry

import (
	"context"
	"errors"
	"io/fs"
	"os"
)

// reading calls do with a connection that reads.
func (r *Registry) reading(ctx context.Context, do func(*link) error) error {
	return r.readingFrom(ctx, r.read, do)
}

func (r *Registry) readingFrom(ctx context.Context, links chan *link, do func(*link) error) (err error) {
	var l *link
	select {
	case <-r.closing:
		return fault(ctx, r.path, errClosed)
	default:
	}
	select {
	case <-r.closing:
		return fault(ctx, r.path, errClosed)
	case <-ctx.Done():
		return fault(ctx, r.path, ctx.Err())
	case l = <-links:
	}
	defer func() { links <- l }()
	if l != nil {
		return fault(ctx, r.path, do(l))
	}
	if !r.o.ReadOnly {
		l, err = connect(ctx, r.path, mode{mode: "rw", pragmas: []string{"query_only = 1"}}, r.o.busy, smallCache)
	} else {
		l, err = r.connectReading(ctx, mode{mode: "ro"})
	}
	switch err = fault(ctx, r.path, err); {
	case err == nil:
		return fault(ctx, r.path, do(l))
	case !r.o.ReadOnly || errors.Is(err, ErrDamaged) || errors.Is(err, ErrNewer) || errors.Is(err, ErrBusy) ||
		errors.Is(err, errOlder) || ctx.Err() != nil:
		return err
	}
	return r.readingAlone(ctx, err, do)
}

// readingAlone reads a file on a disk that is full or read-only. cause is the error
// of the usual way to read.
//
// If SQLite cannot create the index of the -wal file, it builds it in memory; this
// needs an exclusive lock. If not even a lock is possible, it reads the file
// without locks; this needs an empty -wal file. The connection is closed at once,
// so that other processes can use the file. The next call tries the usual way
// again.
func (r *Registry) readingAlone(ctx context.Context, cause error, do func(*link) error) error {
	select {
	case <-ctx.Done():
		return fault(ctx, r.path, ctx.Err())
	case <-r.alone:
	}
	defer func() { r.alone <- struct{}{} }()
	l, err := r.connectReading(ctx, mode{mode: "rw", pragmas: []string{"locking_mode = EXCLUSIVE", "query_only = 1"}})
	if err != nil && r.noWAL() {
		l, err = r.connectReading(ctx, mode{mode: "immutable"})
	}
	switch {
	case err != nil && errors.Is(fault(ctx, r.path, err), ErrBusy):
		return fault(ctx, r.path, err)
	case err != nil:
		return cause
	}
	err = fault(ctx, r.path, do(l))
	_ = l.close() // on such a disk it may fail to delete its files
	return err
}

// noWAL reports whether there is no -wal file, so that the file is complete.
func (r *Registry) noWAL() bool {
	info, err := os.Stat(r.path + "-wal")
	return errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0
}

// connectReading opens a connection to a registry and checks its version.
func (r *Registry) connectReading(ctx context.Context, m mode) (*link, error) {
	l, err := connect(ctx, r.path, m, r.o.busy, smallCache)
	if err != nil {
		return nil, err
	}
	found, err := versionOf(ctx, l, r.path, r.version)
	if err == nil && found < r.version {
		err = &Error{Path: r.path, Kind: errOlder,
			Details: "start the server once, or change something by a command, to update it"}
	}
	if err == nil {
		err = checkTables(ctx, l)
	}
	if err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

// errOlder reports a registry that would have to be migrated, but was opened only
// for reading.
var errOlder = errors.New("written by an older version of fairshare")
