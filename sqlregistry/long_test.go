package sqlregistry

import (
	"flag"
	"testing"

	"fairshare/registry/registrytest"
)

var long = flag.Int("long", 0,
	"rows of the large registry that TestLarge makes in the temporary folder, as 5000000: about 2.5 GB and three minutes")

// TestLarge measures a large registry; it fails only if an answer is wrong.
func TestLarge(t *testing.T) {
	if *long == 0 {
		t.Skip("go test ./sqlregistry -run TestLarge -v -long 5000000 measures a large registry")
	}
	registrytest.Large(t, *long, inFolder(t))
}
