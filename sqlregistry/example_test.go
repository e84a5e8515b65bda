package sqlregistry_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"fairshare"
	"fairshare/sqlregistry"
)

// An operator bans a client, and a server hears of it.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "fairshare")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx, now := context.Background(), time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	registry, err := sqlregistry.Open(ctx, filepath.Join(dir, "registry.db"), sqlregistry.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer registry.Close()
	before, err := registry.Changes(ctx, sqlregistry.Version{})
	if err != nil {
		log.Fatal(err)
	}

	client, err := fairshare.ParseClientID("203.0.113.9")
	if err != nil {
		log.Fatal(err)
	}
	err = registry.Say(ctx, fairshare.Said{Client: client, Action: fairshare.Refuse, Since: now, Until: now.Add(2 * time.Hour), Reason: "asks for /search all night"})
	if err != nil {
		log.Fatal(err)
	}

	changes, err := registry.Changes(ctx, before.Version)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("words changed:", changes.Words)
	words, _, err := registry.Words(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, said := range words {
		fmt.Println(said.Action, said.Client, "until", said.Until.Format(time.TimeOnly)+":", said.Reason)
	}
	// Output:
	// words changed: true
	// refuse 203.0.113.9 until 14:00:00: asks for /search all night
}
