package sqlregistry

import (
	"context"
	"database/sql"
	"time"

	"fairshare"
	"fairshare/registry"
	"fairshare/registry/key"
)

// Write writes a batch. It ignores
//
//   - records with an empty ClientID,
//   - bans that began when the client's bans were lifted, or before,
//   - bans that began before the recorded one (but see Batch.At), or that end before
//     it while it is in force,
//   - records of a client that was last seen when it was forgotten, or before. For
//     later records, FirstSeen and First are not before that time.
//
// If the recorded ban has ended, one of the same length with a later Since replaces
// it: it is a newer report of the same ban, and the clock has stepped back.
//
// In a flood that Prune cannot keep up with, the file stays bounded. With a sixteenth
// more clients than their bound, Write ignores records of new clients. It
// still updates known clients; those with a ban or an operator's decision are known.
// With a sixteenth more stories than their bound, it removes one for each
// new story, in the order of Prune.
//
// It does not sync the disk, not even for bans: an attack that causes a thousand
// bans would cause a thousand syncs. So a power failure may lose the last batches
// (see the package); the kill of a process loses nothing.
func (r *Registry) Write(ctx context.Context, b registry.Batch) error {
	if len(b.Clients)+len(b.Stories)+len(b.Bans) == 0 {
		return nil
	}
	return r.writing(ctx, false, func(t *tx) error {
		t.latest = key.Latest(b.At)
		for i := range b.Bans {
			if err := t.ban(&b.Bans[i]); err != nil {
				return err
			}
		}
		for i := range b.Clients {
			if err := t.client(&b.Clients[i], key.MostRows(r.o.Clients)); err != nil {
				return err
			}
		}
		for i := range b.Stories {
			if err := t.story(&b.Stories[i], key.MostRows(r.o.Stories)); err != nil {
				return err
			}
		}
		return nil
	})
}

// client writes an update of a client. It adds a new client only if there are fewer
// than most.
func (t *tx) client(d *registry.ClientDelta, most int64) error {
	k, err := key.Of(d.Client)
	if err != nil {
		return nil
	}
	first, forgotten, err := t.remembered(k, d.FirstSeen, d.LastSeen)
	if err != nil || forgotten {
		return err
	}
	s := &d.Spent
	args := []any{
		k, first, key.Nanoseconds(d.LastSeen),
		key.Bounded(s.Requests), key.Bounded(s.Refused), key.Bounded(s.Blocked), key.Bounded(s.DryRun),
		key.Bounded(int64(s.CPU)), key.Bounded(int64(s.Time)), key.Bounded(s.Bytes), key.Bounded(s.Errors),
		d.Bot, int64(d.BotState), d.UserAgent, d.Fleet,
	}
	n, err := t.exec(
		`UPDATE clients SET first = CASE WHEN first = 0 OR ?2 BETWEEN 1 AND first THEN ?2 ELSE first END, last = max(last, ?3),
		requests = requests + ?4, refused = refused + ?5, blocked = blocked + ?6, trial = trial + ?7,
		cpu = cpu + ?8, took = took + ?9, bytes = bytes + ?10, errors = errors + ?11, bot = ?12, state = ?13, agent = ?14, fleet = ?15 WHERE client = ?1`, args...)
	if err != nil || n > 0 {
		return err
	}
	if clients, _, err := t.rowCounts(); err != nil || clients >= most {
		return err
	}
	t.clients++
	_, err = t.exec(
		`INSERT INTO clients (client, first, last, requests, refused, blocked, trial, cpu, took, bytes, errors, bot, state, agent, fleet, kept)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, EXISTS (SELECT 1 FROM bans WHERE client = ?1))`, args...)
	return err
}

// ban writes a ban. One of the same length with a later Since is a newer report of the
// recorded ban. After a step of the clock it may seem to begin earlier.
func (t *tx) ban(b *fairshare.BanRecord) error {
	k, err := key.Of(b.Client)
	if err != nil {
		return nil
	}
	began := key.Nanoseconds(b.Began)
	if lifted, err := t.liftedSince(k, began); err != nil || lifted {
		return err
	}
	args := []any{k, int64(b.Kind), b.Rule, int64(b.Number), began, key.Nanoseconds(b.Until), key.Nanoseconds(b.Since),
		b.DryRun}
	n, err := t.exec(
		`UPDATE bans SET number = ?4, began = ?5, until = ?6, since = ?7, dry = ?8 WHERE client = ?1 AND kind = ?2 AND rule = ?3
		AND (began <= ?5 AND (until <= ?6 OR until <= ?5) OR began > ?9 OR until <= ?9 AND until - began = ?6 - ?5 AND since < ?7)`, append(args, t.latest)...)
	if err != nil || n > 0 {
		return err
	}
	n, err = t.exec(
		"INSERT INTO bans (client, kind, rule, number, began, until, since, dry) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", args...)
	if err != nil || n == 0 {
		return err
	}
	t.bans++
	return t.protect(k, keptByBan)
}

// Values of the column kept: what protects a row of clients from Prune.
const (
	keptByBan      = 1
	keptByOperator = 2
)

// liftedSince reports whether the bans of a client were lifted at a time or
// later.
func (t *tx) liftedSince(k key.Key, began int64) (bool, error) {
	if err := t.readLifts(); err != nil {
		return false, err
	}
	return t.lifts.Lifted(k, began, t.latest), nil
}

// remembered returns the start of a client's records in Unix ns: not before the
// client was last forgotten. forgotten reports that it was forgotten after last.
func (t *tx) remembered(k key.Key, first, last time.Time) (from int64, forgotten bool, err error) {
	if err := t.readLifts(); err != nil {
		return 0, false, err
	}
	from, forgotten = t.lifts.Remembered(k, key.Nanoseconds(first), key.Nanoseconds(last), t.latest)
	return from, forgotten, nil
}

// readLifts reads the new rows of changes. The lifts cover about the last
// [registry.ChangesStay].
func (t *tx) readLifts() error {
	if t.liftsRead {
		return nil
	}
	err := t.link.rows(t.ctx, "SELECT id, client, at, forget FROM changes WHERE id > ? ORDER BY id", []any{t.lifts.LastID},
		func(rows *sql.Rows) error {
			var k key.Key
			var id, at int64
			var forget bool
			if err := rows.Scan(&id, &k, &at, &forget); err != nil {
				return err
			}
			return t.lifts.Add(id, k, at, forget)
		})
	t.liftsRead = err == nil
	return err
}
