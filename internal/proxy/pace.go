package proxy

import "time"

// A client that sends fewer bytes than paceBytes while it is waited for
// paceTime is cut: 1 kB/s.
const (
	paceBytes = 20_000
	paceTime  = 20 * time.Second
)

// A pace measures how fast a client sends. Only time spent waiting
// for the client counts: paceTime for each run of paceBytes.
type pace struct {
	left    int           // bytes of this run that are still to come
	blocked time.Duration // waited for in this run
	began   time.Time     // of the waiting
	until   time.Time     // the deadline that is set; zero for none
}

// begin is called before waiting. It returns the deadline; set tells whether
// that is a new one.
func (p *pace) begin(now time.Time) (deadline time.Time, set bool) {
	if p.left <= 0 {
		p.left, p.blocked = paceBytes, 0
	}
	p.began = now
	deadline = now.Add(paceTime - p.blocked)
	// Deadlines cost: one that is early by little will do.
	if late := deadline.Sub(p.until); p.until.IsZero() || late > time.Second {
		p.until = deadline
		return deadline, true
	}
	return p.until, false
}

// end is called after waiting, n bytes later.
func (p *pace) end(now time.Time, n int) {
	p.blocked += now.Sub(p.began)
	p.left -= n
}
