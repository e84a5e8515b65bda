package pgregistry

import (
	"context"
	"fmt"

	"fairshare"
	"fairshare/registry"
	"fairshare/registry/key"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// SetOverride sets an operator's override for a client, and replaces an earlier one.
func (r *Registry) SetOverride(ctx context.Context, override registry.OverrideRecord) error {
	k, err := key.Of(override.Client)
	if err != nil {
		return err
	}
	if !isDecision(override.Action) {
		return fmt.Errorf("override of %s: %v is %w", override.Client, override.Action, registry.ErrArgument)
	}
	return r.deciding(ctx, func(t *tx) error {
		t.overrides = true
		_, err := t.exec("INSERT INTO {}overrides (client, action, since, until, reason) VALUES ($1, $2, $3, $4, $5) "+
			"ON CONFLICT (client) DO UPDATE SET action = excluded.action, since = excluded.since, "+
			"until = excluded.until, reason = excluded.reason",
			k, int16(override.Action), t.toDatabase(override.Since), t.toDatabase(override.Until),
			encode(override.Reason))
		if err != nil {
			return err
		}
		return t.protect([]key.Key{k}, keptByOperator)
	})
}

func isDecision(a fairshare.Action) bool {
	return a == fairshare.Allow || a == fairshare.Refuse || a == fairshare.Block
}

// deciding runs do in a transaction of an operator's decision.
func (r *Registry) deciding(ctx context.Context, do func(*tx) error) error {
	return r.writing(ctx, true, []int{lockChanges}, do)
}

// RemoveOverride deletes the override of a client and returns it, nil if there was none.
func (r *Registry) RemoveOverride(ctx context.Context, id fairshare.ClientID) (was *registry.OverrideRecord,
	err error) {
	k, err := key.Of(id)
	if err != nil {
		return nil, err
	}
	err = r.deciding(ctx, func(t *tx) error {
		was = nil
		if err := t.overridesOf(t.ctx, t.Conn, "client = $1", []any{k}, func(_ key.Key, o registry.OverrideRecord) {
			was = &o
		}); err != nil || was == nil {
			return err
		}
		t.overrides = true
		if _, err := t.exec("DELETE FROM {}overrides WHERE client = $1", k); err != nil {
			return err
		}
		return t.unprotect([]key.Key{k})
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
	return r.deciding(ctx, func(t *tx) error {
		n, err := t.exec("INSERT INTO {}labels (client, name) VALUES ($1, $2) ON CONFLICT DO NOTHING", k, encode(label.Name))
		if err != nil || n == 0 {
			return err
		}
		t.overrides = true
		return t.protect([]key.Key{k}, keptByOperator)
	})
}

// Unlabel removes a label of a client, or all if name is "". It returns the removed
// labels.
func (r *Registry) Unlabel(ctx context.Context, id fairshare.ClientID, name string) (removed []string, err error) {
	k, err := key.Of(id)
	if err != nil {
		return nil, err
	}
	err = r.deciding(ctx, func(t *tx) error {
		removed = nil
		if err := t.query("WITH gone AS (DELETE FROM {}labels WHERE client = $1 AND $2 IN ('', name) RETURNING name) "+
			"SELECT name FROM gone ORDER BY name", []any{k, encode(name)}, func(rows pgx.Rows) error {
			var name string
			if err := rows.Scan(&name); err != nil {
				return err
			}
			removed = append(removed, name)
			return decodeAll(&removed[len(removed)-1])
		}); err != nil || removed == nil {
			return err
		}
		t.overrides = true
		return t.unprotect([]key.Key{k})
	})
	return removed, err
}

// Note sets the note on a client; "" removes it.
func (r *Registry) Note(ctx context.Context, id fairshare.ClientID, text string) error {
	k, err := key.Of(id)
	if err != nil {
		return err
	}
	return r.deciding(ctx, func(t *tx) error {
		if text == "" {
			n, err := t.exec("DELETE FROM {}notes WHERE client = $1", k)
			if err != nil || n == 0 {
				return err
			}
			return t.unprotect([]key.Key{k})
		}
		if _, err := t.exec("INSERT INTO {}notes (client, text) VALUES ($1, $2) "+
			"ON CONFLICT (client) DO UPDATE SET text = excluded.text", k, encode(text)); err != nil {
			return err
		}
		return t.protect([]key.Key{k}, keptByOperator)
	})
}

// Overrides returns all overrides and labels of operators, in the order of clients. They
// include overrides that have ended.
func (r *Registry) Overrides(ctx context.Context) (overrides []registry.OverrideRecord, labels []registry.Label,
	err error) {
	err = r.reading(ctx, func(ctx context.Context, from *pgxpool.Conn) error {
		overrides, labels = nil, nil
		if err := r.overridesOf(ctx, from, "true ORDER BY client", nil, func(_ key.Key, o registry.OverrideRecord) {
			overrides = append(overrides, o)
		}); err != nil {
			return err
		}
		return r.labelsOf(ctx, from, "true ORDER BY client, name", nil, func(_ key.Key, l registry.Label) {
			labels = append(labels, l)
		})
	})
	if err != nil {
		return nil, nil, err
	}
	return overrides, labels, nil
}

func (r *Registry) overridesOf(ctx context.Context, from querier, where string, args []any,
	each func(key.Key, registry.OverrideRecord)) error {
	return r.rows(ctx, from, "SELECT client, action, since, until, reason FROM {}overrides WHERE "+where, args,
		func(rows pgx.Rows) error {
			var k key.Key
			var o registry.OverrideRecord
			var action int16
			var since, until int64
			err := rows.Scan(&k, &action, &since, &until, &o.Reason)
			if err == nil {
				err = decodeAll(&o.Reason)
			}
			if err == nil {
				o.Client, err = key.Client(k)
			}
			if o.Action = fairshare.Action(action); err == nil && !isDecision(o.Action) {
				err = key.ErrRow
			}
			if err != nil {
				return err
			}
			o.Since, o.Until = r.fromDatabase(since), r.fromDatabase(until)
			each(k, o)
			return nil
		})
}

func (r *Registry) labelsOf(ctx context.Context, from querier, where string, args []any,
	each func(key.Key, registry.Label)) error {
	return r.rows(ctx, from, "SELECT client, name FROM {}labels WHERE "+where, args, func(rows pgx.Rows) error {
		var k key.Key
		var l registry.Label
		err := rows.Scan(&k, &l.Name)
		if err == nil {
			err = decodeAll(&l.Name)
		}
		if err == nil {
			l.Client, err = key.Client(k)
		}
		if err != nil {
			return err
		}
		each(k, l)
		return nil
	})
}
