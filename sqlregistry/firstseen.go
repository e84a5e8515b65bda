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
	page := make([]row, 0, firstSeenPage)
	var at int64 // rowid of the last
	for {
		page = page[:0]
		err := r.reading(ctx, func(l *link) error {
			return l.rows(ctx,
				"SELECT rowid, client, first FROM clients WHERE rowid > ? AND first > 0 ORDER BY rowid LIMIT ?",
				[]any{at, firstSeenPage}, func(rows *sql.Rows) error {
					var k sql.RawBytes
					var c row
					err := rows.Scan(&at, &k, &c.first)
					if err != nil {
						return err
					}
					c.client, err = key.Client(key.Key(k))
					page = append(page, c)
					return err
				})
		})
		if err != nil {
			return err
		}
		for i := range page {
			if !seen(page[i].client, key.Time(page[i].first)) {
				return nil
			}
		}
		if len(page) < firstSeenPage {
			return nil
		}
	}
}
