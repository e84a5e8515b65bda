package replay

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"fairshare"
	"fairshare/internal/prose"
	"fairshare/robots"
)

// A RobotsReport says which bots did not keep the site's robots.txt, and by how much. It
// is nil without Options.Robots.
type RobotsReport struct {
	Summary    string       `json:"summary"`    // of the file
	Faults     []RobotsNote `json:"faults"`     // lines without effect
	Statements []RobotsNote `json:"statements"` // about the use of pages: Content-Signal, Content-Usage, License
	Requests   int64        `json:"requests"`   // of bots for which a group of the file holds
	Disallowed int64        `json:"disallowed"` // of these
	Bots       []RobotsBot  `json:"bots"`       // with the most disallowed requests first, at most 1000
}

// A RobotsNote is a remark about one line of a robots.txt.
type RobotsNote struct {
	Line int    `json:"line"`
	Text string `json:"text"`
}

// A RobotsBot has the figures of one bot in one state. Requests for /robots.txt itself
// are not counted.
type RobotsBot struct {
	Name  string `json:"name"`
	State string `json:"state"` // as in BotReport
	Group string `json:"group"` // the product token of the group that holds for it; "*" for all
	Named bool   `json:"named"` // the group names it

	Requests        int64        `json:"requests"`
	Disallowed      int64        `json:"disallowed"` // requests that the file disallows
	DisallowedBytes int64        `json:"disallowed_bytes"`
	Lines           []RobotsLine `json:"lines"` // that disallowed most, at most ten

	DelaySeconds     float64 `json:"delay_seconds"`      // between two requests; 0 if the file sets none
	DelayLine        int     `json:"delay_line"`         // 0 without a delay
	TooSoon          int64   `json:"too_soon"`           // requests that came before the delay was over
	MeanSeconds      float64 `json:"mean_seconds"`       // between two requests, without pauses of over ten delays
	BusiestMinute    int64   `json:"busiest_minute"`     // requests
	AllowedPerMinute float64 `json:"allowed_per_minute"` // by the delay; 0 without one

	// Of Disallowed and TooSoon: those that the policy let pass.
	DisallowedPassed      int64 `json:"disallowed_passed"`
	DisallowedPassedBytes int64 `json:"disallowed_passed_bytes"`
	TooSoonPassed         int64 `json:"too_soon_passed"`
}

// A RobotsLine counts the requests that one line disallowed.
type RobotsLine struct {
	Line     int    `json:"line"`
	Rule     string `json:"rule"`
	Requests int64  `json:"requests"`
	Example  string `json:"example"` // a path, without the query
}

const (
	mostRobotsBots    = 1000
	mostRobotsClients = 1 << 16 // whose last request is remembered
	robotsLines       = 10      // of a bot in the report
	shownRobotsLines  = 3
	shownRobotsNotes  = 5
)

// robotsOf collects what bots did with regard to robots.txt. The judge calls it for each
// line.
type robotsOf struct {
	file   *robots.File
	counts map[botID]*robotsCount
	last   map[robotsKey]int64 // the time of the last request, Unix ns
}

// A robotsKey is a bot as a whole if it is verified, and one client of it otherwise, as
// limits by bot count.
type robotsKey struct {
	bot    botID
	client uint64
}

type robotsCount struct {
	RobotsBot
	lines        map[int]*RobotsLine
	delay        time.Duration
	gaps         int64         // intervals in sum
	sum          time.Duration // of intervals up to ten delays
	minute, busy int64         // the present minute, and the requests in it
}

// count counts one line. It returns the counts of its bot, nil for none, and whether the line came
// before the delay was over.
func (o *robotsOf) count(it *item) (c *robotsCount, tooSoon bool) {
	r := &it.req.Robots
	if r.Group == "" || it.req.Method != "GET" && it.req.Method != "HEAD" || it.req.Path == "/robots.txt" {
		return nil, false
	}
	c = o.counts[it.bot]
	if c == nil {
		if len(o.counts) >= mostRobotsBots {
			return nil, false
		}
		c = &robotsCount{lines: map[int]*RobotsLine{}, delay: r.Delay, minute: math.MinInt64}
		c.Name, c.State, c.Group, c.Named = it.req.Bot.Name, it.req.Bot.State.String(), r.Group, r.Named
		c.DelayLine = r.DelayLine
		o.counts[it.bot] = c
	}
	c.Requests++
	if r.Disallowed {
		c.Disallowed++
		c.DisallowedBytes = addBytes(c.DisallowedBytes, it.entry.Bytes)
		line := c.lines[r.Line]
		if line == nil {
			line = &RobotsLine{Line: r.Line, Rule: r.Rule,
				Example: prose.Cut(strings.ToValidUTF8(it.req.Path, "?"), maxText)}
			c.lines[r.Line] = line
		}
		line.Requests++
	}
	at := it.req.Time.UnixNano()
	if minute := at / int64(time.Minute); minute != c.minute {
		c.minute, c.busy = minute, 0
	}
	c.busy++
	c.BusiestMinute = max(c.BusiestMinute, c.busy)
	if r.Delay <= 0 {
		return c, false
	}
	key := robotsKey{bot: it.bot}
	if it.req.Bot.State != fairshare.Verified || it.req.Bot.UserTriggered {
		key.client = it.client
	}
	last, known := o.last[key]
	if !known && len(o.last) >= mostRobotsClients {
		return c, false
	}
	if gap := time.Duration(at - last); known && gap >= 0 {
		if gap < r.Delay {
			c.TooSoon++
			tooSoon = true
		}
		if gap <= 10*r.Delay {
			c.gaps++
			c.sum += gap
		}
	}
	o.last[key] = at
	return c, tooSoon
}

// passed counts a line that the policy let pass.
func (c *robotsCount) passed(it *item, tooSoon bool) {
	if it.req.Robots.Disallowed {
		c.DisallowedPassed++
		c.DisallowedPassedBytes = addBytes(c.DisallowedPassedBytes, it.entry.Bytes)
	}
	if tooSoon {
		c.TooSoonPassed++
	}
}

// report returns the figures of all bots.
func (o *robotsOf) report() *RobotsReport {
	if o.file == nil {
		return nil
	}
	r := &RobotsReport{Summary: o.file.Summary(), Faults: notes(o.file.Faults), Statements: notes(o.file.Statements),
		Bots: []RobotsBot{}}
	for _, c := range o.counts {
		r.Requests += c.Requests
		r.Disallowed += c.Disallowed
		b := c.RobotsBot
		b.Lines = []RobotsLine{}
		for _, line := range c.lines {
			b.Lines = append(b.Lines, *line)
		}
		slices.SortFunc(b.Lines, func(a, b RobotsLine) int {
			return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Line, b.Line))
		})
		b.Lines = b.Lines[:min(len(b.Lines), robotsLines)]
		if c.delay > 0 {
			b.DelaySeconds = c.delay.Seconds()
			b.AllowedPerMinute = float64(time.Minute) / float64(c.delay)
		}
		if c.gaps > 0 {
			b.MeanSeconds = (c.sum / time.Duration(c.gaps)).Seconds()
		}
		r.Bots = append(r.Bots, b)
	}
	slices.SortFunc(r.Bots, func(a, b RobotsBot) int {
		return cmp.Or(cmp.Compare(b.Disallowed, a.Disallowed), cmp.Compare(b.TooSoon, a.TooSoon),
			cmp.Compare(b.Requests, a.Requests), strings.Compare(a.Name, b.Name), strings.Compare(a.State, b.State))
	})
	return r
}

func notes(list []robots.Note) []RobotsNote {
	out := []RobotsNote{}
	for _, n := range list {
		out = append(out, RobotsNote(n))
	}
	return out
}

// robots writes which bots did not keep robots.txt.
func (p *printer) robots(r *Report) {
	o := r.Robots
	if o == nil {
		return
	}
	p.heading("robots.txt")
	summary, _, _ := strings.Cut(o.Summary, ";")
	p.text(2, 2, "The file has "+prose.Printable(summary)+".")
	p.notes("without effect", o.Faults)
	p.notes("about the use of pages", o.Statements)
	if o.Requests == 0 {
		p.text(2, 2, "No bot came for which it says something.")
		return
	}
	p.text(2, 2, fmt.Sprintf("%s of %s of bots that it concerns are disallowed (%s).", prose.Number(o.Disallowed),
		prose.Plural(o.Requests, "request"), prose.Percent(o.Disallowed, o.Requests)))
	kept, shown := 0, 0
	for i := range o.Bots {
		b := &o.Bots[i]
		if b.Disallowed == 0 && !b.IsTooFast() {
			kept++
			continue
		}
		if shown++; shown > max(rowsOfFleets, len(r.Top)) {
			continue
		}
		p.robotsBot(b)
	}
	if more := shown - max(rowsOfFleets, len(r.Top)); more > 0 {
		p.line("  and %d more: --json shows them", more)
	}
	if kept > 0 {
		p.text(2, 2, prose.Plural(int64(kept), "other bot")+" kept it.")
	}
}

// IsTooFast reports whether a bot came faster than the file asks, and not only now and then:
// clocks and queues move single requests together.
func (b *RobotsBot) IsTooFast() bool { return b.TooSoon >= 5 && 20*b.TooSoon >= b.Requests }

func (p *printer) robotsBot(b *RobotsBot) {
	name := prose.Printable(b.Name) + " (" + b.State + ")"
	if b.Disallowed > 0 {
		p.text(2, 6, fmt.Sprintf("%s: %s of %s disallowed (%s), %s", name, prose.Number(b.Disallowed),
			prose.Plural(b.Requests, "request"), prose.Percent(b.Disallowed, b.Requests),
			prose.Size(b.DisallowedBytes)))
		for i, line := range b.Lines {
			if i == shownRobotsLines {
				p.line("      and %d more lines", len(b.Lines)-i)
				break
			}
			p.text(6, 2, fmt.Sprintf("line %d, %s: %s, such as %s", line.Line, prose.Printable(line.Rule),
				prose.Number(line.Requests), prose.Printable(line.Example)))
		}
	}
	if b.IsTooFast() {
		p.text(2, 6, fmt.Sprintf("%s: faster than line %d asks: %s of %s came less than %s after the one before, on average %s; "+
			"%s in the busiest minute instead of %s", name, b.DelayLine, prose.Number(b.TooSoon),
			prose.Plural(b.Requests, "request"), secondsText(b.DelaySeconds), secondsText(b.MeanSeconds),
			prose.Number(b.BusiestMinute), prose.Number(max(1, int64(b.AllowedPerMinute)))))
	}
}

func (p *printer) notes(what string, list []RobotsNote) {
	for i, n := range list {
		if i == shownRobotsNotes {
			p.line("  and %d more lines %s: --json shows them", len(list)-i, what)
			return
		}
		p.text(2, 2, fmt.Sprintf("line %d (%s): %s", n.Line, what, prose.Printable(n.Text)))
	}
}

// secondsText writes seconds as policy files spell durations, such as "10s" and "1s500ms".
func secondsText(seconds float64) string {
	return prose.ExactDuration(time.Duration(seconds * float64(time.Second)).Round(100 * time.Millisecond))
}
