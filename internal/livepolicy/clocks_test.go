//go:build unix

package livepolicy

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fairshare/httpguard"
	"fairshare/pgregistry/pgtest"
)

// A server with a wrong clock warns once, and says when the clock is right again.
func TestWrongClockIsReported(t *testing.T) {
	db := pgtest.Start(t)
	for _, tt := range []struct {
		off  time.Duration
		want string
	}{
		{0, ""},
		{time.Hour, "is 1 hour ahead of"},
		{-time.Hour, "is 1 hour behind"},
	} {
		var off atomic.Int64
		off.Store(int64(tt.off))
		clock := httpguard.NewClockOf(func() time.Time { return time.Now().Add(time.Duration(off.Load())) })
		m := openMember(t, db.URL("postgres"), parseFile(t, "rules: []\n"), t.TempDir(), clock)
		for range 3 {
			must(t, m.group().compareClocks(t.Context()))
		}
		lines := m.logged("the clock of this machine")
		if tt.want == "" {
			if len(lines) > 0 {
				t.Errorf("a right clock: %q", lines)
			}
			continue
		}
		if len(lines) != 1 || !strings.Contains(lines[0], tt.want) {
			t.Errorf("%v off: %q", tt.off, lines)
		}
		off.Store(0)
		must(t, m.group().compareClocks(t.Context()))
		if lines := m.logged("agrees"); len(lines) != 1 {
			t.Errorf("%v off, then set: %q", tt.off, lines)
		}
	}
}
