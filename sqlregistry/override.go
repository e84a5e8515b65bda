package sqlregistry

import (
	"context"
	"database/sql"
	"fmt"

	"fairshare"
	"fairshare/registry"
	"fairshare/registry/key"
)

// SetOverride sets an operator's override for a client, and replaces an earlier one.
func (r *Registry) SetOverride(ctx context.Context, override registry.OverrideRecord) error {
	k, err := key.Of(override.Client)
	if err != nil {
		return err
	}
	if override.Action != fairshare.Allow && override.Action != fairshare.Refuse && override.Action != fairshare.Block {
		return fmt.Errorf("override of %s: %v is %w", override.Client, override.Action, registry.ErrArgument)
	}
	return r.writing(ctx, true, func(t *tx) error { return t.setOverride(k, &override) })
}

func (t *tx) setOverride(k key.Key, override *registry.OverrideRecord) error {
	t.overrides = true
	_, err := t.exec(
		"INSERT INTO words (client, action, since, until, reason) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET action = excluded.action, since = excluded.since, until = excluded.until, reason = excluded.reason",
		k, int64(override.Action), key.Nanoseconds(override.Since), key.Nanoseconds(override.Until), override.Reason)
	if err != nil {
		return err
	}
	return t.protect(k, keptByOperator)
}

// RemoveOverride deletes the override of a client and returns it, nil if there was
// none.
func (r *Registry) RemoveOverride(ctx context.Context, id fairshare.ClientID) (was *registry.OverrideRecord,
	err error) {
	k, err := key.Of(id)
	if err != nil {
		return nil, err
	}
	err = r.writing(ctx, true, func(t *tx) error {
		if was, err = overrideOf(t.ctx, t.link, k); err != nil || was == nil {
			return err
		}
		t.overrides = true
		if _, err := t.exec("DELETE FROM words WHERE client = ?", k); err != nil {
			return err
		}
		return t.unprotect(k)
	})
	return was, err
}

// Label sets a label of a client. It does nothing if the client has it.
func (r *Registry) Label(ctx context.Context, label registry.Label) error {
	k, err := key.Of(label.Client)
	if err != nil {
		return err
	}
	if label.Name == "" {
		return fmt.Errorf("label of %s without a name: %w", label.Client, registry.ErrArgument)
	}
	return r.writing(ctx, true, func(t *tx) error { return t.label(k, label.Name) })
}

func (t *tx) label(k key.Key, name string) error {
	n, err := t.exec("INSERT INTO labels (client, name) VALUES (?, ?) ON CONFLICT DO NOTHING", k, name)
	if err != nil || n == 0 {
		return err
	}
	t.overrides = true
	return t.protect(k, keptByOperator)
}

// Unlabel removes a label of a client, or all if name is "". It returns the removed
// labels.
func (r *Registry) Unlabel(ctx context.Context, id fairshare.ClientID, name string) (removed []string, err error) {
	k, err := key.Of(id)
	if err != nil {
		return nil, err
	}
	err = r.writing(ctx, true, func(t *tx) error {
		all, err := labelsOf(t.ctx, t.link, k)
		if err != nil {
			return err
		}
		removed = nil
		for _, l := range all {
			if name == "" || l == name {
				removed = append(removed, l)
			}
		}
		if removed == nil {
			return nil
		}
		t.overrides = true
		if _, err := t.exec("DELETE FROM labels WHERE client = ?1 AND ?2 IN ('', name)", k, name); err != nil {
			return err
		}
		return t.unprotect(k)
	})
	return removed, err
}

// Note sets the note on a client; "" removes it.
func (r *Registry) Note(ctx context.Context, id fairshare.ClientID, text string) error {
	k, err := key.Of(id)
	if err != nil {
		return err
	}
	return r.writing(ctx, true, func(t *tx) error {
		if text == "" {
			n, err := t.exec("DELETE FROM notes WHERE client = ?", k)
			if err != nil || n == 0 {
				return err
			}
			return t.unprotect(k)
		}
		if _, err := t.exec(
			"INSERT INTO notes (client, text) VALUES (?, ?) ON CONFLICT DO UPDATE SET text = excluded.text", k,
			text); err != nil {
			return err
		}
		return t.protect(k, keptByOperator)
	})
}

// Overrides returns all overrides and labels of operators, in the order of clients.
// They include overrides that have ended.
func (r *Registry) Overrides(ctx context.Context) (overrides []registry.OverrideRecord, labels []registry.Label,
	err error) {
	err = r.reading(ctx, func(l *link) error {
		overrides, labels = nil, nil
		err := l.rows(ctx, "SELECT client, action, since, until, reason FROM words ORDER BY client", nil,
			func(rows *sql.Rows) error {
				override, err := scanOverride(rows)
				overrides = append(overrides, override)
				return err
			})
		if err != nil {
			return err
		}
		return l.rows(ctx, "SELECT client, name FROM labels ORDER BY client, name", nil, func(rows *sql.Rows) error {
			var k key.Key
			var name string
			if err := rows.Scan(&k, &name); err != nil {
				return err
			}
			id, err := key.Client(k)
			labels = append(labels, registry.Label{Client: id, Name: name})
			return err
		})
	})
	if err != nil {
		return nil, nil, err
	}
	return overrides, labels, nil
}

func scanOverride(rows *sql.Rows) (override registry.OverrideRecord, err error) {
	var k key.Key
	var since, until int64
	if err = rows.Scan(&k, &override.Action, &since, &until, &override.Reason); err != nil {
		return override, err
	}
	if override.Action != fairshare.Allow && override.Action != fairshare.Refuse && override.Action != fairshare.Block {
		return override, key.ErrRow
	}
	override.Client, err = key.Client(k)
	override.Since, override.Until = key.Time(since), key.Time(until)
	return override, err
}

// overrideOf returns the override of exactly this client, nil if there is none.
func overrideOf(ctx context.Context, l *link, k key.Key) (override *registry.OverrideRecord, err error) {
	err = l.rows(ctx, "SELECT client, action, since, until, reason FROM words WHERE client = ?", []any{k},
		func(rows *sql.Rows) error {
			scanned, err := scanOverride(rows)
			override = &scanned
			return err
		})
	return override, err
}

// labelsOf returns the labels of exactly this client.
func labelsOf(ctx context.Context, l *link, k key.Key) (labels []string, err error) {
	err = l.rows(ctx, "SELECT name FROM labels WHERE client = ? ORDER BY name", []any{k}, func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		labels = append(labels, name)
		return err
	})
	return labels, err
}
