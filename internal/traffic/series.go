package traffic

import (
	"time"

	"fairshare/internal/toplist"
)

// How much of the past is kept: 5 minutes of seconds, and a day of minutes.
const (
	secondsKept = 5 * 60
	minutesKept = 24 * 60
)

// A Point is what was counted in a second or a minute.
type Point struct {
	At time.Time `json:"at"` // when it began, by the system's clock
	Totals
	Waiting    int `json:"waiting"`     // requests that waited for a turn: the most at the end of a second
	InProgress int `json:"in_progress"` // at the upstream: likewise
	Capacity   int `json:"capacity"`    // of the upstream, at the end; 0: it is not shared
}

// A Load is the state of the upstream's queue.
type Load struct{ Waiting, InProgress, Capacity int }

// A ring has the latest points.
type ring struct {
	points []Point
	next   int
	length time.Duration
}

func newRing(n int, length time.Duration) ring {
	return ring{points: make([]Point, 0, n), length: length}
}

func (r *ring) add(p Point) {
	if len(r.points) < cap(r.points) {
		r.points = append(r.points, p)
		return
	}
	r.points[r.next] = p
	r.next = (r.next + 1) % len(r.points)
}

// since returns the points that began at a time or later, in order.
func (r *ring) since(at time.Time) []Point {
	var found []Point
	for i := range r.points {
		if p := &r.points[(r.next+i)%len(r.points)]; !p.At.Before(at) {
			found = append(found, *p)
		}
	}
	return found
}

// minus returns what was counted between two times.
func (t Totals) minus(before Totals) Totals {
	return Totals{Passed: t.Passed - before.Passed, Refused: t.Refused - before.Refused,
		Blocked: t.Blocked - before.Blocked, DryRun: t.DryRun - before.DryRun, Unjudged: t.Unjudged - before.Unjudged,
		Failed: t.Failed - before.Failed, Bytes: t.Bytes - before.Bytes, Time: t.Time - before.Time}
}

// Plus returns the sum of two counts.
func (t Totals) Plus(u Totals) Totals {
	return Totals{Passed: t.Passed + u.Passed, Refused: t.Refused + u.Refused, Blocked: t.Blocked + u.Blocked,
		DryRun: t.DryRun + u.DryRun, Unjudged: t.Unjudged + u.Unjudged, Failed: t.Failed + u.Failed,
		Bytes: t.Bytes + u.Bytes, Time: t.Time + u.Time}
}

// Tick ends a second. Call it once a second, with the recorder's time, the system's time and the
// load of the upstream.
func (r *Recorder) Tick(now, wall time.Time, load Load) {
	r.lists.Lock()
	totals := r.totals
	r.lists.Unlock()
	r.mu.Lock()
	p := Point{At: wall.Truncate(time.Second), Totals: totals.minus(r.last), Waiting: load.Waiting,
		InProgress: load.InProgress, Capacity: load.Capacity}
	r.last = totals
	r.seconds.add(p)
	if at := p.At.Truncate(time.Minute); !at.Equal(r.minute.At) {
		if !r.minute.At.IsZero() {
			r.minutes.add(r.minute)
		}
		r.minute = Point{At: at}
	}
	m := &r.minute
	m.Totals, m.Capacity = m.Totals.Plus(p.Totals), p.Capacity
	m.Waiting, m.InProgress = max(m.Waiting, p.Waiting), max(m.InProgress, p.InProgress)
	rotate := now.Sub(r.rotated) >= rotateEvery
	if rotate {
		r.rotated = now
	}
	r.mu.Unlock()
	if rotate {
		r.lists.Rotate(now, func(d int, w *toplist.Window) {
			r.mu.Lock()
			r.histories.add(Dimension(d), w, wall)
			r.mu.Unlock()
		})
	}
}

// Seconds returns the points of the last seconds that began at a time or later.
func (r *Recorder) Seconds(since time.Time) []Point {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seconds.since(since)
}

// Minutes returns the points of minutes that began at a time or later. The last one is not over.
func (r *Recorder) Minutes(since time.Time) []Point {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := r.minutes.since(since)
	if !r.minute.At.IsZero() && !r.minute.At.Before(since) {
		found = append(found, r.minute)
	}
	return found
}
