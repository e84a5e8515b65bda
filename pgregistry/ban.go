package pgregistry

import (
	"context"
	"iter"
	"math"
	"time"

	"fairshare"
	"fairshare/registry/key"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const banColumns = "client, kind, rule, number, began, until, since, dry"

func (r *Registry) scanBan(rows pgx.Rows, more ...any) (b fairshare.BanRecord, k key.Key, err error) {
	var number, began, until, since int64
	var kind int16
	all := append([]any{&k, &kind, &b.Rule, &number, &began, &until, &since, &b.DryRun}, more...)
	if err = rows.Scan(all...); err != nil {
		return b, k, err
	}
	if b.Client, err = key.Client(k); err == nil {
		err = decodeAll(&b.Rule)
	}
	b.Kind, b.Number = fairshare.KeyKind(kind), int(number)
	b.Began, b.Until, b.Since = r.fromDatabase(began), r.fromDatabase(until), r.fromDatabase(since)
	return b, k, err
}

// bansPage is how many bans one statement reads.
const bansPage = 5000

// Bans yields the bans in force at now, or all recorded bans, in the order of clients. It
// holds no lock while it yields: it may miss a ban that is written in the meantime. It
// ends after an error.
func (r *Registry) Bans(ctx context.Context, now time.Time, all bool) iter.Seq2[fairshare.BanRecord, error] {
	return func(yield func(fairshare.BanRecord, error) bool) {
		after, known := int64(math.MinInt64), all
		client, kind, rule := key.Key{}, int16(0), ""
		err := key.Pages(bansPage, func(page []fairshare.BanRecord) ([]fairshare.BanRecord, error) {
			last := client // a page may be read twice
			err := r.reading(ctx, func(ctx context.Context, from *pgxpool.Conn) error {
				page = page[:0]
				if !known { // the clocks were compared
					after, known = r.toDatabase(now), true
				}
				return r.rows(ctx, from, "SELECT "+banColumns+" FROM {}bans WHERE (client, kind, rule) > ($1, $2, $3) "+
					"AND until > $4 ORDER BY client, kind, rule LIMIT $5",
					[]any{client, kind, encode(rule), after, bansPage}, func(rows pgx.Rows) error {
						b, k, err := r.scanBan(rows)
						last, page = k, append(page, b)
						return err
					})
			})
			if len(page) > 0 {
				b := &page[len(page)-1]
				client, kind, rule = last, int16(b.Kind), b.Rule
			}
			return page, err
		}, func(b *fairshare.BanRecord) bool { return yield(*b, nil) })
		if err != nil {
			yield(fairshare.BanRecord{}, err)
		}
	}
}

// Lift deletes the bans by rules of every client within a prefix, or of a bot, and
// returns them. It affects only bans that began at that time or before; from then on,
// Write ignores these.
func (r *Registry) Lift(ctx context.Context, id fairshare.ClientID, at time.Time) ([]fairshare.BanRecord, error) {
	return r.lift(ctx, id, at, false)
}

// Reset is Lift, and has servers forget what limits have counted for these clients. Their
// records stay, but for the requests of the last seconds.
func (r *Registry) Reset(ctx context.Context, id fairshare.ClientID, at time.Time) ([]fairshare.BanRecord, error) {
	return r.lift(ctx, id, at, true)
}

func (r *Registry) lift(ctx context.Context, id fairshare.ClientID, at time.Time, forget bool) (
	lifted []fairshare.BanRecord, err error) {
	k, err := key.Of(id)
	if err != nil {
		return nil, err
	}
	changed := false
	first, last := key.Within(k)
	var removed []fairshare.BanRecord
	for more := true; more; {
		err = r.writing(ctx, true, []int{lockChanges}, func(t *tx) error {
			if !changed {
				if err := t.addChange(k, at, forget); err != nil {
					return err
				}
			}
			removed, err = t.unban(first, last, at)
			return err
		})
		if err != nil {
			return lifted, err
		}
		changed, more = true, len(removed) == key.StepRows
		lifted = append(lifted, removed...)
	}
	return lifted, nil
}

// unban removes bans of the clients from first to last that began at a time or before,
// at most key.StepRows.
func (t *tx) unban(first, last key.Key, at time.Time) (removed []fairshare.BanRecord, err error) {
	var keys []key.Key
	var c columns
	err = t.query("SELECT "+banColumns+" FROM {}bans WHERE client BETWEEN $1 AND $2 AND began <= $3 "+
		"ORDER BY client, kind, rule LIMIT $4", []any{first, last, t.toDatabase(at), key.StepRows},
		func(rows pgx.Rows) error {
			b, k, err := t.scanBan(rows)
			removed, keys = append(removed, b), append(keys, k)
			c.add([]byte(k), int16(b.Kind), encode(b.Rule))
			return err
		})
	if err != nil || len(removed) == 0 {
		return nil, err
	}
	return removed, t.dropBans(keys, &c)
}

// dropBans removes bans: c has the columns client, kind and rule.
func (t *tx) dropBans(keys []key.Key, c *columns) error {
	n, err := t.exec("DELETE FROM {}bans b USING unnest($1::bytea[], $2::smallint[], $3::text[]) AS d (client, kind, rule) "+
		"WHERE b.client = d.client AND b.kind = d.kind AND b.rule = d.rule", c.args()...)
	if err != nil {
		return err
	}
	t.bans -= n
	return t.unprotect(keys)
}

// addChange records a change that servers read by Changes. The caller holds
// lockChanges: so numbers are in the order of commits.
func (t *tx) addChange(k key.Key, at time.Time, forget bool) (err error) {
	t.lifted, err = t.integer(t.ctx, t.Conn, "INSERT INTO {}changes (id, client, at, forget) "+
		"SELECT lifted + 1, $1, $2, $3 FROM {}state WHERE id = 1 RETURNING id", k, t.toDatabase(at), forget)
	return err
}
