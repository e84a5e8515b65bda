package redislimit

import (
	"strings"
	"testing"

	"fairshare/redislimit/redistest"
)

// A master that has left the cluster does not make the store count as away: nothing would end that, and no
// later outage would be reported. Batches on their way to it fail after it has left, or while it leaves.
func TestRetiredMasterIsNotAway(t *testing.T) {
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
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			reported := make(chan Event, 100)
			c := openMember(t, redistest.Start(t).URL(), Options{Report: func(e Event) { reported <- e }}).core
			m := &master{core: c, addr: "127.0.0.1:1"}
			m.init()
			tt.fail(m)
			if m.breaker.open.Load() {
				t.Error("the breaker is open")
			}
			c.routes.Load().only.away("a later outage")
			for {
				select {
				case e := <-reported:
					if e.Kind == StoreAway && strings.Contains(e.Text, "a later outage") {
						return
					}
					continue
				default:
				}
				t.Fatal("the later outage is not reported")
			}
		})
	}
}
