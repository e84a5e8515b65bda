package inbound

import "time"

// A client must take each run of 20 kB within 20 s of blocked writing.
const (
	runBytes = 20_000
	runTime  = 20 * time.Second
	minRate  = runBytes / int64(runTime/time.Second) // bytes/s
	// leaseTime is how long a Write may block before the pace is checked.
	leaseTime = 5 * time.Second
)

// A pace judges how fast a client reads. Only the time of blocked Writes counts.
//
// The kernel wakes a writer only when a large part of its buffer is free again. So a pace
// also reads how many bytes the client has acknowledged, whenever a Write has been
// blocked for leaseTime.
type pace struct {
	bytes    int64         // accepted by the kernel in this run
	spent    time.Duration // blocked in this run
	measured bool          // base and baseAt are known
	base     int64         // bytes that the client had acknowledged at baseAt
	baseAt   time.Duration // on the scale of spent
}

// wrote counts n accepted bytes and the time of the Write, and reports whether the client
// is too slow. confirmed returns how many bytes the client has acknowledged; nil if that
// is unknown.
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

// blocked is called while a Write is blocked. It records how many bytes the client has
// acknowledged.
func (p *pace) blocked(confirmed func() (int64, bool)) {
	if p.measured || confirmed == nil {
		return
	}
	if now, ok := confirmed(); ok {
		p.measured, p.base, p.baseAt = true, now, p.spent
	}
}
