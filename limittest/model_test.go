package limittest_test

import (
	"testing"

	"fairshare"
	"fairshare/limittest"
)

func TestModel(t *testing.T) {
	limittest.Run(t, func(_ testing.TB, limits []fairshare.Limit) fairshare.Limiter {
		return limittest.NewModel(limits)
	})
}
