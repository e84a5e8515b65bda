package livepolicy

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"fairshare"
	"fairshare/registry"
	"fairshare/sqlregistry"
)

// A store is a registry that cannot be written at first, for example because the
// disk is full. Meanwhile it is read. It also follows a registry that another
// file has replaced, as a restored backup does.
type store struct {
	path string
	opts sqlregistry.Options

	closing sync.WaitGroup // of registries that were replaced

	mu       sync.Mutex
	writable *sqlregistry.Registry // nil: it cannot be written yet
	readable *sqlregistry.Registry // read meanwhile; nil: there is nothing to read
	reread   bool                  // writable has replaced another: its overrides were not read yet
}

var _ records = (*store)(nil)

// openStore opens a registry, or creates it. If the registry cannot be written
// now, that is logged and is not an error.
func openStore(ctx context.Context, path string, opts sqlregistry.Options, log func(string)) (*store, error) {
	s := &store{path: path, opts: opts}
	var err error
	if s.writable, err = sqlregistry.Open(ctx, path, opts); err == nil {
		return s, nil
	}
	if !errors.Is(err, registry.ErrFull) && !errors.Is(err, registry.ErrReadOnly) &&
		!errors.Is(err, registry.ErrBusy) {
		return nil, err
	}
	readOnly := opts
	readOnly.ReadOnly = true
	var unread error
	if s.readable, unread = sqlregistry.Open(ctx, path, readOnly); unread != nil &&
		!errors.Is(unread, registry.ErrMissing) {
		return nil, err
	}
	log(fmt.Sprintf("warning: %v: nothing new is stored until it can be written; it is tried again", err))
	return s, nil
}

// reading returns the registry to read; nil if there is nothing to read.
func (s *store) reading() *sqlregistry.Registry {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writable != nil {
		return s.writable
	}
	return s.readable
}

// writing returns the registry to write.
func (s *store) writing(ctx context.Context) (*sqlregistry.Registry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writable != nil {
		return s.writable, nil
	}
	all, err := sqlregistry.Open(ctx, s.path, s.opts)
	if err != nil {
		return nil, err
	}
	s.writable = all
	return all, nil
}

// follow opens the registry that has replaced r, if err says that r is gone. It
// returns err: the next call uses the new registry.
func (s *store) follow(ctx context.Context, r *sqlregistry.Registry, err error) error {
	if !errors.Is(err, registry.ErrGone) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writable != r {
		return err
	}
	opts := s.opts
	opts.MustExist = true // a file that was moved away may be about to be replaced
	if all, failed := sqlregistry.Open(ctx, s.path, opts); failed == nil {
		s.writable, s.reread = all, true
		s.closing.Go(func() { r.Close() }) // when its calls have ended
	}
	return err
}

func (s *store) Write(ctx context.Context, b registry.Batch) error {
	r, err := s.writing(ctx)
	if err != nil {
		return err
	}
	return s.follow(ctx, r, r.Write(ctx, b))
}

func (s *store) Prune(ctx context.Context, now time.Time, rows int) (more bool, err error) {
	r, err := s.writing(ctx)
	if err != nil {
		return false, err
	}
	return r.Prune(ctx, now, rows)
}

func (s *store) SetSettings(ctx context.Context, settings registry.Settings) error {
	r, err := s.writing(ctx)
	if err != nil {
		return err
	}
	return r.SetSettings(ctx, settings)
}

func (s *store) SetFleets(ctx context.Context, all []registry.FleetRecord) error {
	r, err := s.writing(ctx)
	if err != nil {
		return err
	}
	return r.SetFleets(ctx, all)
}

func (s *store) Changes(ctx context.Context, since registry.Version) (registry.Changes, error) {
	r := s.reading()
	if r == nil {
		return registry.Changes{Version: since}, nil
	}
	s.mu.Lock()
	reread := s.reread
	s.mu.Unlock()
	if reread {
		since = registry.Version{}
	}
	changes, err := r.Changes(ctx, since)
	if err == nil && reread {
		s.mu.Lock()
		s.reread = s.writable != r
		s.mu.Unlock()
	}
	return changes, s.follow(ctx, r, err)
}

// FirstSeen calls yield with each client and the time when it was seen first.
func (s *store) FirstSeen(ctx context.Context, yield func(fairshare.ClientID, time.Time) bool) error {
	if r := s.reading(); r != nil {
		return r.FirstSeen(ctx, yield)
	}
	return nil
}

func (s *store) Lifted(ctx context.Context, since time.Time) ([]registry.LiftedClient, error) {
	if r := s.reading(); r != nil {
		return r.Lifted(ctx, since)
	}
	return nil, nil
}

func (s *store) Overrides(ctx context.Context) ([]registry.OverrideRecord, []registry.Label, error) {
	if r := s.reading(); r != nil {
		return r.Overrides(ctx)
	}
	return nil, nil, nil
}

func (s *store) AttackMode(ctx context.Context) (registry.AttackMode, error) {
	if r := s.reading(); r != nil {
		return r.AttackMode(ctx)
	}
	return registry.AttackMode{}, nil
}

func (s *store) SetHolder(ctx context.Context, h registry.Holder) error {
	r, err := s.writing(ctx)
	if err != nil {
		return err
	}
	return r.SetHolder(ctx, h)
}

func (s *store) Story(ctx context.Context, id string) ([]registry.Story, error) {
	if r := s.reading(); r != nil {
		return r.Story(ctx, id)
	}
	return nil, nil
}

// ReferenceKey returns nil if there is no registry yet.
func (s *store) ReferenceKey(ctx context.Context) ([]byte, error) {
	if r := s.reading(); r != nil {
		return r.ReferenceKey(ctx)
	}
	return nil, nil
}

func (s *store) Bans(ctx context.Context, now time.Time, all bool) iter.Seq2[fairshare.BanRecord, error] {
	if r := s.reading(); r != nil {
		return r.Bans(ctx, now, all)
	}
	return func(func(fairshare.BanRecord, error) bool) {}
}

// reader returns the registry to read; nil if there is nothing to read.
func (s *store) reader() registry.Reader {
	if r := s.reading(); r != nil {
		return r
	}
	return nil
}

func (s *store) own() *store { return s }

func (s *store) banStore() registry.Store { return nil }

func (s *store) run(context.Context) {}

func (s *store) Close() {
	defer s.closing.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range []*sqlregistry.Registry{s.writable, s.readable} {
		if r != nil {
			r.Close()
		}
	}
}
