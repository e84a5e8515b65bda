package sqlregistry

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// A writer is the connection that writes.
type writer struct {
	*link
	synced    bool // it syncs each commit
	unchecked int  // rows since the last checkpoint was asked for
	lifts     lifts
}

// A tx is a transaction that writes. What it says of counts is written at its
// end.
type tx struct {
	*writer
	ctx                    context.Context // never done: a transaction is short
	clients, bans, stories int64           // rows more
	words                  bool            // words or labels changed
	lifted                 int64           // the last of changes; 0: none was added
	rows                   int             // written, about
	liftsRead              bool            // lifts is up to date
	had                    *held           // nil: not read yet
}

// held is how many rows there were when a transaction began.
type held struct{ clients, stories int64 }

// writing runs do in a transaction, which others see whole or not at all.
// With synced it is on the disk when writing returns.
func (r *Registry) writing(ctx context.Context, synced bool, do func(*tx) error) error {
	if r.o.ReadOnly {
		return &Error{Path: r.path, Kind: ErrReadOnly, What: "it was opened to be read"}
	}
	var w *writer
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
	case w = <-r.writer:
	}
	defer func() { r.writer <- w }()
	if err := r.there(); err != nil {
		return err
	}
	err := fault(ctx, r.path, w.run(ctx, synced, do))
	// It may be the -wal file that fills the disk: once it is taken over it
	// begins anew.
	if w.unchecked >= checkEvery || errors.Is(err, ErrFull) {
		w.unchecked = 0
		select {
		case r.check <- struct{}{}:
		default:
		}
	}
	return err
}

func (w *writer) run(ctx context.Context, synced bool, do func(*tx) error) error {
	if synced != w.synced {
		level := map[bool]string{false: "NORMAL", true: "FULL"}[synced]
		if _, err := w.conn.ExecContext(ctx, "PRAGMA synchronous = "+level); err != nil {
			return err
		}
		w.synced = synced
	}
	if _, err := w.exec(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	t := &tx{writer: w, ctx: context.WithoutCancel(ctx)}
	err := do(t)
	if err == nil {
		err = t.count()
	}
	if err == nil {
		_, err = w.exec(ctx, "COMMIT")
	}
	if err != nil {
		_, rollback := w.exec(t.ctx, "ROLLBACK") // a full disk has done so already
		w.lifts = lifts{}
		_ = rollback
		return err
	}
	w.unchecked += max(t.rows, 1)
	return nil
}

// exec runs a statement and returns how many rows it changed.
func (t *tx) exec(query string, args ...any) (int64, error) {
	n, err := t.link.exec(t.ctx, query, args...)
	t.rows += int(n)
	return n, err
}

// held returns how many rows there are.
func (t *tx) held() (clients, stories int64, err error) {
	if t.had == nil {
		var had held
		found, err := t.row(t.ctx, "SELECT clients, stories"+ofCounts, nil, &had.clients, &had.stories)
		if err == nil && !found {
			err = sql.ErrNoRows
		}
		if err != nil {
			return 0, 0, err
		}
		t.had = &had
	}
	return t.had.clients + t.clients, t.had.stories + t.stories, nil
}

// count writes how much more there is.
func (t *tx) count() error {
	if t.clients|t.bans|t.stories|t.lifted == 0 && !t.words {
		return nil
	}
	words := 0
	if t.words {
		words = 1
	}
	_, err := t.exec(`UPDATE counts SET clients = clients + ?, bans = bans + ?, stories = stories + ?, words = words + ?, lifted = max(lifted, ?) WHERE id = 1`,
		t.clients, t.bans, t.stories, words, t.lifted)
	return err
}

// keep makes sure that a client has a row, which is kept for a reason at
// least that good.
func (t *tx) keep(k key, kept int) error {
	n, err := t.exec("INSERT INTO clients (client, kept) VALUES (?, ?) ON CONFLICT DO NOTHING", k, kept)
	t.clients += n
	if n == 0 && err == nil {
		_, err = t.exec("UPDATE clients SET kept = ?2 WHERE client = ?1 AND kept < ?2", k, kept)
	}
	return err
}

// unkeep finds out anew what keeps a client's row. It removes one that was
// only there to be kept.
func (t *tx) unkeep(k key) error {
	_, err := t.exec(`UPDATE clients SET kept = CASE
		WHEN EXISTS (SELECT 1 FROM words WHERE client = ?1) OR EXISTS (SELECT 1 FROM labels WHERE client = ?1) OR EXISTS (SELECT 1 FROM notes WHERE client = ?1) THEN 2
		WHEN EXISTS (SELECT 1 FROM bans WHERE client = ?1) THEN 1
		ELSE 0 END WHERE client = ?1`, k)
	if err != nil {
		return err
	}
	n, err := t.exec("DELETE FROM clients WHERE client = ? AND kept = 0 AND last = 0", k)
	t.clients -= n
	return err
}

// checkEvery is after how many rows written a checkpoint is asked for: they
// are 4 to 12 MB of the -wal file.
const checkEvery = 1000

// mostWAL is how many pages the -wal file may have before writing
// waits for a checkpoint.
const mostWAL = 16 << 10

// checkpoints takes over into the file what is in the -wal file, until the
// registry is closed. It does so on a connection of its own, since it syncs
// the disk: no commit waits for that, and neither readers nor writers wait for
// a passive checkpoint. Only one that took over all lets the -wal file begin
// anew; when writers have not let that happen for long, they wait for it.
func (r *Registry) checkpoints() {
	defer close(r.checkDone)
	ctx := context.Background()
	var l *link
	said := ""
	for {
		select {
		case <-r.closing:
			if l != nil {
				if err := l.close(); err != nil {
					r.o.Log(fault(ctx, r.path, err).Error())
				}
			}
			return
		case <-r.check:
		}
		var err error
		if l == nil {
			l, err = connect(ctx, r.path, mode{mode: "rw", pragmas: []string{"synchronous = NORMAL"}}, r.o.busy, smallCache)
		}
		pages, all := int64(0), false
		for tries := 0; err == nil && !all && pages <= mostWAL && tries < 8; tries++ {
			pages, all, err = checkpoint(ctx, l)
		}
		if err == nil && !all && pages > mostWAL {
			select {
			case <-r.closing:
			case w := <-r.writer:
				_, _, err = checkpoint(ctx, l)
				r.writer <- w
			}
		}
		now := ""
		if err != nil {
			now = fmt.Sprintf("%v; its -wal file grows until this can be done", fault(ctx, r.path, err))
		}
		if now != "" && now != said { // while a disk is full each write asks
			r.o.Log(now)
		}
		said = now
	}
}

// checkpoint takes over what it can, and tells how many pages the -wal file
// has and whether that was all.
func checkpoint(ctx context.Context, l *link) (pages int64, all bool, err error) {
	var busy, done int64
	_, err = l.row(ctx, "PRAGMA wal_checkpoint(PASSIVE)", nil, &busy, &pages, &done)
	return pages, busy == 0 && done == pages, err
}

// steps runs do in transactions of its own until it reports that there is no
// more to do: others need not wait for all of it.
func (r *Registry) steps(ctx context.Context, synced bool, do func(*tx) (more bool, err error)) error {
	for more := true; more; {
		err := r.writing(ctx, synced, func(t *tx) (err error) {
			more, err = do(t)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// stepRows bounds a step, in rows.
const stepRows = 1000
