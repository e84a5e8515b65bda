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
	case !r.o.ReadOnly || errors.Is(err, ErrDamaged) || errors.Is(err, ErrNewer) || errors.Is(err, ErrBusy) || errors.Is(err, errOlder) || ctx.Err() != nil:
		return err
	}
	return r.readingAlone(ctx, err, do)
}

// readingAlone is for a disk that is full or read-only. When the index of the
// -wal file cannot be made beside it, it is made in memory, which takes that
// nobody else uses the file; where not even a lock can be had, the file is
// read as it stands, which takes that there is nothing in its -wal file. The
// connection is closed at once, so that others get at the file, and the next
// call finds out whether it still must be so. Cause is why it must.
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
	_ = l.close() // it may fail to tidy up, on such a disk
	return err
}

// noWAL reports whether all that was written is in the file itself.
func (r *Registry) noWAL() bool {
	info, err := os.Stat(r.path + "-wal")
	return errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0
}

// connectReading opens a connection to a registry that nobody may have looked
// at yet.
func (r *Registry) connectReading(ctx context.Context, m mode) (*link, error) {
	l, err := connect(ctx, r.path, m, r.o.busy, smallCache)
	if err != nil {
		return nil, err
	}
	found, err := versionOf(ctx, l, r.path, r.version)
	if err == nil && found < r.version {
		err = &Error{Path: r.path, Kind: errOlder, What: "start the server once, or say something to it, to bring it up to date"}
	}
	if err == nil {
		err = look(ctx, l)
	}
	if err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

// errOlder is a registry that is to be read and would have to be migrated.
var errOlder = errors.New("written by an older version of fairshare")
