package registry

import (
	"context"
	"fmt"
	"time"

	"fairshare"
)

// A Decision is a change by an operator, or a ban, as a value: it can be stored while a
// registry is away, and applied later. Exactly one of its fields but At and Client is set.
type Decision struct {
	At     time.Time // when it was made; a later override stays
	Client fairshare.ClientID

	Ban      *fairshare.BanRecord `json:",omitempty"`
	Override *OverrideRecord      `json:",omitempty"`
	Attack   *AttackMode          `json:",omitempty"`
	Label    *string              `json:",omitempty"`
	Unlabel  *string              `json:",omitempty"` // "": all
	Note     *string              `json:",omitempty"`
	Remove   bool                 `json:",omitempty"` // the override
	Lift     bool                 `json:",omitempty"`
	Reset    bool                 `json:",omitempty"`
	Forget   bool                 `json:",omitempty"`
}

// Apply makes the change. To apply it twice does no harm.
func (d *Decision) Apply(ctx context.Context, r Registry) (err error) {
	switch {
	case d.Ban != nil:
		err = r.Write(ctx, Batch{Bans: []fairshare.BanRecord{*d.Ban}})
	case d.Override != nil, d.Remove:
		var found *Found
		if found, err = r.Client(ctx, d.Client); err != nil {
			return err
		}
		if found != nil && found.Record.Override != nil && found.Record.Override.Since.After(d.At) {
			return nil
		}
		if d.Remove {
			_, err = r.RemoveOverride(ctx, d.Client)
		} else {
			err = r.SetOverride(ctx, *d.Override)
		}
	case d.Attack != nil:
		var mode AttackMode
		if mode, err = r.AttackMode(ctx); err == nil && !mode.Since.After(d.At) {
			err = r.SetAttackMode(ctx, *d.Attack)
		}
	case d.Label != nil:
		err = r.Label(ctx, Label{Client: d.Client, Name: *d.Label})
	case d.Unlabel != nil:
		_, err = r.Unlabel(ctx, d.Client, *d.Unlabel)
	case d.Note != nil:
		err = r.Note(ctx, d.Client, *d.Note)
	case d.Lift:
		_, err = r.Lift(ctx, d.Client, d.At)
	case d.Reset:
		_, err = r.Reset(ctx, d.Client, d.At)
	case d.Forget:
		_, err = r.Forget(ctx, d.Client, d.At)
	default:
		err = fmt.Errorf("a decision without a change is %w", ErrArgument)
	}
	return err
}
