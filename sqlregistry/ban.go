package sqlregistry

import (
	"context"
	"database/sql"
	"iter"
	"math"
	"time"

	"fairshare"
	"fairshare/registry"
	"fairshare/registry/key"
)

const banColumns = "client, kind, rule, number, began, until, since, dry"

func scanBan(rows *sql.Rows) (b fairshare.BanRecord, k key.Key, err error) {
	var number, began, until, since int64
	if err = rows.Scan(&k, &b.Kind, &b.Rule, &number, &began, &until, &since, &b.DryRun); err != nil {
		return b, k, err
	}
	b.Client, err = key.Client(k)
	b.Number = int(number)
	b.Began, b.Until, b.Since = key.Time(began), key.Time(until), key.Time(since)
	return b, k, err
}

// bansPage is how many bans one statement reads.
const bansPage = 1000

// Bans yields the bans in force at now, or all recorded bans, in the order of
// clients. It holds no lock while it yields: it may miss a ban that is written in
// the meantime. It ends after an error.
func (r *Registry) Bans(ctx context.Context, now time.Time, all bool) iter.Seq2[fairshare.BanRecord, error] {
	after := int64(math.MinInt64)
	if !all {
		after = key.Nanoseconds(now)
	}
	return func(yield func(fairshare.BanRecord, error) bool) {
		client, kind, rule := key.Key{}, int64(0), ""
		err := key.Pages(bansPage, func(page []fairshare.BanRecord) ([]fairshare.BanRecord, error) {
			err := r.reading(ctx, func(l *link) error {
				return l.rows(ctx,
					"SELECT "+banColumns+
						" FROM bans WHERE (client, kind, rule) > (?, ?, ?) AND until > ? ORDER BY client, kind, rule LIMIT ?",
					[]any{client, kind, rule, after, bansPage}, func(rows *sql.Rows) error {
						b, k, err := scanBan(rows)
						client, kind, rule = k, int64(b.Kind), b.Rule
						page = append(page, b)
						return err
					})
			})
			return page, err
		}, func(b *fairshare.BanRecord) bool { return yield(*b, nil) })
		if err != nil {
			yield(fairshare.BanRecord{}, err)
		}
	}
}

// bansWithin appends the bans of the clients from first to last, at most limit.
func bansWithin(ctx context.Context, l *link, first, last key.Key, limit int,
	bans []fairshare.BanRecord) ([]fairshare.BanRecord, error) {
	err := l.rows(ctx,
		"SELECT "+banColumns+" FROM bans WHERE client BETWEEN ? AND ? ORDER BY client, kind, rule LIMIT ?",
		[]any{first, last, limit}, func(rows *sql.Rows) error {
			b, _, err := scanBan(rows)
			bans = append(bans, b)
			return err
		})
	return bans, err
}

// Lift deletes the bans by rules of every client within a prefix, or of a bot,
// and returns them. It affects only bans that began at that time or before; from
// then on, Write ignores these.
func (r *Registry) Lift(ctx context.Context, id fairshare.ClientID, at time.Time) (lifted []fairshare.BanRecord,
	err error) {
	return r.lift(ctx, registry.LiftedClient{Client: id, At: at})
}

// Reset is Lift, and has servers forget what limits have counted for these clients. Their records stay,
// but for the requests of the last seconds.
func (r *Registry) Reset(ctx context.Context, id fairshare.ClientID, at time.Time) (lifted []fairshare.BanRecord,
	err error) {
	return r.lift(ctx, registry.LiftedClient{Client: id, At: at, Forget: true})
}

// Repeat makes a lift, or a reset, that another registry has reported. It keeps its Stored;
// zero means At.
func (r *Registry) Repeat(ctx context.Context, l registry.LiftedClient) error {
	_, err := r.lift(ctx, l)
	return err
}

func (r *Registry) lift(ctx context.Context, l registry.LiftedClient) (lifted []fairshare.BanRecord, err error) {
	k, err := key.Of(l.Client)
	if err != nil {
		return nil, err
	}
	changed := false
	first, last := key.Within(k)
	err = r.steps(ctx, true, func(t *tx) (bool, error) {
		if !changed {
			if err := t.addChange(k, l); err != nil {
				return false, err
			}
			changed = true
		}
		removed, err := t.unban(first, last, l.At)
		lifted = append(lifted, removed...)
		return len(removed) == key.StepRows, err
	})
	return lifted, err
}

// unban removes bans of the clients from first to last that began at a time or
// before, at most key.StepRows.
func (t *tx) unban(first, last key.Key, at time.Time) (removed []fairshare.BanRecord, err error) {
	var keys []key.Key
	err = t.link.rows(t.ctx,
		"SELECT "+banColumns+
			" FROM bans WHERE client BETWEEN ? AND ? AND began <= ? ORDER BY client, kind, rule LIMIT ?",
		[]any{first, last, key.Nanoseconds(at), key.StepRows}, func(rows *sql.Rows) error {
			b, k, err := scanBan(rows)
			removed, keys = append(removed, b), append(keys, k)
			return err
		})
	if err != nil {
		return nil, err
	}
	for i, b := range removed {
		if err := t.dropBan(keys[i], int64(b.Kind), b.Rule); err != nil {
			return nil, err
		}
	}
	return removed, nil
}

func (t *tx) dropBan(k key.Key, kind int64, rule string) error {
	n, err := t.exec("DELETE FROM bans WHERE client = ? AND kind = ? AND rule = ?", k, kind, rule)
	if err != nil {
		return err
	}
	t.bans -= n
	return t.unprotect(k)
}

// addChange records a change that servers read by Changes.
func (t *tx) addChange(k key.Key, l registry.LiftedClient) error {
	if _, err := t.exec("INSERT INTO changes (client, at, forget, stored) VALUES (?, ?, ?, ?)", k,
		key.Nanoseconds(l.At), l.Forget, key.Nanoseconds(l.Stored)); err != nil {
		return err
	}
	id, err := t.integer(t.ctx, "SELECT max(id) FROM changes")
	t.lifted = id
	return err
}
