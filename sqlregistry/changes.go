package sqlregistry

import (
	"context"
	"database/sql"
	"time"

	"fairshare"
)

// A Version is a state of operators' words, and of what they lifted and
// forgot. The zero Version is before all.
type Version struct{ words, lifted int64 }

// Changes is what operators did since a version.
type Changes struct {
	Version Version        // ask with it the next time
	Words   bool           // words or labels: read them again
	Lifted  []LiftedClient // in the order in which it was done; none since the zero Version
}

// A LiftedClient is a client whose bans were lifted, or all of whom was
// forgotten. It is remembered for a day.
type LiftedClient struct {
	Client fairshare.ClientID
	At     time.Time // bans that began then or before are meant
	Forget bool
}

// Changes tells what operators did since a version. When that is nothing it
// costs some µs.
func (r *Registry) Changes(ctx context.Context, since Version) (Changes, error) {
	var c Changes
	if err := r.there(); err != nil {
		return c, err
	}
	err := r.readingFrom(ctx, r.poll, func(l *link) error {
		c = Changes{}
		now := &c.Version
		found, err := l.row(ctx, "SELECT words, lifted FROM counts WHERE id = 1", nil, &now.words, &now.lifted)
		if err != nil {
			return err
		}
		if !found {
			return sql.ErrNoRows
		}
		c.Words = now.words != since.words
		if now.lifted == since.lifted || since == (Version{}) {
			return nil
		}
		after := since.lifted
		if after > now.lifted { // an older copy was put in its place
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

// Lifted returns what was lifted and forgotten at a time or later, of the last
// day, in the order in which it was done.
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
	err = l.rows(ctx, "SELECT client, at, forget FROM changes WHERE "+where+" ORDER BY id", args, func(rows *sql.Rows) error {
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
