package limittest

import (
	"testing"

	"fairshare"
)

// Run checks that the limiters which open returns keep what
// [fairshare.Limiter] promises. Each must have nothing spent yet, and room
// for a few hundred keys.
func Run(t *testing.T, open func(testing.TB, []fairshare.Limit) fairshare.Limiter) {
	t.Run("random", func(t *testing.T) { runRandom(t, open) })
}
