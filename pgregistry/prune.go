package pgregistry

import (
	"context"
	"fmt"
	"time"

	"fairshare/registry"
	"fairshare/registry/key"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Prune removes at most that many rows: those that are too old, then those over the
// bounds. It reports whether there may be more to remove. If there is nothing to remove,
// it only reads. A time that is after now by the caller's clock or by the database's is not
// old: a clock that is ahead removes nothing that is in force.
//
// It removes
//
//   - overrides a week after their end,
//   - clients over the bound: first those without any recorded ban, the longest unseen
//     first, and last those with a ban in force; it never removes a client with an
//     override, a label or a note. Of more clients than 16 times rows that were last seen
//     in one minute, those that came first are removed first,
//   - bans over the bound, those that ended first,
//   - stories: the oldest one of the network with the most stories, while this network
//     has more than a tenth of the bound or there are too many in all. If each network
//     has only one, the oldest of all.
func (r *Registry) Prune(ctx context.Context, now time.Time, rows int) (more bool, err error) {
	if rows <= 0 {
		return false, fmt.Errorf("pruning %d rows is %w", rows, registry.ErrArgument)
	}
	p := pruning{tenth: max(int64(r.o.Stories)/10, 1)}
	todo := false
	err = r.reading(ctx, func(ctx context.Context, from *pgxpool.Conn) error {
		var err error
		if p.now, err = r.integer(ctx, from, "SELECT least($1::bigint, "+databaseNow+")",
			min(r.toDatabase(now), key.Nanoseconds(now))); err != nil {
			return err
		}
		before := func(age time.Duration) int64 { return key.Nanoseconds(key.Time(p.now).Add(-age)) }
		p.old, p.week, p.day = before(r.o.Age), before(key.OverridesStay), before(registry.ChangesStay)
		// The first entry of each index: an EXISTS might read the whole table.
		_, err = r.row(ctx, from, `SELECT c.bans > $1 OR c.stories > $2
			OR c.clients > $3 AND EXISTS (SELECT 1 FROM {}clients WHERE kept < 2)
			OR coalesce((SELECT until FROM {}overrides WHERE until <> 0 ORDER BY until LIMIT 1) < $4, false)
			OR coalesce((SELECT at FROM {}changes ORDER BY id LIMIT 1) < $5, false)
			OR coalesce((SELECT until FROM {}bans ORDER BY until LIMIT 1) < $6, false)
			OR coalesce((SELECT last FROM {}stories ORDER BY last LIMIT 1) < $6, false)
			OR coalesce((SELECT stories FROM {}networks ORDER BY stories DESC LIMIT 1) > $7, false)
			OR coalesce((SELECT minute FROM {}clients WHERE kept = 0 ORDER BY minute LIMIT 1) <= $6::bigint / `+minute+`, false)
			FROM (SELECT sum(clients) AS clients, sum(bans) AS bans, sum(stories) AS stories FROM {}counts) c`,
			[]any{r.o.Bans, r.o.Stories, r.o.Clients, p.week, p.day, p.old, p.tenth}, &todo)
		return err
	})
	if err != nil || !todo {
		return false, err
	}
	left := int64(0)
	err = r.writing(ctx, false, []int{lockChanges, lockRecords}, func(t *tx) error {
		left = int64(rows)
		if _, err := r.row(t.ctx, t.Conn, "SELECT sum(clients)::bigint, sum(bans)::bigint, sum(stories)::bigint "+
			"FROM {}counts", nil, &p.clients, &p.bans, &p.stories); err != nil {
			return err
		}
		for _, step := range []func(*tx, int64) (int64, error){p.overrides, p.changes, p.oldBans, p.manyBans,
			p.oldStories, p.manyStories, p.oldClients, p.manyClients} {
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

// A pruning has the times before which rows are removed, in Unix ns, and the numbers of
// rows at its start.
type pruning struct {
	now, old, week, day    int64
	clients, bans, stories int64
	tenth                  int64
}

func (p *pruning) overrides(t *tx, rows int64) (int64, error) {
	var keys []key.Key
	err := t.query("DELETE FROM {}overrides WHERE client IN (SELECT client FROM {}overrides WHERE until <> 0 AND until < $1 "+
		"ORDER BY until, client LIMIT $2) RETURNING client", []any{p.week, rows}, func(rows pgx.Rows) error {
		var k key.Key
		err := rows.Scan(&k)
		keys = append(keys, k)
		return err
	})
	if err != nil || len(keys) == 0 {
		return 0, err
	}
	t.overrides = true
	return int64(len(keys)), t.unprotect(keys)
}

// changes removes changes in the order in which they were made.
func (p *pruning) changes(t *tx, rows int64) (int64, error) {
	n, err := t.exec("DELETE FROM {}changes WHERE id IN (SELECT id FROM (SELECT id, at FROM {}changes ORDER BY id LIMIT $1) "+
		"AS first WHERE at < $2)", rows, p.day)
	if n > 0 {
		t.liftsMu.Lock()
		t.lifts = key.Lifts{}
		t.liftsMu.Unlock()
	}
	return n, err
}

func (p *pruning) oldBans(t *tx, rows int64) (int64, error) {
	return t.dropFirstBans(rows, p.old)
}

func (p *pruning) manyBans(t *tx, rows int64) (int64, error) {
	over := p.bans + t.bans - int64(t.o.Bans)
	if over <= 0 {
		return 0, nil
	}
	return t.dropFirstBans(min(rows, over), key.Nanoseconds(time.Unix(1<<40, 0)))
}

// dropFirstBans removes the bans with the earliest end, if it is before a time.
func (t *tx) dropFirstBans(rows, before int64) (int64, error) {
	var keys []key.Key
	var c columns
	err := t.query("SELECT client, kind, rule FROM {}bans WHERE until < $1 ORDER BY until, client, kind, rule LIMIT $2",
		[]any{before, rows}, func(rows pgx.Rows) error {
			var k key.Key
			var kind int16
			var rule string
			err := rows.Scan(&k, &kind, &rule)
			keys = append(keys, k)
			c.add([]byte(k), kind, rule)
			return err
		})
	if err != nil || len(keys) == 0 {
		return 0, err
	}
	return int64(len(keys)), t.dropBans(keys, &c)
}

func (p *pruning) oldStories(t *tx, rows int64) (int64, error) {
	return t.dropStories("last < $2 ORDER BY last", int(rows), p.old)
}

func (p *pruning) manyStories(t *tx, rows int64) (int64, error) {
	n, err := t.integer(t.ctx, t.Conn, "SELECT {}drop_stories($1, $2, $3, $4)", p.stories+t.stories,
		t.o.Stories, p.tenth, rows)
	t.stories -= n
	return n, err
}

// The index of minutes has its clients in the order of their ids. So these statements look at some rows in that order,
// and sort them: to sort all clients of a minute could take a second in a flood.
const (
	minute = "60000000000"
	unseen = "ORDER BY minute, last, id LIMIT $2"
	first  = "(SELECT id, client, minute, last FROM {}clients WHERE kept = "
	window = " ORDER BY minute, id LIMIT 16 * $2) AS c "
)

func (p *pruning) oldClients(t *tx, rows int64) (int64, error) {
	return t.dropClients("SELECT id FROM "+first+"0 AND minute <= $1::bigint / "+minute+window+
		"WHERE last < $1 "+unseen, p.old, rows)
}

// manyClients searches only some of the clients for bans that have ended, so that a step
// takes no longer if all bans are in force.
func (p *pruning) manyClients(t *tx, rows int64) (removed int64, err error) {
	over := p.clients + t.clients - int64(t.o.Clients)
	for _, query := range []string{
		"SELECT id FROM " + first + "0" + window + "WHERE $1::bigint IS NOT NULL " + unseen,
		"SELECT id FROM " + first + "1" + window + "WHERE NOT EXISTS (SELECT 1 FROM {}bans b WHERE b.client = c.client " +
			"AND b.until > $1) " + unseen,
		"SELECT id FROM " + first + "1" + window + "WHERE $1::bigint IS NOT NULL " + unseen,
	} {
		if n := min(rows-removed, over); n > 0 {
			deleted, err := t.dropClients(query, p.now, n)
			if err != nil {
				return removed, err
			}
			over -= deleted
			removed += deleted
		}
	}
	return removed, nil
}
