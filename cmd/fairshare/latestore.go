package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"fairshare"
	"fairshare/internal/registrar"
	"fairshare/sqlregistry"
)

// A lateStore is a registry of a server that may have to do without writing
// at first: the disk is full, say. What is there is read meanwhile.
type lateStore struct {
	path string
	opts sqlregistry.Options

	closing sync.WaitGroup // of those that others took the place of

	mu   sync.Mutex
	anew bool                  // all took the place of another: its words were not read yet
	all  *sqlregistry.Registry // nil: it cannot be written yet
	read *sqlregistry.Registry // meanwhile; nil: there is nothing to read
}

var _ registrar.Store = (*lateStore)(nil)

// openLate opens a registry, or makes it. That it cannot be written now is
// said, and is no error.
func openLate(ctx context.Context, path string, opts sqlregistry.Options, log func(string)) (*lateStore, error) {
	s := &lateStore{path: path, opts: opts}
	var err error
	if s.all, err = sqlregistry.Open(ctx, path, opts); err == nil {
		return s, nil
	}
	if !errors.Is(err, sqlregistry.ErrFull) && !errors.Is(err, sqlregistry.ErrReadOnly) && !errors.Is(err, sqlregistry.ErrBusy) {
		return nil, err
	}
	readOnly := opts
	readOnly.ReadOnly = true
	var unread error
	if s.read, unread = sqlregistry.Open(ctx, path, readOnly); unread != nil && !errors.Is(unread, sqlregistry.ErrNotThere) {
		return nil, err
	}
	log(fmt.Sprintf("warning: %v: nothing new is remembered until it can be written; it is tried again", err))
	return s, nil
}

// reading returns the registry to read, nil when there is nothing to read.
func (s *lateStore) reading() *sqlregistry.Registry {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all != nil {
		return s.all
	}
	return s.read
}

// writing returns the registry to write.
func (s *lateStore) writing(ctx context.Context) (*sqlregistry.Registry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all != nil {
		return s.all, nil
	}
	all, err := sqlregistry.Open(ctx, s.path, s.opts)
	if err != nil {
		return nil, err
	}
	s.all = all
	return all, nil
}

// follow goes on with the registry that took the place of r, if err says that
// r is gone and there is one. It returns err: the next try finds it.
func (s *lateStore) follow(ctx context.Context, r *sqlregistry.Registry, err error) error {
	if !errors.Is(err, sqlregistry.ErrGone) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all != r {
		return err
	}
	opts := s.opts
	opts.MustExist = true // whoever took it away may be about to put another there
	if all, failed := sqlregistry.Open(ctx, s.path, opts); failed == nil {
		s.all, s.anew = all, true
		s.closing.Go(func() { r.Close() }) // when its calls have ended
	}
	return err
}

func (s *lateStore) Write(ctx context.Context, b sqlregistry.Batch) error {
	r, err := s.writing(ctx)
	if err != nil {
		return err
	}
	return s.follow(ctx, r, r.Write(ctx, b))
}

func (s *lateStore) Prune(ctx context.Context, now time.Time, rows int) (more bool, err error) {
	r, err := s.writing(ctx)
	if err != nil {
		return false, err
	}
	return r.Prune(ctx, now, rows)
}

func (s *lateStore) SetSettings(ctx context.Context, settings sqlregistry.Settings) error {
	r, err := s.writing(ctx)
	if err != nil {
		return err
	}
	return r.SetSettings(ctx, settings)
}

func (s *lateStore) Changes(ctx context.Context, since sqlregistry.Version) (sqlregistry.Changes, error) {
	r := s.reading()
	if r == nil {
		return sqlregistry.Changes{Version: since}, nil
	}
	s.mu.Lock()
	anew := s.anew
	s.mu.Unlock()
	if anew {
		since = sqlregistry.Version{}
	}
	changes, err := r.Changes(ctx, since)
	if err == nil && anew {
		s.mu.Lock()
		s.anew = s.all != r
		s.mu.Unlock()
	}
	return changes, s.follow(ctx, r, err)
}

func (s *lateStore) Lifted(ctx context.Context, since time.Time) ([]sqlregistry.LiftedClient, error) {
	if r := s.reading(); r != nil {
		return r.Lifted(ctx, since)
	}
	return nil, nil
}

func (s *lateStore) Words(ctx context.Context) ([]fairshare.Said, []fairshare.Label, error) {
	if r := s.reading(); r != nil {
		return r.Words(ctx)
	}
	return nil, nil, nil
}

func (s *lateStore) Story(ctx context.Context, id string) ([]fairshare.Story, error) {
	if r := s.reading(); r != nil {
		return r.Story(ctx, id)
	}
	return nil, nil
}

// ReferenceKey returns nil when there is no registry yet.
func (s *lateStore) ReferenceKey(ctx context.Context) ([]byte, error) {
	if r := s.reading(); r != nil {
		return r.ReferenceKey(ctx)
	}
	return nil, nil
}

func (s *lateStore) Bans(ctx context.Context, now time.Time, all bool) iter.Seq2[fairshare.Banned, error] {
	if r := s.reading(); r != nil {
		return r.Bans(ctx, now, all)
	}
	return func(func(fairshare.Banned, error) bool) {}
}

func (s *lateStore) Close() {
	defer s.closing.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range []*sqlregistry.Registry{s.all, s.read} {
		if r != nil {
			r.Close()
		}
	}
}
