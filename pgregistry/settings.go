package pgregistry

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"fairshare/registry"
	"fairshare/registry/key"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Settings returns the last Settings of SetSettings, the zero Settings if there are none.
func (r *Registry) Settings(ctx context.Context) (s registry.Settings, err error) {
	err = r.setting(ctx, "server", &s)
	return s, err
}

// SetSettings writes a server's settings.
func (r *Registry) SetSettings(ctx context.Context, s registry.Settings) error {
	return r.set(ctx, "server", s)
}

// Holder returns the last one of SetHolder.
func (r *Registry) Holder(ctx context.Context) (h registry.Holder, err error) {
	err = r.setting(ctx, "holder", &h)
	h.At = shifted(h.At, r.ClockAhead())
	return h, err
}

// SetHolder writes which client, network, owner or fleet holds most of a busy upstream,
// for operators' commands.
func (r *Registry) SetHolder(ctx context.Context, h registry.Holder) error {
	h.At = shifted(h.At, -r.ClockAhead())
	return r.set(ctx, "holder", h)
}

// Fleets returns the fleets of the last SetFleets.
func (r *Registry) Fleets(ctx context.Context) (all []registry.FleetRecord, err error) {
	err = r.setting(ctx, "fleets", &all)
	return shiftedFleets(all, r.ClockAhead()), err
}

// SetFleets records the fleets that a server has found, in place of earlier ones.
func (r *Registry) SetFleets(ctx context.Context, all []registry.FleetRecord) error {
	return r.set(ctx, "fleets", shiftedFleets(all, -r.ClockAhead()))
}

func shiftedFleets(all []registry.FleetRecord, by time.Duration) []registry.FleetRecord {
	all = slices.Clone(all)
	for i := range all {
		all[i].Since, all[i].Last = shifted(all[i].Since, by), shifted(all[i].Last, by)
	}
	return all
}

// AttackMode returns the last AttackMode of SetAttackMode, also one that has ended.
func (r *Registry) AttackMode(ctx context.Context) (mode registry.AttackMode, err error) {
	err = r.setting(ctx, "attack", &mode)
	return shiftedMode(mode, r.ClockAhead()), err
}

// SetAttackMode writes what an operator has decided. [Registry.Changes] reports it as a
// change of overrides.
func (r *Registry) SetAttackMode(ctx context.Context, mode registry.AttackMode) error {
	return r.deciding(ctx, func(t *tx) error {
		t.overrides = true
		return t.setSetting("attack", shiftedMode(mode, -t.ClockAhead()))
	})
}

func shiftedMode(mode registry.AttackMode, by time.Duration) registry.AttackMode {
	mode.Since, mode.Until = shifted(mode.Since, by), shifted(mode.Until, by)
	return mode
}

// setting reads a row of settings into a value, which stays as it is if there is none.
func (r *Registry) setting(ctx context.Context, name string, value any) error {
	return r.reading(ctx, func(ctx context.Context, from *pgxpool.Conn) error {
		var text []byte
		found, err := r.row(ctx, from, "SELECT value FROM {}settings WHERE name = $1", []any{name}, &text)
		if err != nil || !found {
			return err
		}
		if json.Unmarshal(text, value) != nil {
			return key.ErrRow
		}
		return nil
	})
}

func (r *Registry) set(ctx context.Context, name string, value any) error {
	return r.writing(ctx, false, nil, func(t *tx) error { return t.setSetting(name, value) })
}

func (t *tx) setSetting(name string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	_, err = t.exec("INSERT INTO {}settings AS s (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE "+
		"SET value = excluded.value WHERE s.value <> excluded.value", name, text)
	return err
}

// ReferenceKey returns the key of references: 32 random bytes, created with the tables.
func (r *Registry) ReferenceKey(ctx context.Context) (secret []byte, err error) {
	err = r.reading(ctx, func(ctx context.Context, from *pgxpool.Conn) error {
		_, err := r.row(ctx, from, "SELECT value FROM {}settings WHERE name = 'reference key'", nil, &secret)
		if err == nil && len(secret) != 32 {
			err = key.ErrRow
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return secret, nil
}

// Now returns the time by the clock of the database, and not by that of Options.Now.
func (r *Registry) Now(ctx context.Context) (now time.Time, err error) {
	var ns int64
	err = r.reading(ctx, func(ctx context.Context, from *pgxpool.Conn) error {
		_, err := r.row(ctx, from, "SELECT "+databaseNow, nil, &ns)
		return err
	})
	return time.Unix(0, ns), err
}

// VisitorSecrets returns the secrets that sign visitors' cookies on all servers, as
// ReplaceVisitorSecrets has stored them; nil if there are none.
func (r *Registry) VisitorSecrets(ctx context.Context) (text []byte, err error) {
	err = r.reading(ctx, func(ctx context.Context, from *pgxpool.Conn) error {
		text = nil
		_, err := r.row(ctx, from, "SELECT value FROM {}settings WHERE name = 'visitor secrets'", nil, &text)
		return err
	})
	return text, err
}

// ReplaceVisitorSecrets replaces the secrets, unless another server has replaced was
// meanwhile. It reports whether it did.
func (r *Registry) ReplaceVisitorSecrets(ctx context.Context, was, next []byte) (replaced bool, err error) {
	err = r.writing(ctx, true, nil, func(t *tx) error {
		n, err := t.exec("INSERT INTO {}settings AS s (name, value) VALUES ('visitor secrets', $1) ON CONFLICT (name) "+
			"DO UPDATE SET value = excluded.value WHERE s.value = $2", next, was)
		replaced = n == 1
		return err
	})
	return replaced, err
}

// Stats counts the rows of the registry, and the bytes of its tables and indexes.
func (r *Registry) Stats(ctx context.Context) (s registry.Stats, err error) {
	err = r.reading(ctx, func(ctx context.Context, from *pgxpool.Conn) error {
		_, err := r.row(ctx, from, "SELECT sum(clients)::bigint, sum(bans)::bigint, sum(stories)::bigint, "+
			"(SELECT count(*) FROM {}labels), (SELECT count(*) FROM {}overrides), "+
			"(SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "+
			"WHERE n.nspname = $1 AND c.relkind = 'r') FROM {}counts", []any{r.o.Schema},
			&s.Clients, &s.Bans, &s.Stories, &s.Labels, &s.Overrides, &s.Bytes)
		return err
	})
	return s, err
}
