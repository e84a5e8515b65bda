package sqlregistry

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"fairshare/registry"
	"fairshare/registry/key"
)

// Prune removes at most that many rows: those that are too old, then those over
// the bounds. It reports whether there may be more to remove. If there is nothing
// to remove, it only reads.
//
// It removes
//
//   - overrides a week after their end,
//   - clients over the bound: first those without any recorded ban, the longest
//     unseen first, and last those with a ban in force; it never removes a client
//     with an override, a label or a note,
//   - bans over the bound, those that ended first,
//   - stories: the oldest one of the network with the most stories, while this
//     network has more than a tenth of the bound or there are too many in all. If
//     each network has only one, the oldest of all.
func (r *Registry) Prune(ctx context.Context, now time.Time, rows int) (more bool, err error) {
	if rows <= 0 {
		return false, fmt.Errorf("pruning %d rows is %w", rows, registry.ErrArgument)
	}
	p := pruning{
		now: key.Nanoseconds(now), old: key.Nanoseconds(now.Add(-r.o.Age)),
		week:    key.Nanoseconds(now.Add(-key.OverridesStay)),
		day:     key.Nanoseconds(now.Add(-registry.ChangesStay)),
		clients: int64(r.o.Clients), bans: int64(r.o.Bans), stories: int64(r.o.Stories),
		tenth: max(int64(r.o.Stories)/10, 1),
	}
	todo := false
	err = r.reading(ctx, func(l *link) error {
		todo, err = p.todo(ctx, l)
		return err
	})
	if err != nil || !todo {
		return false, err
	}
	left := 0
	err = r.writing(ctx, false, func(t *tx) error {
		left = rows
		for _, step := range []func(*tx, int) (int, error){p.overrides, p.changes, p.oldBans, p.manyBans, p.oldStories,
			p.manyStories, p.oldClients, p.manyClients} {
			if left == 0 {
				break
			}
			n, err := step(t, left)
			if err != nil {
				return err
			}
			left -= n
		}
		return nil
	})
	return left == 0 && err == nil, err
}

// A pruning has the times before which rows are removed, in Unix ns, and the bounds.
type pruning struct {
	now, old, week, day           int64
	clients, bans, stories, tenth int64
}

const ofCounts = " FROM counts WHERE id = 1"

// todo reports whether there is anything to remove.
func (p *pruning) todo(ctx context.Context, l *link) (bool, error) {
	n, err := l.integer(ctx,
		`SELECT bans > ?1 OR stories > ?2 OR clients > ?3 AND EXISTS (SELECT 1 FROM clients WHERE kept < 2)
		OR EXISTS (SELECT 1 FROM words WHERE until <> 0 AND until < ?4)
		OR coalesce((SELECT at FROM changes ORDER BY id LIMIT 1) < ?5, 0)
		OR EXISTS (SELECT 1 FROM bans WHERE until < ?6)
		OR EXISTS (SELECT 1 FROM stories WHERE last < ?6)
		OR EXISTS (SELECT 1 FROM networks WHERE stories > ?7)
		OR EXISTS (SELECT 1 FROM clients WHERE kept = 0 AND last < ?6)`+ofCounts,
		p.bans, p.stories, p.clients, p.week, p.day, p.old, p.tenth)
	return n != 0, err
}

func (p *pruning) overrides(t *tx, rows int) (int, error) {
	keys, err := keys(t, "SELECT client FROM words WHERE until <> 0 AND until < ? ORDER BY until, client LIMIT ?",
		p.week, rows)
	for _, k := range keys {
		t.overrides = true
		if _, err := t.exec("DELETE FROM words WHERE client = ?", k); err != nil {
			return 0, err
		}
		if err := t.unprotect(k); err != nil {
			return 0, err
		}
	}
	return len(keys), err
}

// changes removes changes in the order in which they were made.
func (p *pruning) changes(t *tx, rows int) (int, error) {
	n, err := t.exec(
		"DELETE FROM changes WHERE id IN (SELECT id FROM (SELECT id, at FROM changes ORDER BY id LIMIT ?) WHERE at < ?)", rows, p.day)
	if n > 0 {
		t.lifts = key.Lifts{}
	}
	return int(n), err
}

func (p *pruning) oldBans(t *tx, rows int) (int, error) {
	return t.dropBans(rows, "WHERE until < ?", p.old)
}

func (p *pruning) manyBans(t *tx, rows int) (int, error) {
	over, err := t.integer(t.ctx, "SELECT bans - ?"+ofCounts, p.bans)
	if over += t.bans; err != nil || over <= 0 {
		return 0, err
	}
	return t.dropBans(min(rows, int(over)), "WHERE until > ?", -1)
}

// dropBans removes the bans with the earliest end.
func (t *tx) dropBans(rows int, where string, arg int64) (int, error) {
	type banKey struct {
		client key.Key
		kind   int64
		rule   string
	}
	var bans []banKey
	err := t.link.rows(t.ctx, "SELECT client, kind, rule FROM bans "+where+
		" ORDER BY until, client, kind, rule LIMIT ?", []any{arg, rows}, func(rows *sql.Rows) error {
		var b banKey
		err := rows.Scan(&b.client, &b.kind, &b.rule)
		bans = append(bans, b)
		return err
	})
	if err != nil {
		return 0, err
	}
	for _, b := range bans {
		if err := t.dropBan(b.client, b.kind, b.rule); err != nil {
			return 0, err
		}
	}
	return len(bans), nil
}

func (p *pruning) oldStories(t *tx, rows int) (int, error) {
	return t.dropStories("last < ? ORDER BY last", p.old, rows)
}

func (p *pruning) manyStories(t *tx, rows int) (int, error) {
	for n := range rows {
		_, all, err := t.rowCounts()
		if err != nil {
			return n, err
		}
		many := p.tenth
		if all > p.stories {
			many = 0
		}
		if dropped, err := t.dropOfMost(many); err != nil || !dropped {
			return n, err
		}
	}
	return rows, nil
}

func (p *pruning) oldClients(t *tx, rows int) (int, error) {
	n, err := t.exec(
		"DELETE FROM clients WHERE rowid IN (SELECT rowid FROM clients WHERE kept = 0 AND last < ? ORDER BY last LIMIT ?)", p.old, rows)
	t.clients -= n
	return int(n), err
}

// manyClients searches only some of the clients for bans that have ended, so that
// a step takes no longer if all bans are in force.
func (p *pruning) manyClients(t *tx, rows int) (removed int, err error) {
	over, _, err := t.rowCounts()
	if err != nil {
		return 0, err
	}
	over -= p.clients
	for _, query := range []string{
		"SELECT rowid FROM clients WHERE kept = 0 ORDER BY last LIMIT ?2",
		"SELECT id FROM (SELECT rowid AS id, client FROM clients WHERE kept = 1 ORDER BY last LIMIT 10 * ?2) AS c WHERE NOT EXISTS (SELECT 1 FROM bans WHERE bans.client = c.client AND until > ?1) LIMIT ?2",
		"SELECT rowid FROM clients WHERE kept = 1 ORDER BY last LIMIT ?2",
	} {
		if n := min(int64(rows-removed), over); n > 0 {
			deleted, err := t.exec("DELETE FROM clients WHERE rowid IN ("+query+")", p.now, n)
			if err != nil {
				return removed, err
			}
			t.clients -= deleted
			over -= deleted
			removed += int(deleted)
		}
	}
	return removed, nil
}

func keys(t *tx, query string, args ...any) (keys []key.Key, err error) {
	err = t.link.rows(t.ctx, query, args, func(rows *sql.Rows) error {
		var k key.Key
		err := rows.Scan(&k)
		keys = append(keys, k)
		return err
	})
	return keys, err
}
