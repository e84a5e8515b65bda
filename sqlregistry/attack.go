package sqlregistry

import (
	"context"
	"encoding/json"

	"fairshare/registry"
)

// AttackMode returns the last AttackMode of SetAttackMode, also one that has ended.
func (r *Registry) AttackMode(ctx context.Context) (mode registry.AttackMode, err error) {
	err = r.setting(ctx, "attack", &mode)
	return mode, err
}

// SetAttackMode writes what an operator has decided. [Registry.Changes] reports it
// as a change of overrides.
func (r *Registry) SetAttackMode(ctx context.Context, mode registry.AttackMode) error {
	return r.writing(ctx, true, func(t *tx) error {
		t.overrides = true
		return t.setSetting("attack", mode)
	})
}

// Holder returns the last text of SetHolder.
func (r *Registry) Holder(ctx context.Context) (h registry.Holder, err error) {
	err = r.setting(ctx, "holder", &h)
	return h, err
}

// SetHolder writes which client, network, owner or fleet holds most of a busy
// upstream, for operators' commands.
func (r *Registry) SetHolder(ctx context.Context, h registry.Holder) error {
	return r.writing(ctx, false, func(t *tx) error { return t.setSetting("holder", h) })
}

// setting reads a row of settings into a value, which stays as it is if there is
// none.
func (r *Registry) setting(ctx context.Context, name string, value any) error {
	return r.reading(ctx, func(l *link) error {
		var text []byte
		found, err := l.row(ctx, "SELECT value FROM settings WHERE name = ?", []any{name}, &text)
		if err != nil || !found {
			return err
		}
		return json.Unmarshal(text, value)
	})
}

func (t *tx) setSetting(name string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	_, err = t.exec("INSERT INTO settings (name, value) VALUES (?1, ?2) "+
		"ON CONFLICT DO UPDATE SET value = ?2 WHERE value <> ?2", name, text)
	return err
}
