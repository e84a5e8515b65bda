package dashboard

import (
	"strconv"
	"strings"
	"time"

	"fairshare/internal/console"
	"fairshare/internal/prose"
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

// historySpans are the spans of what one client did.
var historySpans = []span{
	{"1h", "the last hour", time.Hour, time.Minute},
	{"2d", "the last two days", 48 * time.Hour, time.Hour},
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
	Costs         []costs // of a client
	Unknown       string  // how wide the part is that was not counted; "": nothing is missing
}

// costs are a drawing of what requests cost.
type costs struct {
	Name, Most, Sum string
	Bars            []bar
}

// A step is what was counted in one step.
type step struct {
	At time.Time
	traffic.Totals
	Waiting, InProgress, Capacity int
	Unknown                       bool // it was not counted
}

// time writes a time of the chart; with the day if the chart is long.
func (c *chart) time(t time.Time) string {
	if c.To.Sub(c.From) > 24*time.Hour {
		return t.UTC().Format("2006-01-02 15:04")
	}
	return t.UTC().Format("15:04:05")
}

// Each names the length of a step, as in "in each hour".
func (c *chart) Each() string { return strings.TrimPrefix(prose.Duration(c.Step), "1 ") }

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
	for i := range c.Steps {
		at := &c.Steps[i]
		passed := at.Passed - min(at.DryRun, at.Passed)
		c.draw(&c.Passed, i, 0, passed, c.Most)
		c.draw(&c.DryRun, i, passed, at.Passed-passed, c.Most)
		c.draw(&c.Ended, i, at.Passed, at.All()-at.Passed, c.Most)
		c.draw(&c.InProgress, i, 0, int64(at.InProgress), int64(c.MostLoad))
		c.draw(&c.Waiting, i, int64(at.InProgress), int64(at.Waiting), int64(c.MostLoad))
	}
	return c
}

// draw appends a bar for a step that begins at a height and is so high, in parts of most.
func (c *chart) draw(bars *[]bar, i int, from, height, most int64) {
	if height <= 0 {
		return
	}
	width := chartWidth / float64(len(c.Steps))
	h := chartHeight * float64(height) / float64(most)
	y := chartHeight - chartHeight*float64(from)/float64(most) - h
	*bars = append(*bars, bar{number(float64(i)*width + width/10), number(y), number(width * 0.8), number(h)})
}

// newHistoryChart shows what one client did, and what that cost.
func newHistoryChart(h *console.History, s span, now time.Time) *chart {
	points := make([]traffic.Point, len(h.Points))
	for i, p := range h.Points {
		points[i] = traffic.Point{At: p.At, Totals: traffic.Totals{Passed: p.Requests - p.Refused, Refused: p.Refused,
			DryRun: p.DryRun, Bytes: p.Bytes, Time: time.Duration(p.Seconds * float64(time.Second))}}
	}
	c := newChart(points, s, now)
	if h.Since == nil {
		return c
	}
	for i := range c.Steps {
		c.Steps[i].Unknown = !c.Steps[i].At.Add(s.step).After(*h.Since)
		if c.Steps[i].Unknown {
			c.Unknown = number(chartWidth * float64(i+1) / float64(len(c.Steps)))
		}
	}
	c.addCosts("Time of the upstream", func(d int64) string { return prose.Seconds(time.Duration(d)) },
		func(at *step) int64 { return int64(at.Time) })
	c.addCosts("Bytes sent", prose.Size, func(at *step) int64 { return at.Bytes })
	return c
}

// addCosts adds a drawing of one kind of costs, if there were any.
func (c *chart) addCosts(name string, text func(int64) string, of func(*step) int64) {
	var most, sum int64
	for i := range c.Steps {
		most, sum = max(most, of(&c.Steps[i])), sum+of(&c.Steps[i])
	}
	if most == 0 {
		return
	}
	drawn := costs{Name: name, Most: text(most), Sum: text(sum)}
	for i := range c.Steps {
		c.draw(&drawn.Bars, i, 0, of(&c.Steps[i]), most)
	}
	c.Costs = append(c.Costs, drawn)
}

// number writes a coordinate.
func number(f float64) string { return strconv.FormatFloat(f, 'f', 2, 64) }
