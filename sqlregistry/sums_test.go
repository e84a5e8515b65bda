package sqlregistry

import (
	"path/filepath"
	"testing"
	"time"

	"fairshare/registry"
)

// The fleet of a client is that of its latest batch, and the fleets of a server
// survive it. A registry of version 2 gets both.
func TestFleetsAreRecorded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registry.db")
	old, err := open(ctx, path, Options{}, migrations[:2])
	check(t, "open", err)
	check(t, "Close", old.Close())
	r := opened(t, path, Options{})
	all, err := r.Fleets(ctx)
	if err != nil || all != nil {
		t.Errorf("an old registry has the fleets %+v: %v", all, err)
	}
	delta := func(addr, fleet string, requests int64) registry.ClientDelta {
		return registry.ClientDelta{Client: id(addr), FirstSeen: start, LastSeen: start, Fleet: fleet,
			Spent: registry.Spent{Requests: requests, Time: time.Second}}
	}
	for _, batch := range [][]registry.ClientDelta{
		{delta("192.0.2.1", "fleet-7f3a", 3), delta("192.0.2.2", "fleet-7f3a", 2)},
		{delta("192.0.2.2", "", 5)}, // it has fetched a style sheet
	} {
		check(t, "Write", r.Write(ctx, registry.Batch{Clients: batch}))
	}
	got := map[string]ClientSum{}
	check(t, "Sums", r.Sums(ctx, func(c *ClientSum) bool {
		got[c.Client.String()] = *c
		return true
	}))
	if a, b := got["192.0.2.1"], got["192.0.2.2"]; len(got) != 2 || a.Fleet != "fleet-7f3a" || a.Spent.Requests != 3 ||
		b.Fleet != "" || b.Spent.Requests != 7 || b.Spent.Time != 2*time.Second {
		t.Errorf("sums: %+v", got)
	}
	found, err := r.Client(ctx, id("192.0.2.1"))
	if err != nil || found.Record.Fleet != "fleet-7f3a" {
		t.Errorf("client: %+v, %v", found, err)
	}
	want := registry.FleetRecord{Name: "fleet-7f3a", Since: start, Last: start, Shared: "a", Evidence: "b",
		Addresses: 9}
	check(t, "SetFleets", r.SetFleets(ctx, []registry.FleetRecord{{Name: "earlier"}}))
	check(t, "SetFleets", r.SetFleets(ctx, []registry.FleetRecord{want}))
	all, err = r.Fleets(ctx)
	if err != nil || len(all) != 1 || all[0].Name != want.Name || !all[0].Since.Equal(start) || all[0].Addresses != 9 {
		t.Errorf("fleets: %+v, %v", all, err)
	}
}
