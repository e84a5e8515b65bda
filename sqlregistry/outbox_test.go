package sqlregistry

import (
	"testing"
	"time"

	"fairshare"
	"fairshare/registry"
	"fairshare/registry/key"
)

// The outbox keeps decisions in their order until they are sent, also over a restart. A
// later report of a ban replaces the earlier one, and is not removed with it.
func TestOutbox(t *testing.T) {
	path := t.TempDir() + "/registry.db"
	r := opened(t, path, Options{})
	ban := banned("192.0.2.1", start, time.Hour)
	longer := ban
	longer.Until = longer.Until.Add(time.Hour)
	label := "x"
	first, err := r.Post(ctx, true, registry.Decision{At: start, Client: ban.Client, Ban: &ban},
		registry.Decision{At: start, Client: ban.Client, Label: &label})
	check(t, "Post", err)
	_, err = r.Post(ctx, false, registry.Decision{At: start, Client: ban.Client, Ban: &longer})
	check(t, "Post", err)
	check(t, "Close", r.Close())
	r = opened(t, path, Options{})
	all, err := r.Outbox(ctx, 10)
	check(t, "Outbox", err)
	if len(all) != 2 || all[0].Label == nil || *all[0].Label != label || all[1].Ban == nil || *all[1].Ban != longer {
		t.Fatalf("the outbox has %+v", all)
	}
	check(t, "Sent", r.Sent(ctx, first))
	if all, err = r.Outbox(ctx, 10); err != nil || len(all) != 1 || all[0].Ban == nil {
		t.Errorf("the outbox has %+v, %v", all, err)
	}
}

// Each decision, applied once or twice, has the effect of its method. An override that
// was decided later stays.
func TestDecisionsAreApplied(t *testing.T) {
	r := opened(t, "", Options{})
	client, text := id("192.0.2.1"), "text"
	apply := func(d registry.Decision) {
		t.Helper()
		d.Client = client
		for range 2 {
			check(t, "Apply", d.Apply(ctx, r))
		}
	}
	record := func() registry.ClientRecord {
		t.Helper()
		f, err := r.Client(ctx, client)
		check(t, "Client", err)
		if f == nil {
			return registry.ClientRecord{}
		}
		return f.Record
	}
	override := registry.OverrideRecord{Client: client, Action: fairshare.Block, Since: start}
	apply(registry.Decision{At: start, Override: &override})
	apply(registry.Decision{At: start.Add(-time.Second), Remove: true}) // decided earlier
	apply(registry.Decision{At: start, Label: &text})
	apply(registry.Decision{At: start, Note: &text})
	if got := record(); got.Override == nil || *got.Override != override || len(got.Labels) != 1 || got.Note != text {
		t.Errorf("%+v", got)
	}
	none := ""
	apply(registry.Decision{At: start, Unlabel: &none})
	apply(registry.Decision{At: start.Add(time.Second), Remove: true})
	if got := record(); got.Override != nil || got.Labels != nil {
		t.Errorf("after the removal: %+v", got)
	}
	ban := banned("192.0.2.1", start, time.Hour)
	apply(registry.Decision{At: start, Ban: &ban})
	same(t, "bans", allBans(t, r, start, true), []fairshare.BanRecord{ban})
	apply(registry.Decision{At: start, Lift: true})
	apply(registry.Decision{At: start, Reset: true})
	same(t, "bans", allBans(t, r, start, true), []fairshare.BanRecord(nil))
	mode := registry.AttackMode{Since: start, Until: start.Add(time.Hour)}
	apply(registry.Decision{At: start, Attack: &mode})
	apply(registry.Decision{At: start.Add(-time.Second), Attack: &registry.AttackMode{}}) // decided earlier
	if got, err := r.AttackMode(ctx); err != nil || got != mode {
		t.Errorf("attack mode: %+v, %v", got, err)
	}
	apply(registry.Decision{At: start, Forget: true})
	if got := record(); got.Note != "" {
		t.Errorf("after Forget: %+v", got)
	}
	if err := (&registry.Decision{Client: client}).Apply(ctx, r); err == nil {
		t.Error("an empty decision was applied")
	}
}

// Mirror makes overrides and labels equal to given ones, and DropBans deletes all bans
// without a change that servers would follow.
func TestMirrorAndDropBans(t *testing.T) {
	r := opened(t, "", Options{})
	of := func(name string, action fairshare.Action) registry.OverrideRecord {
		return registry.OverrideRecord{Client: id(name), Action: action, Since: start}
	}
	check(t, "SetOverride", r.SetOverride(ctx, of("192.0.2.1", fairshare.Block)))
	check(t, "SetOverride", r.SetOverride(ctx, of("192.0.2.2", fairshare.Block)))
	check(t, "Label", r.Label(ctx, registry.Label{Client: id("192.0.2.1"), Name: "old"}))
	check(t, "Note", r.Note(ctx, id("192.0.2.1"), "stays"))
	overrides := []registry.OverrideRecord{of("192.0.2.2", fairshare.Allow), of("192.0.2.3", fairshare.Block)}
	labels := []registry.Label{{Client: id("192.0.2.3"), Name: "new"}}
	for range 2 {
		check(t, "Mirror", r.Mirror(ctx, overrides, labels))
		gotOverrides, gotLabels, err := r.Overrides(ctx)
		check(t, "Overrides", err)
		same(t, "overrides", gotOverrides, overrides)
		same(t, "labels", gotLabels, labels)
	}
	b := registry.Batch{}
	for n := range key.StepRows + 10 {
		b.Bans = append(b.Bans, banned(numbered(n), start, time.Hour))
	}
	b.Bans = append(b.Bans, banned("2001:db8::/64", start, time.Hour))
	check(t, "Write", r.Write(ctx, b))
	before, err := r.Changes(ctx, registry.Version{})
	check(t, "Changes", err)
	check(t, "DropBans", r.DropBans(ctx))
	same(t, "bans", allBans(t, r, start, true), []fairshare.BanRecord(nil))
	after, err := r.Changes(ctx, before.Version)
	if err != nil || after.Lifted != nil {
		t.Errorf("DropBans is reported as %+v, %v", after, err)
	}
	sound(t, r)
}
