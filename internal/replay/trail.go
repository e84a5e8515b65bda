package replay

import (
	"bufio"
	"encoding/binary"
	"fairshare/internal/prose"
	"io"
	"slices"
	"unicode/utf8"
)

// A Trail has the verdict on each judged line of a run, in order, for a later run over the
// same logs: see Options.Trail and Options.Before. Equal neighbours share three bytes or so.
type Trail struct {
	rules []string // names by number, see Options.nameOf
	runs  []byte   // pairs of uvarint: a code and how many lines have it
	code  uint64   // of the last lines
	n     uint64
}

// codeOf returns the code of a verdict: 0 if the line passed.
func (t *Trail) codeOf(it *item, name string) uint64 {
	if !it.isRefused() {
		return 0
	}
	i := slices.Index(t.rules, name)
	if i < 0 {
		i = len(t.rules)
		t.rules = append(t.rules, name)
	}
	return uint64(i) + 1
}

func (t *Trail) add(it *item, opts *Options) {
	name := ""
	if it.isRefused() {
		name = opts.nameOf(it.enforced.rule)
	}
	if code := t.codeOf(it, name); code != t.code || t.n == 0 {
		t.flush()
		t.code = code
	}
	t.n++
}

func (t *Trail) flush() {
	if t.n > 0 {
		t.runs = binary.AppendUvarint(binary.AppendUvarint(t.runs, t.code), t.n)
		t.n = 0
	}
}

// A trailReader returns the verdicts of a Trail again.
type trailReader struct {
	trail *Trail
	rest  []byte
	code  uint64
	n     uint64
}

// next returns the rule that refused or blocked the next line; ok is false if it passed.
func (r *trailReader) next() (rule string, ok bool) {
	for r.n == 0 {
		var size int
		if r.code, size = binary.Uvarint(r.rest); size <= 0 {
			return "", false // more lines than before: the log has grown
		}
		r.rest = r.rest[size:]
		r.n, size = binary.Uvarint(r.rest)
		r.rest = r.rest[size:]
	}
	if r.n--; r.code == 0 {
		return "", false
	}
	return r.trail.rules[r.code-1], true
}

// A Difference compares a run with an earlier one over the same logs.
type Difference struct {
	Both    Change `json:"both"`     // refused or blocked in both
	OnlyNew Change `json:"only_new"` // only in this run
	OnlyOld Change `json:"only_old"` // only in the earlier one
}

// A Change has the requests that were refused or blocked in one run, or in both.
type Change struct {
	Usage
	Clients int64           `json:"clients"`
	People  int64           `json:"people"` // of Clients: those that look like people, see People
	Named   []ChangedClient `json:"named"`  // people first, then the most requests; none in Both
	// there were too many clients to count them all
	Approximate bool `json:"approximate,omitempty"`
}

// A ChangedClient is a client that one run refused or blocked, and the other let pass.
type ChangedClient struct {
	TopClient
	Changed int64  `json:"changed"` // requests that only one run refused or blocked
	Rule    string `json:"rule"`    // of that run, for the first of these
	Person  bool   `json:"person"`  // looks like a person, see People
}

// Of a line, by the two runs.
const (
	refusedByBoth = iota
	refusedByNew
	refusedByOld
	comparisons
)

// A differ compares the lines of two runs.
type differ struct {
	old     trailReader
	sums    [comparisons]usage
	clients [comparisons]map[uint64]*changed // by hash
	lost    [comparisons]bool                // some clients are missing
}

type changed struct {
	requests int64
	rule     string
}

func newDiffer(t *Trail) *differ {
	t.flush()
	d := &differ{old: trailReader{trail: t, rest: t.runs}}
	for i := range d.clients {
		d.clients[i] = map[uint64]*changed{}
	}
	return d
}

// line compares the verdicts on one line.
func (rec *recorder) compare(it *item, u usage) {
	d := rec.differ
	rule, before := d.old.next()
	which := refusedByBoth
	switch now := it.isRefused(); {
	case !before && !now:
		return
	case now && !before:
		which, rule = refusedByNew, rec.opts.nameOf(it.enforced.rule)
	case before && !now:
		which = refusedByOld
	}
	d.sums[which].add(u)
	c := d.clients[which][it.client]
	if c == nil {
		if len(d.clients[which]) >= rec.bounds.effects {
			d.lost[which] = true
			return
		}
		c = &changed{rule: rule}
		d.clients[which][it.client] = c
	}
	c.requests++
}

// addDifference adds the comparison with the earlier run.
func (rec *recorder) addDifference(r *Report) {
	if rec.differ == nil {
		return
	}
	r.Difference = &Difference{}
	for which, to := range []*Change{&r.Difference.Both, &r.Difference.OnlyNew, &r.Difference.OnlyOld} {
		d := rec.differ
		to.Usage, to.Clients, to.Approximate = d.sums[which].report(), int64(len(d.clients[which])), d.lost[which]
		to.Named = []ChangedClient{}
		for i := range rec.clients.n {
			cl := rec.clients.at(i)
			c := d.clients[which][cl.hash]
			if c == nil {
				continue
			}
			person := rec.person(cl)
			if person {
				to.People++
			}
			if which == refusedByBoth {
				continue
			}
			row := ChangedClient{Changed: c.requests, Rule: c.rule, Person: person}
			at, _ := slices.BinarySearchFunc(to.Named, row, func(a, b ChangedClient) int {
				switch {
				case a.Person != b.Person && a.Person, a.Person == b.Person && a.Changed > b.Changed:
					return -1
				case a.Person == b.Person && a.Changed == b.Changed:
					return 0
				}
				return 1
			})
			if at < rec.opts.Top {
				row.TopClient = rec.top(cl)
				to.Named = slices.Insert(to.Named, at, row)
				to.Named = to.Named[:min(len(to.Named), rec.opts.Top)]
			}
		}
	}
}

// WriteDifference writes the comparison with an earlier run as text. before and after name the
// two policies.
func (r *Report) WriteDifference(w io.Writer, before, after string, style Style) error {
	if style.Width == 0 {
		style.Width = 80
	}
	style.Width = min(max(style.Width, 60), 100)
	p := &printer{w: bufio.NewWriter(w), Style: style}
	p.logs(r)
	if d := r.Difference; d != nil && r.Lines > r.Skipped {
		before, after = prose.Printable(before), prose.Printable(after)
		const wide = 17
		f := p.figures(r, p.Width-2-wide-17)
		p.heading("Refused or blocked requests: " + before + " and " + after)
		head := f.head()
		p.line("  %-*s%s%9s%8s", wide, "", head, "clients", "people")
		for _, row := range []struct {
			name string
			c    *Change
		}{{"by both", &d.Both}, {"only by the new", &d.OnlyNew}, {"only by the old", &d.OnlyOld}} {
			clients := prose.Number(row.c.Clients)
			if row.c.Approximate {
				clients = ">" + clients
			}
			p.line("  %-*s%s%9s%8s", wide, row.name, f.row(row.c.Usage), clients, prose.Number(row.c.People))
		}
		p.text(2, 2,
			"people: clients that look like people: a browser's user agent, page assets fetched, referers sent, "+
				"no sign of a program")
		p.changed(after+" refuses, "+before+" does not", &d.OnlyNew)
		p.changed(before+" refuses, "+after+" does not", &d.OnlyOld)
		if d.OnlyNew.Requests+d.OnlyOld.Requests == 0 {
			p.w.WriteByte('\n')
			p.line("Both policies do the same with this log.")
		}
	}
	p.warnings(r)
	return p.w.Flush()
}

// changed writes the clients that only one policy refuses.
func (p *printer) changed(title string, c *Change) {
	if len(c.Named) == 0 {
		return
	}
	p.heading(title)
	wide, rule := 0, 4
	for _, t := range c.Named {
		wide = max(wide, len(t.Client))
		rule = max(rule, utf8.RuneCountInString(prose.Printable(t.Rule)))
	}
	wide, rule = min(wide, 39), min(rule, 24)
	rest := max(p.Width-2-wide-20-2-rule-2, 10)
	p.line("  %-*s%10s%10s  %-*s  %s", wide, "client", "requests", "of", rule, "rule", "user agent")
	people := false
	for _, t := range c.Named {
		text := p.clientText(&t.TopClient, rest)
		if t.Person {
			text, people = "+ "+p.clientText(&t.TopClient, rest-2), true
		}
		p.line("  %-*s%10s%10s  %-*s  %s", wide, t.Client, prose.Number(t.Changed), prose.Number(t.Requests), rule,
			prose.Cut(prose.Printable(t.Rule), rule), text)
	}
	if more := c.Clients - int64(len(c.Named)); more > 0 {
		p.line("  and %s more: --top and --json show them", prose.Number(more))
	}
	if people {
		p.line("  + looks like a person")
	}
}
