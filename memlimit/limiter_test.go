package memlimit_test

import (
	"testing"

	"fairshare"
	"fairshare/limittest"
	"fairshare/memlimit"
)

func open(t testing.TB, limits []fairshare.Limit, memory int64) *memlimit.Limiter {
	t.Helper()
	l, err := memlimit.New(limits, memlimit.Options{Memory: memory})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestLimiter(t *testing.T) {
	limittest.Run(t, func(t testing.TB, limits []fairshare.Limit) fairshare.Limiter {
		return open(t, limits, 1<<20)
	})
}
