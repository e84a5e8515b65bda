package census

import (
	"fmt"
	"strings"
	"time"

	"fairshare/internal/prose"
)

// Bounds of the warning that many clients are refused.
const (
	manyOf      = 5  // the warning begins if more than one of this many clients is refused,
	fewOf       = 7  // and ends if fewer than one of this many is
	fewestSeen  = 20 // clients seen
	fewestGone  = 5  // clients refused
	warnAgainIn = 5 * time.Minute
	mostRules   = 8 // in one line
)

// A warning is the state of a warning.
type warning struct {
	lasts bool      // its end was not reported yet
	at    time.Time // when it was logged last; zero: never
}

// warnings returns the warnings that are due, about enforced rules and about those in
// dry run.
func (c *Census) warnings(now time.Time) []string {
	var lines []string
	s := c.state.Load()
	saw := int64(-1)
	for k := range kinds {
		w, last, present := &c.warnedOf[k], &c.last.tallies[k], &s.tallies[k]
		if !w.lasts && last.requests.Load()+present.requests.Load() < fewestGone {
			continue // the usual case
		}
		if saw < 0 {
			saw = estimate(&c.last.seen, &s.seen)
		}
		var all sample
		all.join(&last.clients)
		all.join(&present.clients)
		gone := all.amount()
		of := max(saw, gone.clients)
		switch {
		case of >= fewestSeen && gone.clients >= fewestGone && gone.clients*manyOf > of:
			if w.at.IsZero() || now.Sub(w.at) >= warnAgainIn {
				var both tally
				both.join(last)
				both.join(present)
				lines = append(lines, warningText(k, gone, of, now.Sub(c.lastAt), &both))
				w.lasts, w.at = true, now
			}
		case w.lasts && gone.clients*fewOf <= of:
			again := "fewer clients are refused"
			if k.busy() {
				again = "the upstream is no longer overloaded"
			}
			lines = append(lines, fmt.Sprintf("%s: %s of the clients of %s %s", again, prose.Percent(gone.clients, of),
				prose.Last(now.Sub(c.lastAt)), k.outcome()))
			w.lasts = false
		}
	}
	return lines
}

func (k kind) outcome() string {
	switch k {
	case enforced:
		return "were refused or blocked"
	case busy:
		return "were refused because the upstream was busy"
	case dryBusy:
		return "would have been refused because the upstream was busy"
	}
	return "would have been refused or blocked"
}

// busy reports whether a busy upstream was the reason, not a rule.
func (k kind) busy() bool { return k == busy || k == dryBusy }

// warningText returns one line. It is in capitals, since the site may be refusing its
// visitors.
func warningText(k kind, gone amount, of int64, since time.Duration, t *tally) string {
	var b strings.Builder
	rules := t.sums()
	switch k {
	case enforced:
		b.WriteString("WARNING: MANY CLIENTS ARE BEING REFUSED: ")
	case dryPolicy:
		b.WriteString("WARNING: MANY CLIENTS WOULD BE REFUSED without dry run: ")
	case dryRules:
		b.WriteString("WARNING: MANY CLIENTS WOULD BE REFUSED by rules in dry run: ")
	case busy, dryBusy:
		b.WriteString("WARNING: THE UPSTREAM IS OVERLOADED: ")
	}
	fmt.Fprintf(&b, "%s of %s of %s (%s) %s, ", gone.text(gone.clients), clients(of, of > surelySeen),
		prose.Last(since),
		prose.Percent(gone.clients, of), k.outcome())
	top := rules[0]
	if k.busy() {
		fmt.Fprintf(&b, "%s. ", prose.Plural(t.requests.Load(), "request"))
	} else if len(rules) == 1 {
		fmt.Fprintf(&b, "all by rule %q. ", top.name)
	} else {
		fmt.Fprintf(&b, "most by rule %q (%s). ", top.name, clients(top.clients, top.about))
	}
	switch {
	case gone.people == 0:
		b.WriteString("None of them looks like a person. ")
	case gone.people*2 > gone.clients:
		fmt.Fprintf(&b, "MOST OF THEM LOOK LIKE PEOPLE (%s). ", gone.text(gone.people))
	default:
		b.WriteString(looks(gone.text(gone.people)+" of them", gone.people) + ". ")
	}
	if bots := t.botsText(); bots != "" {
		b.WriteString(bots + ". ")
	}
	switch k {
	case busy, dryBusy:
		b.WriteString(
			"No rule causes this. The upstream needs capacity (more workers, faster pages, or a larger capacity in share: if that is set too low)," +
				" or tighter limits for the clients that use most of it: see fairshare clients --sort time." +
				" If this is an attack: fairshare attack on")
		return b.String()
	case enforced:
		b.WriteString(
			"If this is not an attack, the rule is too tight: raise its limit or set dry_run: true in it, and send SIGHUP")
	default:
		b.WriteString(
			"If this is not an attack, the rule is too tight to be enforced: raise its limit, and send SIGHUP")
	}
	b.WriteString("; fairshare check FILE --try shows its effect on a request, fairshare replay on a whole log")
	return b.String()
}

// summaries returns the lines about the dry run of the whole policy and of single
// rules. If no request would have been refused, one line says so.
func (c *Census) summaries(p *period, when string) []string {
	var lines []string
	for _, k := range []kind{dryPolicy, dryRules} {
		t := &p.tallies[k]
		if t.requests.Load() == 0 && (!c.state.Load().dry[k] || len(lines) > 0) {
			continue
		}
		what := "dry run"
		if k == dryRules {
			what = "rules in dry run"
		}
		line := fmt.Sprintf("%s, %s: %s", what, when, summaryText(t, estimate(&p.seen)))
		if n := p.operators.requests.Load(); n > 0 && k == dryPolicy {
			of := p.operators.clients.amount()
			line += fmt.Sprintf("; bans by operators are not included: %s of %s", prose.Plural(n, "request"),
				clients(of.clients, of.about))
		}
		if n := p.tallies[dryBusy].requests.Load(); n > 0 && k == dryPolicy {
			of := p.tallies[dryBusy].clients.amount()
			line += fmt.Sprintf("; a busy upstream would have refused %s of %s", prose.Plural(n, "further request"),
				clients(of.clients, of.about))
		}
		lines = append(lines, line)
	}
	return lines
}

func summaryText(t *tally, saw int64) string {
	requests, gone := t.requests.Load(), t.clients.amount()
	if requests == 0 {
		return fmt.Sprintf("no request would have been refused or blocked; %s seen", clients(saw, saw > surelySeen))
	}
	saw = max(saw, gone.clients)
	var b strings.Builder
	fmt.Fprintf(&b, "%s of %s (%s of %s) would have been refused or blocked; ",
		prose.Plural(requests, "request"), clients(gone.clients, gone.about), prose.Percent(gone.clients, saw),
		about(saw, saw > surelySeen))
	if gone.people == 0 {
		b.WriteString("none of these clients looks like a person")
	} else {
		b.WriteString(looks(gone.text(gone.people)+" of these clients", gone.people))
	}
	if bots := t.botsText(); bots != "" {
		b.WriteString("; " + bots)
	}
	rules := t.sums()
	if len(rules) == 1 {
		fmt.Fprintf(&b, "; all by rule %q", rules[0].name)
		return b.String()
	}
	b.WriteString("; by rule")
	for i, r := range rules {
		if i > 0 {
			b.WriteByte(';')
		}
		if i == mostRules {
			fmt.Fprintf(&b, " and %s more", prose.Plural(int64(len(rules)-i), "rule"))
			break
		}
		fmt.Fprintf(&b, " %q: %s of %s", r.name, prose.Plural(r.requests, "request"), clients(r.clients, r.about))
		if r.people > 0 {
			fmt.Fprintf(&b, ", %s like people", r.text(r.people))
		}
	}
	return b.String()
}

// surelySeen is the number of clients up to which a seen is exact; beyond it the estimate
// is often wrong by one.
const surelySeen = 500

func (a amount) text(n int64) string { return about(n, a.about) }

// about formats a number; an estimate has three digits.
func about(n int64, estimated bool) string {
	if !estimated {
		return prose.Number(n)
	}
	return prose.Estimate(n)
}

func clients(n int64, estimated bool) string {
	if n == 1 {
		return about(n, estimated) + " client"
	}
	return about(n, estimated) + " clients"
}

func looks(clients string, n int64) string {
	if n == 1 {
		return clients + " looks like a person"
	}
	return clients + " look like people"
}
