package pgregistry

import (
	"context"
	"time"

	"fairshare"
	"fairshare/registry"
	"fairshare/registry/key"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// mostChanged bounds the bans that Changes returns, but for those of one write.
const mostChanged = 5000

// Changes returns the changes by operators, and the bans by servers, since a version. If
// there are none, it reads one row.
func (r *Registry) Changes(ctx context.Context, since registry.Version) (registry.Changes, error) {
	var c registry.Changes
	err := r.reading(ctx, func(ctx context.Context, from *pgxpool.Conn) error {
		c = registry.Changes{}
		now := &c.Version
		found, err := r.row(ctx, from, "SELECT overrides, lifted, bans FROM {}state WHERE id = 1", nil, &now.Overrides,
			&now.Lifted, &now.Bans)
		if err == nil && !found {
			err = pgx.ErrNoRows
		}
		if err != nil {
			return err
		}
		c.Overrides = now.Overrides != since.Overrides
		if since == (registry.Version{}) {
			return nil
		}
		if now.Lifted != since.Lifted {
			after := since.Lifted
			if after > now.Lifted { // a backup was restored
				after = 0
			}
			if c.Lifted, err = r.lifted(ctx, from, "id > $1 AND id <= $2", after, now.Lifted); err != nil {
				return err
			}
		}
		if now.Bans <= since.Bans {
			return nil
		}
		c.Bans, now.Bans, err = r.bansSince(ctx, from, since.Bans, now.Bans)
		return err
	})
	if err != nil {
		return registry.Changes{}, err
	}
	return c, nil
}

// bansSince returns bans of the writes after one, up to the write of that number or an
// earlier one, which it returns.
func (r *Registry) bansSince(ctx context.Context, from querier, after, upTo int64) (bans []fairshare.BanRecord,
	last int64, err error) {
	read := func(limit int) (cut int64, err error) {
		bans = bans[:0]
		previous, start := int64(0), 0 // the latest write, and its first ban
		err = r.rows(ctx, from, "SELECT "+banColumns+", change FROM {}bans WHERE change > $1 AND change <= $2 "+
			"ORDER BY change, client, kind, rule LIMIT $3", []any{after, upTo, limit}, func(rows pgx.Rows) error {
			var change int64
			b, _, err := r.scanBan(rows, &change)
			if change != previous {
				previous, start = change, len(bans)
			}
			bans = append(bans, b)
			return err
		})
		if err != nil || len(bans) < limit {
			return upTo, err
		}
		bans = bans[:start] // the rest of the latest write may be missing
		return previous - 1, nil
	}
	if last, err = read(mostChanged); err == nil && len(bans) == 0 && last < upTo { // one large write
		upTo = last + 1
		last, err = read(1 << 30)
	}
	return bans, last, err
}

// Lifted returns the clients that were lifted or forgotten at a time or later, in order
// of time.
func (r *Registry) Lifted(ctx context.Context, since time.Time) (clients []registry.LiftedClient, err error) {
	err = r.reading(ctx, func(ctx context.Context, from *pgxpool.Conn) error {
		clients, err = r.lifted(ctx, from, "at >= $1", r.toDatabase(since))
		return err
	})
	if err != nil {
		return nil, err
	}
	return clients, nil
}

func (r *Registry) lifted(ctx context.Context, from querier, where string, args ...any) (
	clients []registry.LiftedClient, err error) {
	err = r.rows(ctx, from, "SELECT client, at, forget FROM {}changes WHERE "+where+" ORDER BY id", args,
		func(rows pgx.Rows) error {
			var k key.Key
			var at int64
			var c registry.LiftedClient
			if err := rows.Scan(&k, &at, &c.Forget); err != nil {
				return err
			}
			id, err := key.Client(k)
			c.Client, c.At, c.Stored = id, r.fromDatabase(at), key.Time(at)
			clients = append(clients, c)
			return err
		})
	return clients, err
}
