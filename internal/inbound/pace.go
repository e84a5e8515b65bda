package inbound

import "time"

// A client must take each run of 20 kB within 20 s of our waiting for it.
const (
	runBytes = 20_000
	runTime  = 20 * time.Second
	minRate  = runBytes / int64(runTime/time.Second) // bytes/s
	// leaseTime is how long a Write may block before the pace is looked at.
	leaseTime = 5 * time.Second
)

// A pace judges how fast a client takes what it is sent. Only time spent
// blocked in Write counts.
//
// The kernel takes as much as its buffer holds, and wakes a writer only when
// a good part of it is free again. So what the client itself has confirmed is
// looked at too, whenever a Write has been blocked for a while.
type pace struct {
	bytes    int64         // accepted by the kernel in this run
	spent    time.Duration // blocked in this run
	measured bool          // the client's confirmations have been looked at in this run
	base     int64         // confirmed then
	baseAt   time.Duration // what was spent then
}

// wrote accounts for n bytes accepted and the time it took. With slow set the
// client is too slow; confirmed, unless nil, is asked before that is said.
func (p *pace) wrote(n int, took time.Duration, confirmed func() (int64, bool)) (slow bool) {
	p.bytes += int64(n)
	p.spent += took
	if p.bytes >= runBytes {
		*p = pace{}
		return false
	}
	if p.spent < runTime {
		return false
	}
	if p.measured && confirmed != nil {
		if now, ok := confirmed(); ok && now-p.base >= minRate*int64((p.spent-p.baseAt)/time.Second) {
			*p = pace{measured: true, base: now}
			return false
		}
	}
	return true
}

// blocked notes what the client has confirmed at a moment at which a Write is
// blocked.
func (p *pace) blocked(confirmed func() (int64, bool)) {
	if p.measured || confirmed == nil {
		return
	}
	if now, ok := confirmed(); ok {
		p.measured, p.base, p.baseAt = true, now, p.spent
	}
}
