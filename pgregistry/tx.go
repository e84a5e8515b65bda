package pgregistry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"encoding/hex"

	"fairshare/registry"
	"fairshare/registry/key"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Advisory locks of transactions, always taken in this order. What changes the Version,
// or why a client's row is kept, holds lockChanges. What writes clients and stories
// shares lockRecords; what removes them, or must count stories exactly, holds it alone.
const (
	lockChanges = iota + 1
	lockRecords
	lockRecordsShared // the same lock, shared
	lockMigrate
)

// Bounds of a transaction. Without idleTime, a server that is stopped in the middle of a
// transaction would block all others.
const (
	lockTime = "5s"
	idleTime = "10s"
	tries    = 5 // of a transaction that fails because of another one
)

// locks returns the expressions of a SELECT that take locks.
func (r *Registry) locks(locks ...int) string {
	all := make([]string, len(locks))
	for i, lock := range locks {
		shared := ""
		if lock == lockRecordsShared {
			lock, shared = lockRecords, "_shared"
		}
		all[i] = fmt.Sprintf("pg_advisory_xact_lock%s(%d, %d)", shared, r.lock, lock)
	}
	return strings.Join(all, ", ")
}

// A tx is a transaction that writes. At its end it updates the tables counts and state.
type tx struct {
	*Registry
	*pgxpool.Conn
	ctx                    context.Context
	clients, bans, stories int64 // rows added, less those removed
	overrides              bool  // overrides or labels changed
	banned                 bool  // bans were written: state.bans grows
	lifted                 int64 // the last of changes; 0: none was added
	latest                 int64 // see Batch.At, Unix ns

	// The numbers of rows at the start of a transaction of Write.
	clientsBefore, storiesBefore int64
}

// writing runs do in a transaction that holds locks. synced: it is on the disk when
// writing returns. It runs do again if the transaction fails because of another one.
func (r *Registry) writing(ctx context.Context, synced bool, locks []int, do func(*tx) error) error {
	return r.transaction(ctx, synced, false, locks, do)
}

// transaction is writing. With lifts it also reads new lifts and the numbers of rows.
func (r *Registry) transaction(ctx context.Context, synced, lifts bool, locks []int, do func(*tx) error) error {
	if r.o.ReadOnly {
		return &Error{Where: r.where, Kind: registry.ErrReadOnly, Details: "it was opened for reading only"}
	}
	if r.closing.Err() != nil {
		return r.fault(ctx, errClosed)
	}
	inner, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	var err error
	for try := range tries {
		var conn *pgxpool.Conn
		if conn, err = r.acquire(inner); err != nil {
			break
		}
		var version, began bool
		version, began, err = r.run(inner, conn, synced, lifts, locks, do)
		cut := !began && conn.Conn().IsClosed() // by a restart of the server: nothing was done
		conn.Release()
		if err == nil {
			if version {
				r.announce()
			}
			return nil
		}
		if cut && inner.Err() == nil {
			continue
		}
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != "40001" && pg.Code != "40P01" {
			break
		}
		select {
		case <-inner.Done():
		case <-time.After(time.Duration(rand.Int64N(int64(10*time.Millisecond) << try))):
		}
	}
	return r.fault(ctx, err)
}

// run runs one transaction. version reports that it has changed the Version, and began that do was called.
func (r *Registry) run(ctx context.Context, conn *pgxpool.Conn, synced, lifts bool, locks []int, do func(*tx) error) (
	version, began bool, err error) {
	t := &tx{Registry: r, Conn: conn, ctx: ctx}
	if err = t.begin(synced, lifts, locks); err == nil {
		began = true
		err = do(t)
	}
	if err == nil {
		err = t.commit()
	}
	if err != nil && !conn.Conn().IsClosed() {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if _, failed := conn.Exec(undo, "ROLLBACK"); failed != nil {
			_ = conn.Conn().Close(undo)
		}
	}
	return t.overrides || t.lifted > 0 || t.banned, began, err
}

// byIndex are expressions of a SELECT after which the statements of a transaction find their rows by indexes. The
// statistics of a table that has just grown, or a plan from when it was empty, would have some read all of it.
const byIndex = "set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true), " +
	"set_config('max_parallel_workers_per_gather', '0', true)"

// begin begins the transaction, in one round trip.
func (t *tx) begin(synced, lifts bool, locks []int) (err error) {
	set := byIndex + ", set_config('lock_timeout', '" + lockTime + "', true), " +
		"set_config('idle_in_transaction_session_timeout', '" + idleTime + "', true)"
	if !synced {
		set += ", set_config('synchronous_commit', 'off', true)"
	}
	if len(locks) > 0 {
		set += ", " + t.locks(locks...)
	}
	var all pgx.Batch
	all.Queue("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
	all.Queue("SELECT " + set)
	var after int64
	if lifts {
		after = t.queueLifts(&all)
	}
	results := t.SendBatch(t.ctx, &all)
	defer func() {
		if failed := results.Close(); err == nil {
			err = failed
		}
	}()
	for range 2 {
		if _, err := results.Exec(); err != nil {
			return err
		}
	}
	if lifts {
		return t.readLifts(results, after)
	}
	return nil
}

// exec runs a statement and returns how many rows it changed.
func (t *tx) exec(query string, args ...any) (int64, error) {
	tag, err := t.Conn.Exec(t.ctx, t.sql(query), args...)
	return tag.RowsAffected(), err
}

// query calls each for each row.
func (t *tx) query(query string, args []any, each func(pgx.Rows) error) error {
	return t.rows(t.ctx, t.Conn, query, args, each)
}

// integer reads one integer; a missing row is an error.
func (r *Registry) integer(ctx context.Context, from querier, query string, args ...any) (n int64, err error) {
	found, err := r.row(ctx, from, query, args, &n)
	if err == nil && !found {
		err = pgx.ErrNoRows
	}
	return n, err
}

// commit adds the changes of the transaction to counts and state, last of all: other
// transactions wait for these rows. It sends all statements at once: after an error in
// one, the server skips the others.
func (t *tx) commit() error {
	var all pgx.Batch
	if t.clients|t.bans|t.stories != 0 {
		all.Queue(t.sql("UPDATE {}counts SET clients = clients + $2, bans = bans + $3, stories = stories + $4 "+
			"WHERE slot = $1"), t.slot, t.clients, t.bans, t.stories)
	}
	if t.overrides || t.lifted > 0 || t.banned {
		all.Queue(t.sql("UPDATE {}state SET overrides = overrides + $1::boolean::int, lifted = greatest(lifted, $2), "+
			"bans = bans + $3::boolean::int WHERE id = 1"), t.overrides, t.lifted, t.banned)
	}
	all.Queue("COMMIT")
	return t.SendBatch(t.ctx, &all).Close()
}

// protect adds rows for clients without one, and raises the kept of all to at least this
// one. The caller holds lockChanges.
func (t *tx) protect(keys []key.Key, kept int) error {
	added := int64(0)
	err := t.query("INSERT INTO {}clients AS c (client, kept) SELECT k, $2::smallint FROM unnest($1::bytea[]) AS k ORDER BY k "+
		"ON CONFLICT (client) DO UPDATE SET kept = greatest(c.kept, excluded.kept) WHERE c.kept < excluded.kept "+
		"RETURNING xmax = 0", []any{sorted(keys), kept}, func(rows pgx.Rows) error {
		var isNew bool
		err := rows.Scan(&isNew)
		if isNew {
			added++
		}
		return err
	})
	t.clients += added
	return err
}

// unprotect computes the kept of clients again. It removes rows of clients that never
// sent a request and that nothing protects. The caller holds lockChanges.
func (t *tx) unprotect(keys []key.Key) error {
	if len(keys) == 0 {
		return nil
	}
	keys = sorted(keys)
	// Lock the rows in the order of keys, as Write does.
	if _, err := t.exec("SELECT 1 FROM {}clients WHERE client = ANY ($1) ORDER BY client FOR UPDATE", keys); err != nil {
		return err
	}
	if _, err := t.exec(`UPDATE {}clients c SET kept = CASE
		WHEN EXISTS (SELECT 1 FROM {}overrides o WHERE o.client = c.client)
			OR EXISTS (SELECT 1 FROM {}labels l WHERE l.client = c.client)
			OR EXISTS (SELECT 1 FROM {}notes n WHERE n.client = c.client) THEN 2
		WHEN EXISTS (SELECT 1 FROM {}bans b WHERE b.client = c.client) THEN 1
		ELSE 0 END WHERE client = ANY ($1)`, keys); err != nil {
		return err
	}
	n, err := t.exec("DELETE FROM {}clients WHERE client = ANY ($1) AND kept = 0 AND last = 0", keys)
	t.clients -= n
	return err
}

// Values of the column kept.
const (
	keptByBan      = 1
	keptByOperator = 2
)

// sorted returns the keys in order, each once.
func sorted(keys []key.Key) []key.Key {
	keys = slices.Clone(keys)
	slices.SortFunc(keys, slices.Compare)
	return slices.CompactFunc(keys, slices.Equal)
}

// encode returns a text as PostgreSQL can store it: as it is, or if it is not valid UTF-8,
// contains a zero byte or looks like an encoded one, as \x and hexadecimal digits.
func encode(text string) string {
	if utf8.ValidString(text) && !strings.Contains(text, "\x00") && !strings.HasPrefix(text, `\x`) {
		return text
	}
	return `\x` + hex.EncodeToString([]byte(text))
}

// decode returns the text of an encoded one.
func decode(text string) (string, error) {
	digits, encoded := strings.CutPrefix(text, `\x`)
	if !encoded {
		return text, nil
	}
	b, err := hex.DecodeString(digits)
	if err != nil {
		return "", key.ErrRow
	}
	return string(b), nil
}

// decodeAll decodes texts in place.
func decodeAll(texts ...*string) (err error) {
	for _, text := range texts {
		if *text, err = decode(*text); err != nil {
			return err
		}
	}
	return nil
}
