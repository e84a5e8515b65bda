package dashboard

import (
	"strconv"
	"time"

	"fairshare/internal/traffic"
)

// A span is how far back a chart looks, and how long each of its steps is.
type span struct {
	Key, Name    string
	length, step time.Duration
}

// Each span has at most 60 steps.
var spans = []span{
	{"5m", "the last 5 minutes", 5 * time.Minute, 5 * time.Second},
	{"1h", "the last hour", time.Hour, time.Minute},
	{"1d", "the last day", 24 * time.Hour, 30 * time.Minute},
}

// A chart shows counts over time. Its drawing is 600 wide and 100 high, and has no text.
type chart struct {
	Steps         []step // the latest last
	Step          time.Duration
	From, To      time.Time
	Most          int64 // requests of one step: the height of the first drawing
	MostLoad      int   // requests waiting and in progress: the height of the second one
	Requests      int64
	Refused       int64
	Shared        bool // the capacity of the upstream was known
	Passed, Ended []bar
	DryRun        []bar
	Waiting       []bar
	InProgress    []bar
}

// A step is what was counted in one step.
type step struct {
	At time.Time
	traffic.Totals
	Waiting, InProgress, Capacity int
}

// All returns the requests of a step.
func (s *step) All() int64 { return s.Passed + s.Refused + s.Blocked + s.Unjudged }

// A bar is a rectangle of a drawing.
type bar struct{ X, Y, W, H string }

const (
	chartWidth  = 600.0
	chartHeight = 100.0
)

// newChart sums points up into steps. now is the time of the latest point or later.
func newChart(points []traffic.Point, s span, now time.Time) *chart {
	n := int(s.length / s.step)
	end := now.Truncate(s.step).Add(s.step)
	c := &chart{Step: s.step, From: end.Add(-time.Duration(n) * s.step), To: end, Steps: make([]step, n)}
	for i := range c.Steps {
		c.Steps[i].At = c.From.Add(time.Duration(i) * s.step)
	}
	for i := range points {
		p := &points[i]
		at := int(p.At.Sub(c.From) / s.step)
		if p.At.Before(c.From) || at >= n {
			continue
		}
		to := &c.Steps[at]
		to.Totals = to.Totals.Plus(p.Totals)
		to.Waiting, to.InProgress = max(to.Waiting, p.Waiting), max(to.InProgress, p.InProgress)
		to.Capacity = p.Capacity
	}
	for i := range c.Steps {
		at := &c.Steps[i]
		c.Most, c.Requests = max(c.Most, at.All()), c.Requests+at.All()
		c.Refused += at.Refused + at.Blocked
		c.MostLoad = max(c.MostLoad, at.Waiting+at.InProgress)
		c.Shared = c.Shared || at.Capacity > 0
	}
	width := chartWidth / float64(n)
	// draw appends a bar that begins at a height and is so high, in parts of most.
	draw := func(bars *[]bar, i int, from, height, most int64) {
		if height <= 0 {
			return
		}
		h := chartHeight * float64(height) / float64(most)
		y := chartHeight - chartHeight*float64(from)/float64(most) - h
		*bars = append(*bars, bar{number(float64(i)*width + width/10), number(y), number(width * 0.8), number(h)})
	}
	for i := range c.Steps {
		at := &c.Steps[i]
		passed := at.Passed - min(at.DryRun, at.Passed)
		draw(&c.Passed, i, 0, passed, c.Most)
		draw(&c.DryRun, i, passed, at.Passed-passed, c.Most)
		draw(&c.Ended, i, at.Passed, at.All()-at.Passed, c.Most)
		draw(&c.InProgress, i, 0, int64(at.InProgress), int64(c.MostLoad))
		draw(&c.Waiting, i, int64(at.InProgress), int64(at.Waiting), int64(c.MostLoad))
	}
	return c
}

// number writes a coordinate.
func number(f float64) string { return strconv.FormatFloat(f, 'f', 2, 64) }
