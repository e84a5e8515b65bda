package sqlregistry

import (
	"context"
	"database/sql"
	"time"

	"fairshare"
	"fairshare/registry"
	"fairshare/registry/key"
)

// Forget deletes all records of every client within a prefix, or of a bot. From
// then on, Write ignores bans that began at that time or before.
func (r *Registry) Forget(ctx context.Context, id fairshare.ClientID, at time.Time) (registry.Forgotten, error) {
	var f registry.Forgotten
	k, err := key.Of(id)
	if err != nil {
		return f, err
	}
	first, last := key.Within(k)
	err = r.writing(ctx, true, func(t *tx) error {
		f = registry.Forgotten{}
		if err := t.addChange(k, registry.LiftedClient{At: at, Forget: true}); err != nil {
			return err
		}
		overrides, err := t.exec("DELETE FROM words WHERE client BETWEEN ? AND ?", first, last)
		if err != nil {
			return err
		}
		labels, err := t.exec("DELETE FROM labels WHERE client BETWEEN ? AND ?", first, last)
		if err != nil {
			return err
		}
		f.Override, f.Labels = overrides > 0, int(labels)
		t.overrides = overrides+labels > 0
		_, err = t.exec("DELETE FROM notes WHERE client BETWEEN ? AND ?", first, last)
		return err
	})
	if err != nil {
		return f, err
	}
	for _, step := range []func(*tx) (int, error){
		func(t *tx) (int, error) {
			n, err := t.exec(
				"DELETE FROM bans WHERE (client, kind, rule) IN (SELECT client, kind, rule FROM bans WHERE client BETWEEN ? AND ? LIMIT ?)", first, last, key.StepRows)
			t.bans -= n
			f.Bans += int(n)
			return int(n), err
		},
		func(t *tx) (int, error) {
			n, err := t.dropStories("client BETWEEN ? AND ?", first, last, key.StepRows)
			f.Stories += n
			return n, err
		},
		func(t *tx) (int, error) {
			n, err := t.exec(
				"DELETE FROM clients WHERE rowid IN (SELECT rowid FROM clients WHERE client BETWEEN ? AND ? LIMIT ?)",
				first, last, key.StepRows)
			t.clients -= n
			f.Clients += int(n)
			return int(n), err
		},
	} {
		if err := r.steps(ctx, true, func(t *tx) (bool, error) {
			n, err := step(t)
			return n == key.StepRows, err
		}); err != nil {
			return f, err
		}
	}
	return f, nil
}

// dropStories removes stories. The last of args is the highest number to remove.
func (t *tx) dropStories(where string, args ...any) (int, error) {
	var rowids []int64
	var networks [][]byte
	err := t.link.rows(t.ctx, "SELECT rowid, network FROM stories WHERE "+where+" LIMIT ?", args,
		func(rows *sql.Rows) error {
			var row int64
			var network []byte
			err := rows.Scan(&row, &network)
			rowids, networks = append(rowids, row), append(networks, network)
			return err
		})
	if err != nil {
		return 0, err
	}
	for i := range rowids {
		if err := t.dropStory(rowids[i], networks[i]); err != nil {
			return 0, err
		}
	}
	return len(rowids), nil
}
