package sqlregistry

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	_ "modernc.org/sqlite" // the driver
)

// A link is one connection with its prepared statements. Only one goroutine uses
// it at a time.
type link struct {
	db    *sql.DB
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
}

// A mode is a way to open a file.
type mode struct {
	mode    string   // SQLite's: "rw" or "ro"; "immutable" takes no locks and ignores changes
	pragmas []string // set in this order, before all others
}

// connect opens a connection. memory is the size of its page cache in KiB.
func connect(ctx context.Context, path string, m mode, busy time.Duration, memory int) (*link, error) {
	q := url.Values{"mode": {m.mode}, "_dqs": {"0"}, "_busy_timeout": {strconv.FormatInt(busy.Milliseconds(), 10)}}
	if m.mode == "immutable" {
		q.Set("mode", "ro")
		q.Set("immutable", "1")
	}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: q.Encode()}).String())
	if err != nil {
		return nil, err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	// In the URL the driver would set them in alphabetical order.
	pragmas := append(slices.Clone(m.pragmas),
		"cache_size = -"+strconv.Itoa(memory),
		"cell_size_check = 1", // damage is an error, not a wrong answer
		"trusted_schema = 0",
		"wal_autocheckpoint = 0", // see checkpoints
		"journal_size_limit = "+strconv.Itoa(maxWAL),
		"temp_store = MEMORY")
	if _, err = conn.ExecContext(ctx, "PRAGMA "+strings.Join(pragmas, "; PRAGMA ")); err != nil {
		return nil, errors.Join(err, conn.Close(), db.Close())
	}
	return &link{db: db, conn: conn, stmts: map[string]*sql.Stmt{}}, nil
}

func (l *link) close() error {
	var errs []error
	for _, s := range l.stmts {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, l.conn.Close(), l.db.Close())...)
}

// prepare returns a statement. It prepares each statement once.
func (l *link) prepare(ctx context.Context, query string) (*sql.Stmt, error) {
	s := l.stmts[query]
	if s == nil {
		var err error
		if s, err = l.conn.PrepareContext(ctx, query); err != nil {
			return nil, err
		}
		l.stmts[query] = s
	}
	return s, nil
}

// exec runs a statement and returns how many rows it changed.
func (l *link) exec(ctx context.Context, query string, args ...any) (int64, error) {
	s, err := l.prepare(ctx, query)
	if err != nil {
		return 0, err
	}
	result, err := s.ExecContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// row reads one row into to, and reports whether there is one.
func (l *link) row(ctx context.Context, query string, args []any, to ...any) (found bool, err error) {
	err = l.rows(ctx, query, args, func(rows *sql.Rows) error {
		if found {
			return nil
		}
		found = true
		return rows.Scan(to...)
	})
	return found, err
}

// rows calls each for each row.
func (l *link) rows(ctx context.Context, query string, args []any, each func(*sql.Rows) error) error {
	s, err := l.prepare(ctx, query)
	if err != nil {
		return err
	}
	rows, err := s.QueryContext(ctx, args...)
	if err != nil {
		return err
	}
	for err == nil && rows.Next() {
		err = each(rows)
	}
	return errors.Join(err, rows.Err(), rows.Close())
}

// integer reads one integer; a missing row is an error.
func (l *link) integer(ctx context.Context, query string, args ...any) (n int64, err error) {
	found, err := l.row(ctx, query, args, &n)
	if err == nil && !found {
		err = sql.ErrNoRows
	}
	return n, err
}
