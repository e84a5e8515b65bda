package livepolicy

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"fairshare"
	"fairshare/internal/setup"
	"fairshare/registry"
	"fairshare/sqlregistry"
)

// A registry that was moved away is an error until another file is in its place.
func TestStoreFollowsAReplacedRegistry(t *testing.T) {
	ctx, now := t.Context(), time.Now()
	path := filepath.Join(t.TempDir(), setup.RegistryFile)
	s, err := openStore(ctx, path, sqlregistry.Options{}, func(line string) { t.Log(line) })
	if err != nil {
		t.Fatal(err)
	}
	defer func() { s.Close() }()
	before, err := s.Changes(ctx, registry.Version{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	client, err := fairshare.ParseClientID("192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	batch := registry.Batch{Clients: []registry.ClientDelta{{Client: client, LastSeen: now}}}
	for range 2 { // no other is made: the operator may be about to put one there
		if err := s.Write(ctx, batch); !errors.Is(err, sqlregistry.ErrGone) {
			t.Fatalf("without a file: %v", err)
		}
	}

	operator, err := sqlregistry.Open(ctx, path, sqlregistry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer operator.Close()
	if _, err := s.Changes(ctx, before.Version); !errors.Is(err, sqlregistry.ErrGone) {
		t.Fatalf("with another in its place: %v", err)
	}
	changes, err := s.Changes(ctx, before.Version) // which is its version, too
	if err != nil || !changes.Overrides {
		t.Errorf("of the new one: %v, %v; its words have to be read", changes, err)
	}
	if changes, err = s.Changes(ctx, changes.Version); err != nil || changes.Overrides {
		t.Errorf("of the new one, later: %v, %v", changes, err)
	}
	if err := s.Write(ctx, batch); err != nil {
		t.Fatal(err)
	}
	if found, err := operator.Client(ctx, client); err != nil || found == nil {
		t.Errorf("what was written after that is not found in the new one: %v, %v", found, err)
	}
}
