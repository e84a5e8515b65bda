package sqlregistry

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"fairshare"
	"fairshare/registry"
	"fairshare/registry/key"
)

// A Pending decision is in the outbox: another registry does not have it yet.
type Pending struct {
	ID int64
	registry.Decision
}

// Post adds decisions to the outbox. Of a client's bans by one rule it keeps the last
// one. The decisions take effect in this registry only by its other methods.
func (r *Registry) Post(ctx context.Context, synced bool, decisions ...registry.Decision) (all []Pending, err error) {
	err = r.writing(ctx, synced, func(t *tx) error {
		all = nil
		for i := range decisions {
			d := &decisions[i]
			text, err := json.Marshal(d)
			if err != nil {
				return err
			}
			var name any // of a ban: the later one replaces it
			if d.Ban != nil {
				k, err := key.Of(d.Ban.Client)
				if err != nil {
					continue
				}
				name = fmt.Sprintf("%x %d %s", k, d.Ban.Kind, d.Ban.Rule)
			}
			if _, err := t.exec("INSERT OR REPLACE INTO outbox (name, decision) VALUES (?, ?)", name, text); err != nil {
				return err
			}
			id, err := t.integer(t.ctx, "SELECT last_insert_rowid()")
			if err != nil {
				return err
			}
			all = append(all, Pending{id, *d})
		}
		return nil
	})
	return all, err
}

// DropBans deletes all bans by rules; no server lifts them. Write the bans of another
// registry next.
func (r *Registry) DropBans(ctx context.Context) error {
	return r.steps(ctx, false, func(t *tx) (bool, error) {
		removed, err := t.unban(key.Key{0}, key.Key{0xff}, time.Unix(1<<33, 0))
		return len(removed) == key.StepRows, err
	})
}

// Outbox returns the oldest decisions of the outbox, at most that many, in the order in
// which they were posted.
func (r *Registry) Outbox(ctx context.Context, limit int) (all []Pending, err error) {
	err = r.reading(ctx, func(l *link) error {
		all = nil
		const oldest = "SELECT id, decision FROM outbox ORDER BY id LIMIT ?"
		return l.rows(ctx, oldest, []any{limit}, func(rows *sql.Rows) error {
			var p Pending
			var text []byte
			if err := rows.Scan(&p.ID, &text); err != nil {
				return err
			}
			if json.Unmarshal(text, &p.Decision) != nil {
				return key.ErrRow
			}
			all = append(all, p)
			return nil
		})
	})
	return all, err
}

// Sent removes decisions from the outbox. One that was posted again meanwhile stays.
func (r *Registry) Sent(ctx context.Context, sent []Pending) error {
	return r.writing(ctx, false, func(t *tx) error {
		for i := range sent {
			if _, err := t.exec("DELETE FROM outbox WHERE id = ?", sent[i].ID); err != nil {
				return err
			}
		}
		return nil
	})
}

// Mirror makes the overrides and labels of operators equal to those of another registry.
func (r *Registry) Mirror(ctx context.Context, overrides []registry.OverrideRecord, labels []registry.Label) error {
	type entry struct {
		client fairshare.ClientID
		name   string
	}
	wantOverrides, wantLabels := map[fairshare.ClientID]registry.OverrideRecord{}, map[entry]bool{}
	for _, o := range overrides {
		wantOverrides[o.Client] = o
	}
	for _, l := range labels {
		wantLabels[entry{l.Client, l.Name}] = true
	}
	haveOverrides, haveLabels, err := r.Overrides(ctx)
	if err != nil {
		return err
	}
	for _, o := range haveOverrides {
		if want, found := wantOverrides[o.Client]; !found {
			_, err = r.RemoveOverride(ctx, o.Client)
		} else if want == o {
			delete(wantOverrides, o.Client)
		}
		if err != nil {
			return err
		}
	}
	for _, l := range haveLabels {
		if !wantLabels[entry{l.Client, l.Name}] {
			if _, err := r.Unlabel(ctx, l.Client, l.Name); err != nil {
				return err
			}
		}
		delete(wantLabels, entry{l.Client, l.Name})
	}
	return r.writing(ctx, true, func(t *tx) error {
		for _, o := range wantOverrides {
			k, err := key.Of(o.Client)
			if err == nil {
				err = t.setOverride(k, &o)
			}
			if err != nil {
				return err
			}
		}
		for l := range wantLabels {
			k, err := key.Of(l.client)
			if err == nil {
				err = t.label(k, l.name)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// A Remote names the registry that several servers share, in the registry of one of them.
// It has no password.
type Remote struct {
	URL          string // "": there is none
	Schema       string
	ListenURL    string
	PasswordFile string // absolute; "" for none

	Version registry.Version // of the remote registry: up to it, all changes are in this one

	// ClockAhead is by how much the clock of this machine was ahead of the remote
	// registry's when these changes were read: their times are by that clock.
	ClockAhead time.Duration
}

// Remote returns the last one of SetRemote.
func (r *Registry) Remote(ctx context.Context) (remote Remote, err error) {
	err = r.setting(ctx, "remote", &remote)
	return remote, err
}

// SetRemote writes which registry operators' commands use in place of this one.
func (r *Registry) SetRemote(ctx context.Context, remote Remote) error {
	return r.writing(ctx, false, func(t *tx) error { return t.setSetting("remote", remote) })
}

// SetReferenceKey replaces the key of references by that of another registry.
func (r *Registry) SetReferenceKey(ctx context.Context, secret []byte) error {
	return r.writing(ctx, true, func(t *tx) error {
		_, err := t.exec("UPDATE settings SET value = ?1 WHERE name = 'reference key' AND value <> ?1", secret)
		return err
	})
}
