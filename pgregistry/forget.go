package pgregistry

import (
	"context"
	"time"

	"fairshare"
	"fairshare/registry"
	"fairshare/registry/key"

	"github.com/jackc/pgx/v5"
)

// Forget deletes all records of every client within a prefix, or of a bot. From then on,
// Write ignores bans that began at that time or before.
func (r *Registry) Forget(ctx context.Context, id fairshare.ClientID, at time.Time) (registry.Forgotten, error) {
	var f registry.Forgotten
	k, err := key.Of(id)
	if err != nil {
		return f, err
	}
	first, last := key.Within(k)
	locks := []int{lockChanges, lockRecords}
	err = r.writing(ctx, true, locks, func(t *tx) error {
		f = registry.Forgotten{}
		if err := t.addChange(k, at, true); err != nil {
			return err
		}
		overrides, err := t.exec("DELETE FROM {}overrides WHERE client BETWEEN $1 AND $2", first, last)
		if err != nil {
			return err
		}
		labels, err := t.exec("DELETE FROM {}labels WHERE client BETWEEN $1 AND $2", first, last)
		if err != nil {
			return err
		}
		f.Override, f.Labels = overrides > 0, int(labels)
		t.overrides = overrides+labels > 0
		_, err = t.exec("DELETE FROM {}notes WHERE client BETWEEN $1 AND $2", first, last)
		return err
	})
	if err != nil {
		return f, err
	}
	for _, step := range []struct {
		total *int
		do    func(*tx) (int64, error)
	}{
		{&f.Bans, func(t *tx) (int64, error) {
			n, err := t.exec("DELETE FROM {}bans WHERE (client, kind, rule) IN (SELECT client, kind, rule FROM {}bans "+
				"WHERE client BETWEEN $1 AND $2 LIMIT $3)", first, last, key.StepRows)
			t.bans -= n
			return n, err
		}},
		{&f.Stories, func(t *tx) (int64, error) {
			return t.dropStories("client BETWEEN $2 AND $3", key.StepRows, first, last)
		}},
		{&f.Clients, func(t *tx) (int64, error) {
			return t.dropClients("SELECT id FROM {}clients WHERE client BETWEEN $2 AND $3 LIMIT $1", key.StepRows, first, last)
		}},
	} {
		for more := true; more; {
			n := int64(0)
			if err := r.writing(ctx, true, locks, func(t *tx) (err error) {
				n, err = step.do(t)
				return err
			}); err != nil {
				return f, err
			}
			*step.total += int(n)
			more = n == key.StepRows
		}
	}
	return f, nil
}

// dropStories removes stories, at most that many. The caller holds lockRecords.
func (t *tx) dropStories(where string, rows int, args ...any) (n int64, err error) {
	networks := map[string]int64{}
	err = t.query("DELETE FROM {}stories WHERE (client, rule) IN (SELECT client, rule FROM {}stories WHERE "+where+
		" LIMIT $1) RETURNING network", append([]any{rows}, args...), func(rows pgx.Rows) error {
		var network []byte
		err := rows.Scan(&network)
		networks[string(network)]--
		n++
		return err
	})
	t.stories -= n
	if err != nil {
		return n, err
	}
	return n, t.countStories(networks)
}

// dropClients removes the clients whose ids a query selects. The caller holds both locks.
func (t *tx) dropClients(query string, args ...any) (int64, error) {
	n, err := t.exec("DELETE FROM {}clients WHERE id IN ("+query+")", args...)
	t.clients -= n
	return n, err
}
