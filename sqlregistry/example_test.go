package sqlregistry_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"fairshare"
	"fairshare/registry"
	"fairshare/sqlregistry"
)

// An operator bans a client, and a server reads the change.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "fairshare")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx, now := context.Background(), time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	store, err := sqlregistry.Open(ctx, filepath.Join(dir, "registry.db"), sqlregistry.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	before, err := store.Changes(ctx, registry.Version{})
	if err != nil {
		log.Fatal(err)
	}

	client, err := fairshare.ParseClientID("203.0.113.9")
	if err != nil {
		log.Fatal(err)
	}
	err = store.SetOverride(ctx, registry.OverrideRecord{Client: client, Action: fairshare.Refuse, Since: now,
		Until: now.Add(2 * time.Hour), Reason: "requests /search all night"})
	if err != nil {
		log.Fatal(err)
	}

	changes, err := store.Changes(ctx, before.Version)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("overrides changed:", changes.Overrides)
	overrides, _, err := store.Overrides(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, o := range overrides {
		fmt.Println(o.Action, o.Client, "until", o.Until.Format(time.TimeOnly)+":", o.Reason)
	}
	// Output:
	// overrides changed: true
	// refuse 203.0.113.9 until 14:00:00: requests /search all night
}

// A server writes the clients of the last seconds, and a command reads them.
func ExampleRegistry_Write() {
	folder, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	ctx := context.Background()
	store, err := sqlregistry.Open(ctx, filepath.Join(folder, "registry.db"), sqlregistry.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	client, err := fairshare.ParseClientID("203.0.113.9")
	if err != nil {
		log.Fatal(err)
	}
	for range 2 { // updates add up
		err = store.Write(ctx, registry.Batch{Clients: []registry.ClientDelta{{
			Client: client, FirstSeen: now, LastSeen: now, Spent: registry.Spent{Requests: 100, Refused: 5},
		}}})
		if err != nil {
			log.Fatal(err)
		}
	}
	clients, err := store.Clients(ctx, registry.Query{Sort: "refused"})
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range clients {
		fmt.Println(c.Client, c.Spent.Requests, "requests,", c.Spent.Refused, "refused")
	}
	// Output:
	// 203.0.113.9 200 requests, 10 refused
}
