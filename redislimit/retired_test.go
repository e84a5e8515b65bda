package redislimit

import (
	"testing"
	"time"

	"fairshare/redislimit/redistest"
)

// A master that has left the cluster does not make the store count as away: nothing would end that, and no
// later outage would be reported. Batches on their way to it fail after it has left, or while it leaves.
func TestRetiredMasterIsNotAway(t *testing.T) {
	c := openMember(t, redistest.Start(t).URL(), Options{}).core
	for _, tt := range []struct {
		name string
		fail func(m *master)
	}{
		{"before", func(m *master) { m.away("test"); m.retire() }},
		{"meanwhile", func(m *master) {
			if !m.breaker.breakNow("test") {
				t.Error("the breaker did not open")
			}
			m.retire()
			m.wentAway()
		}},
		{"afterwards", func(m *master) { m.retire(); m.away("test") }},
		{"unanswered afterwards", func(m *master) {
			m.retire()
			for i := range int64(2 * mostMissed) {
				if m.breaker.missed(i * stallTime) {
					m.wentAway()
				}
			}
		}},
	} {
		m := &master{core: c, addr: "127.0.0.1:1"}
		m.init()
		tt.fail(m)
		c.awayState.mu.Lock()
		since := c.awayState.since
		c.awayState.since = time.Time{}
		c.awayState.mu.Unlock()
		if !since.IsZero() || m.breaker.open.Load() {
			t.Errorf("%s: away since %v, the breaker is open: %v", tt.name, since, m.breaker.open.Load())
		}
	}
}
