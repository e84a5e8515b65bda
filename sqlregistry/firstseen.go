package sqlregistry

import (
	"context"
	"database/sql"
	"time"

	"fairshare"
	"fairshare/registry/key"
)

// firstSeenPage is how many clients one statement reads.
const firstSeenPage = 4096

// FirstSeen calls seen for each client that has sent a request, with the time of
// the first one, in the order in which they came. It stops when seen returns
// false. It holds no lock: it may miss a client that is written in the meantime. A
// million clients take about a second.
func (r *Registry) FirstSeen(ctx context.Context, seen func(client fairshare.ClientID, first time.Time) bool) error {
	type row struct {
		client fairshare.ClientID
		first  int64
	}
	return pages(ctx, r, "client, first", func(rows *sql.Rows, at *int64) (c row, err error) {
		var k sql.RawBytes
		if err = rows.Scan(at, &k, &c.first); err == nil {
			c.client, err = key.Client(key.Key(k))
		}
		return c, err
	}, func(c *row) bool { return seen(c.client, key.Time(c.first)) })
}

// pages calls seen for each row of the clients that have sent a request.
func pages[Row any](ctx context.Context, r *Registry, columns string, scan func(rows *sql.Rows, at *int64) (Row, error),
	seen func(*Row) bool) error {
	var at int64 // rowid of the last
	return key.Pages(firstSeenPage, func(page []Row) ([]Row, error) {
		err := r.reading(ctx, func(l *link) error {
			return l.rows(ctx, "SELECT rowid, "+columns+" FROM clients WHERE rowid > ? AND first > 0 ORDER BY rowid LIMIT ?",
				[]any{at, firstSeenPage}, func(rows *sql.Rows) error {
					c, err := scan(rows, &at)
					page = append(page, c)
					return err
				})
		})
		return page, err
	}, seen)
}
