package replay

import (
	"time"

	"fairshare"
	"fairshare/internal/accesslog"
)

// A Usage has the figures of some requests.
type Usage struct {
	Requests int64   `json:"requests"`
	Bytes    int64   `json:"bytes"`   // of the answers; 0 if the log has none
	Seconds  float64 `json:"seconds"` // of the upstream or, if the log has no such time, of the whole requests
}

// A usage is a Usage while it is counted. Its sums saturate.
type usage struct{ requests, bytes, time int64 }

func (u *usage) add(v usage) {
	u.requests = addBytes(u.requests, v.requests)
	u.bytes = addBytes(u.bytes, v.bytes)
	u.time = addBytes(u.time, v.time)
}

// report returns the figures for a report.
func (u usage) report() Usage { return Usage{u.requests, u.bytes, time.Duration(u.time).Seconds()} }

// most returns the largest of the shares that u has of all, from 0 to 1.
func (u usage) most(all usage) float64 {
	share := func(n, all int64) float64 { return float64(n) / float64(max(all, 1)) }
	return max(share(u.requests, all.requests), share(u.bytes, all.bytes), share(u.time, all.time))
}

// most is usage.most of figures in a report.
func (u Usage) most(all Usage) float64 {
	m := max(part(u.Requests, all.Requests), part(u.Bytes, all.Bytes))
	if all.Seconds > 0 {
		m = max(m, u.Seconds/all.Seconds)
	}
	return m
}

func part(n, all int64) float64 { return float64(n) / float64(max(all, 1)) }

// less orders figures: the largest share of all first.
func (u Usage) compare(v, all Usage) int {
	switch a, b := u.most(all), v.most(all); {
	case a > b:
		return -1
	case a < b:
		return 1
	}
	return 0
}

// took returns the time that a line has cost: the upstream's if the log has it.
func took(e *accesslog.Entry) time.Duration {
	if e.Has&accesslog.HasUpstream != 0 {
		return e.Upstream
	}
	return e.Duration
}

// usageOf returns the figures of one line.
func usageOf(e *accesslog.Entry) usage {
	return usage{1, max(e.Bytes, 0), max(int64(took(e)), 0)}
}

// status returns the status of a line, 0 if the server gave it to nobody's request: browsers
// open connections in advance, and servers log those that stay unused with 400 or 408.
func status(e *accesslog.Entry) int {
	if e.NoRequest {
		return 0
	}
	return e.Status
}

// Statuses counts answers by class.
type Statuses struct {
	OK        int64 `json:"2xx"`
	Redirects int64 `json:"3xx"`
	Client    int64 `json:"4xx"` // without answers to connections on which no request came
	Server    int64 `json:"5xx"`
}

// A statuses is a Statuses while it is counted. Its counts saturate.
type statuses [4]uint32

// clientErrors is the index of the answers 4xx.
const clientErrors = 2

func (s *statuses) add(status int) {
	if class := uint(status)/100 - 2; class < uint(len(s)) && s[class] != 1<<32-1 {
		s[class]++
	}
}

func (s *statuses) report() Statuses {
	return Statuses{int64(s[0]), int64(s[1]), int64(s[2]), int64(s[3])}
}

// isRefused reports whether a line was refused or blocked.
func (it *item) isRefused() bool {
	return it.enforced.action == fairshare.Refuse || it.enforced.action == fairshare.Block
}
