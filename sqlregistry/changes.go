package sqlregistry

import (
	"context"
	"database/sql"
	"time"

	"fairshare"
)

// A Version identifies a state of overrides, labels, lifted bans and forgotten
// clients. The zero Version comes before all changes.
type Version struct{ overrides, lifted int64 }

// Changes are the changes by operators since a version.
type Changes struct {
	Version   Version        // pass it to the next call
	Overrides bool           // overrides or labels have changed: read them again
	Lifted    []LiftedClient // in order of time; empty since the zero Version
}

// ChangesStay is how long a [LiftedClient] is recorded: counters of the longest
// window last for two windows.
const ChangesStay = 2 * fairshare.MaxWindow

// A LiftedClient is a client whose bans were lifted, or whose records were all
// deleted. It is recorded for [ChangesStay].
type LiftedClient struct {
	Client fairshare.ClientID
	At     time.Time // it affects bans that began then or before
	Forget bool      // all records were deleted, not only bans
}

// Changes returns the changes by operators since a version. If there are none, it
// takes some µs.
func (r *Registry) Changes(ctx context.Context, since Version) (Changes, error) {
	var c Changes
	if err := r.checkFile(); err != nil {
		return c, err
	}
	err := r.readingFrom(ctx, r.poll, func(l *link) error {
		c = Changes{}
		now := &c.Version
		found, err := l.row(ctx, "SELECT words, lifted FROM counts WHERE id = 1", nil, &now.overrides, &now.lifted)
		if err != nil {
			return err
		}
		if !found {
			return sql.ErrNoRows
		}
		c.Overrides = now.overrides != since.overrides
		if now.lifted == since.lifted || since == (Version{}) {
			return nil
		}
		after := since.lifted
		if after > now.lifted { // an older copy replaced the file
			after = 0
		}
		c.Lifted, err = lifted(ctx, l, "id > ? AND id <= ?", after, now.lifted)
		return err
	})
	if err != nil {
		return Changes{}, err
	}
	return c, nil
}

// Lifted returns the clients that were lifted or forgotten at a time or later, in
// order of time.
func (r *Registry) Lifted(ctx context.Context, since time.Time) (clients []LiftedClient, err error) {
	err = r.reading(ctx, func(l *link) error {
		clients, err = lifted(ctx, l, "at >= ?", nanoseconds(since))
		return err
	})
	if err != nil {
		return nil, err
	}
	return clients, nil
}

func lifted(ctx context.Context, l *link, where string, args ...any) (clients []LiftedClient, err error) {
	err = l.rows(ctx, "SELECT client, at, forget FROM changes WHERE "+where+" ORDER BY id", args,
		func(rows *sql.Rows) error {
			var k key
			var at int64
			var c LiftedClient
			if err := rows.Scan(&k, &at, &c.Forget); err != nil {
				return err
			}
			id, err := idOf(k)
			c.Client, c.At = id, timeOf(at)
			clients = append(clients, c)
			return err
		})
	return clients, err
}
