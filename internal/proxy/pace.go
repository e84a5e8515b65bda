package proxy

import "time"

// A client that sends fewer than paceBytes during paceTime of waiting is cut off:
// 1 kB/s.
const (
	paceBytes = 20_000
	paceTime  = 20 * time.Second
)

// A pace measures how fast a client sends. It counts only the time of waiting for
// the client: paceTime for each run of paceBytes.
type pace struct {
	missing int           // bytes of this run that have not come yet
	blocked time.Duration // waiting time in this run
	began   time.Time     // when the present wait began
	until   time.Time     // the present deadline; zero for none
}

// begin is called before a wait. It returns the deadline; set reports that it is a
// new one.
func (p *pace) begin(now time.Time) (deadline time.Time, set bool) {
	if p.missing <= 0 {
		p.missing, p.blocked = paceBytes, 0
	}
	p.began = now
	deadline = now.Add(paceTime - p.blocked)
	// Setting a deadline is expensive: one that is a little too early is good enough.
	if late := deadline.Sub(p.until); p.until.IsZero() || late > time.Second {
		p.until = deadline
		return deadline, true
	}
	return p.until, false
}

// end is called after a wait that brought n bytes.
func (p *pace) end(now time.Time, n int) {
	p.blocked += now.Sub(p.began)
	p.missing -= n
}
