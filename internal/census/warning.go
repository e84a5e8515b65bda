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

// summaries returns the lines about the enforced rules, and about the dry run of the
// whole policy and of single rules. If a dry run would have refused no request, one line
// says so.
func (c *Census) summaries(p *period, when string) []string {
	var lines []string
	dry := &c.state.Load().dry
	requests := int64(0)
	for i := range p.requests {
		requests += p.requests[i].Load()
	}
	if t := &p.tallies[enforced]; requests > 0 && (!dry[dryPolicy] || t.requests.Load() > 0) {
		line := fmt.Sprintf("summary, %s: %s; %s", when, prose.Plural(requests, "request"),
			summaryText(enforced, t, estimate(&p.seen)))
		if n := p.waited.Load(); n > 0 {
			line += fmt.Sprintf("; %s waited", prose.Plural(n, "request"))
		}
		lines = append(lines, line+summaryEnd(t, &p.operators[0], &p.tallies[busy], "started", "refused"))
	}
	for _, k := range []kind{dryPolicy, dryRules} {
		t := &p.tallies[k]
		if t.requests.Load() == 0 && (!dry[k] || k == dryRules && dry[dryPolicy]) {
			continue
		}
		what := "dry run"
		if k == dryRules {
			what = "rules in dry run"
		}
		line := fmt.Sprintf("%s, %s: %s", what, when, summaryText(k, t, estimate(&p.seen)))
		if k == dryPolicy {
			line += summaryEnd(t, &p.operators[1], &p.tallies[dryBusy], "would have started", "would have refused")
		}
		lines = append(lines, line)
	}
	return lines
}

// summaryEnd returns the end of a summary: bans, and the refusals that no rule caused.
func summaryEnd(t *tally, operators *count, busy *tally, started, refused string) (end string) {
	if n := t.bans.Load(); n > 0 {
		end += fmt.Sprintf("; %s %s", prose.Plural(n, "ban"), started)
	}
	if n := operators.requests.Load(); n > 0 {
		of := operators.clients.amount()
		end += fmt.Sprintf("; bans by operators are not included: %s of %s", prose.Plural(n, "request"),
			clients(of.clients, of.about))
	}
	if n := busy.requests.Load(); n > 0 {
		of := busy.clients.amount()
		end += fmt.Sprintf("; a busy upstream %s %s of %s", refused, prose.Plural(n, "further request"),
			clients(of.clients, of.about))
	}
	return end
}

func summaryText(k kind, t *tally, saw int64) string {
	requests, gone := t.requests.Load(), t.clients.amount()
	if requests == 0 {
		none := "no request would have been"
		if k == enforced {
			none = "none was"
		}
		return fmt.Sprintf("%s refused or blocked; %s seen", none, clients(saw, saw > surelySeen))
	}
	saw = max(saw, gone.clients)
	outcome := k.outcome()
	if k == enforced && requests == 1 {
		outcome = "was refused or blocked"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s of %s (%s of %s) %s; ",
		prose.Plural(requests, "request"), clients(gone.clients, gone.about), prose.Percent(gone.clients, saw),
		about(saw, saw > surelySeen), outcome)
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
