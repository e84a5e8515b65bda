package sqlregistry

import (
	"context"
	"database/sql"
	"time"

	"fairshare/registry"
	"fairshare/registry/key"
)

// Sums calls seen for each client that has sent a request. It stops when seen
// returns false. It holds no lock: it may miss a client that is written in the
// meantime. A million clients take about two seconds.
func (r *Registry) Sums(ctx context.Context, seen func(*registry.ClientSum) bool) error {
	page := make([]registry.ClientSum, 0, firstSeenPage)
	var at int64 // rowid of the last
	for {
		page = page[:0]
		err := r.reading(ctx, func(l *link) error {
			return l.rows(ctx, "SELECT rowid, client, requests, refused, blocked, trial, cpu, took, bytes, errors, fleet, "+
				"bot, state, last "+
				"FROM clients WHERE rowid > ? AND first > 0 ORDER BY rowid LIMIT ?", []any{at, firstSeenPage},
				func(rows *sql.Rows) error {
					var k sql.RawBytes
					var c registry.ClientSum
					var cpu, took, last int64
					s := &c.Spent
					err := rows.Scan(&at, &k, &s.Requests, &s.Refused, &s.Blocked, &s.DryRun, &cpu, &took, &s.Bytes,
						&s.Errors, &c.Fleet, &c.Bot, &c.State, &last)
					if err != nil {
						return err
					}
					c.Last = time.Unix(0, last)
					s.CPU, s.Time = time.Duration(cpu), time.Duration(took)
					c.Client, err = key.Client(key.Key(k))
					page = append(page, c)
					return err
				})
		})
		if err != nil {
			return err
		}
		for i := range page {
			if !seen(&page[i]) {
				return nil
			}
		}
		if len(page) < firstSeenPage {
			return nil
		}
	}
}

// Fleets returns the fleets of the last SetFleets.
func (r *Registry) Fleets(ctx context.Context) (all []registry.FleetRecord, err error) {
	err = r.setting(ctx, "fleets", &all)
	return all, err
}

// SetFleets records the fleets that a server has found, in place of earlier ones.
func (r *Registry) SetFleets(ctx context.Context, all []registry.FleetRecord) error {
	return r.writing(ctx, false, func(t *tx) error { return t.setSetting("fleets", all) })
}
