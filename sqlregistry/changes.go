package sqlregistry

import (
	"context"
	"database/sql"
	"time"

	"fairshare/registry"
	"fairshare/registry/key"
)

// Changes returns the changes by operators since a version. If there are none, it
// takes some µs.
func (r *Registry) Changes(ctx context.Context, since registry.Version) (registry.Changes, error) {
	var c registry.Changes
	if err := r.checkFile(); err != nil {
		return c, err
	}
	err := r.readingFrom(ctx, r.poll, func(l *link) error {
		c = registry.Changes{}
		now := &c.Version
		found, err := l.row(ctx, "SELECT words, lifted FROM counts WHERE id = 1", nil, &now.Overrides, &now.Lifted)
		if err != nil {
			return err
		}
		if !found {
			return sql.ErrNoRows
		}
		c.Overrides = now.Overrides != since.Overrides
		if now.Lifted == since.Lifted || since == (registry.Version{}) {
			return nil
		}
		after := since.Lifted
		if after > now.Lifted { // an older copy replaced the file
			after = 0
		}
		c.Lifted, err = lifted(ctx, l, "id > ? AND id <= ?", after, now.Lifted)
		return err
	})
	if err != nil {
		return registry.Changes{}, err
	}
	return c, nil
}

// Lifted returns the clients that were lifted or forgotten at a time or later, in
// order of time.
func (r *Registry) Lifted(ctx context.Context, since time.Time) (clients []registry.LiftedClient, err error) {
	err = r.reading(ctx, func(l *link) error {
		clients, err = lifted(ctx, l, "at >= ?", key.Nanoseconds(since))
		return err
	})
	if err != nil {
		return nil, err
	}
	return clients, nil
}

func lifted(ctx context.Context, l *link, where string, args ...any) (clients []registry.LiftedClient, err error) {
	err = l.rows(ctx, "SELECT client, at, forget, CASE stored WHEN 0 THEN at ELSE stored END FROM changes WHERE "+
		where+" ORDER BY id", args,
		func(rows *sql.Rows) error {
			var k key.Key
			var at, stored int64
			var c registry.LiftedClient
			if err := rows.Scan(&k, &at, &c.Forget, &stored); err != nil {
				return err
			}
			id, err := key.Client(k)
			c.Client, c.At, c.Stored = id, key.Time(at), key.Time(stored)
			clients = append(clients, c)
			return err
		})
	return clients, err
}
