package sqlregistry

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"fairshare/registry/key"
)

// A writer is the connection that writes.
type writer struct {
	*link
	synced    bool // it syncs each commit
	unchecked int  // rows written since the last request for a checkpoint
	lifts     key.Lifts
}

// A tx is a transaction that writes. At its end it updates the table counts.
type tx struct {
	*writer
	ctx                    context.Context // never done: a transaction is short
	clients, bans, stories int64           // rows added, less those removed
	overrides              bool            // overrides or labels changed
	lifted                 int64           // the last of changes; 0: none was added
	rows                   int             // written, approximately
	liftsRead              bool            // lifts is up to date
	latest                 int64           // see Batch.At, Unix ns
	atStart                *startCounts    // nil: not read yet
}

// A startCounts holds the numbers of rows at the start of a transaction.
type startCounts struct{ clients, stories int64 }

// writing runs do in a transaction. If synced, it is on the disk when writing
// returns.
func (r *Registry) writing(ctx context.Context, synced bool, do func(*tx) error) error {
	if r.o.ReadOnly {
		return &Error{Path: r.path, Kind: ErrReadOnly, Details: "it was opened for reading only"}
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
	if err := r.checkFile(); err != nil {
		return err
	}
	err := fault(ctx, r.path, w.run(ctx, synced, do))
	// The -wal file itself may fill the disk. After a complete checkpoint it starts
	// again from its beginning.
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
		w.lifts = key.Lifts{}
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

// rowCounts returns the present numbers of clients and stories.
func (t *tx) rowCounts() (clients, stories int64, err error) {
	if t.atStart == nil {
		var counts startCounts
		found, err := t.row(t.ctx, "SELECT clients, stories"+ofCounts, nil, &counts.clients, &counts.stories)
		if err == nil && !found {
			err = sql.ErrNoRows
		}
		if err != nil {
			return 0, 0, err
		}
		t.atStart = &counts
	}
	return t.atStart.clients + t.clients, t.atStart.stories + t.stories, nil
}

// count adds the changes of the transaction to the table counts.
func (t *tx) count() error {
	if t.clients|t.bans|t.stories|t.lifted == 0 && !t.overrides {
		return nil
	}
	overrides := 0
	if t.overrides {
		overrides = 1
	}
	_, err := t.exec(
		`UPDATE counts SET clients = clients + ?, bans = bans + ?, stories = stories + ?, words = words + ?, lifted = max(lifted, ?) WHERE id = 1`,
		t.clients, t.bans, t.stories, overrides, t.lifted)
	return err
}

// protect adds a row for a client if there is none, and raises its value of kept to
// at least this one.
func (t *tx) protect(k key.Key, kept int) error {
	n, err := t.exec("INSERT INTO clients (client, kept) VALUES (?, ?) ON CONFLICT DO NOTHING", k, kept)
	t.clients += n
	if n == 0 && err == nil {
		_, err = t.exec("UPDATE clients SET kept = ?2 WHERE client = ?1 AND kept < ?2", k, kept)
	}
	return err
}

// unprotect computes a client's value of kept again. It removes the row if the
// client never sent a request and nothing protects it.
func (t *tx) unprotect(k key.Key) error {
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

// checkEvery is the number of written rows after which a checkpoint is requested:
// they take 4 to 12 MB of the -wal file.
const checkEvery = 1000

// mostWAL is the number of pages of the -wal file from which on writes wait for a
// checkpoint.
const mostWAL = 16 << 10

// checkpoints copies the -wal file into the file on request, until the registry is
// closed. It has its own connection, since a checkpoint syncs the disk. No commit
// waits for that: neither readers nor writers wait for a passive checkpoint. Only a
// complete checkpoint lets the -wal file start again from its beginning. If writers
// have prevented that until mostWAL, they wait for a complete one.
func (r *Registry) checkpoints() {
	defer close(r.checkDone)
	ctx := context.Background()
	var l *link
	logged := ""
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
			l, err = connect(ctx, r.path, mode{mode: "rw", pragmas: []string{"synchronous = NORMAL"}}, r.o.busy,
				smallCache)
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
			now = fmt.Sprintf("%v; its -wal file grows until a checkpoint succeeds", fault(ctx, r.path, err))
		}
		if now != "" && now != logged { // while a disk is full, each write requests a checkpoint
			r.o.Log(now)
		}
		logged = now
	}
}

// checkpoint copies as many pages as possible. It returns the number of pages in
// the -wal file, and whether it copied all.
func checkpoint(ctx context.Context, l *link) (pages int64, all bool, err error) {
	var busy, done int64
	_, err = l.row(ctx, "PRAGMA wal_checkpoint(PASSIVE)", nil, &busy, &pages, &done)
	return pages, busy == 0 && done == pages, err
}

// steps runs do in one transaction after the other until it reports that nothing
// remains, so that other writers wait for one step only.
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
