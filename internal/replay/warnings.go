package replay

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"fairshare"
	"fairshare/internal/accesslog"
	"fairshare/internal/prose"
)

// warnings returns the properties of the logs that make the report less reliable.
func (rec *recorder) warnings(r *Report) []Warning {
	out := skipWarnings(r)
	if rec.judged == 0 {
		return out
	}
	share := func(n int64) float64 { return float64(n) / float64(rec.judged) }
	var forwarded bool
	for _, l := range rec.logs {
		forwarded = forwarded || l.has&accesslog.HasForwarded != 0
	}
	byNetwork := make([]int64, len(rec.opts.Known))
	var top *ranked[client]
	for i := range rec.clients.n {
		cl := rec.clients.at(i)
		addr := cl.facts.address()
		for k := range rec.opts.Known {
			if rec.bots.bot(cl.facts.bot).State == fairshare.Verified {
				break // its own address
			}
			if rec.opts.Known[k].Addrs.Contains(addr) {
				byNetwork[k] += int64(cl.count - cl.over)
				break
			}
		}
		if top == nil || cl.count > top.count {
			top = cl
		}
	}
	proxies := false
	for k, n := range byNetwork {
		if share(n) < 0.5 {
			continue
		}
		proxies = true
		known := &rec.opts.Known[k]
		w := Warning{Text: fmt.Sprintf("This log contains addresses of a proxy: %s of the requests come from %s.",
			prose.Share(share(n)), known.Name)}
		switch {
		case forwarded:
			w.Hint = fmt.Sprintf(
				"the log contains the forwarded address too: set clients.trusted_proxies: [%s] in the policy",
				known.Trust)
		default:
			w.Hint = "log the forwarded address (X-Forwarded-For) as well, and replay that log with clients.trusted_proxies set"
		}
		out = append(out, w)
	}
	if n := int64(top.count - top.over); !proxies && share(n) > 0.5 && rec.clients.n > 1 {
		out = append(out, rec.oneClientWarning(top, n))
	}
	if r.Restarts.Count > 0 {
		at := r.Restarts.At[0]
		out = append(out, Warning{
			Text: fmt.Sprintf(
				"The time went back by more than an hour %s, first at %s:%d (%s after %s): counters and bans were reset there.",
				prose.Times(r.Restarts.Count), prose.Printable(at.File), at.Line, at.Time.Format(stamp),
				at.Latest.Format(stamp)),
			Hint: "pass rotated logs as separate files: they are merged by time",
		})
	}
	if share(rec.backwards) > 0.01 && rec.furthest > int64(2e9) {
		out = append(out,
			Warning{Text: fmt.Sprintf(
				"%s lines (%s) are earlier than the line before, by up to %s; each was judged at the latest time so far.",
				prose.Number(rec.backwards), prose.Share(share(rec.backwards)),
				prose.Duration(time.Duration(rec.furthest))),
				Hint: "this is normal for servers that log the time of arrival when the answer ends, such as Apache and HAProxy"})
	}
	if w, needed := enginesWarning(r); needed {
		out = append(out, w)
	}
	if rec.dns != nil && rec.dns.full.Load() {
		out = append(out, Warning{
			Text: fmt.Sprintf("More than %s DNS lookups were needed: later ones were not made.",
				prose.Number(int64(rec.dns.most))),
			Hint: "replay a part of the log",
		})
	}
	var zoneless []string
	for _, l := range rec.logs {
		if l.note != nil {
			out = append(out, Warning{Text: l.note.Error()})
		}
		if !l.zoned && l.entries > 0 {
			zoneless = append(zoneless, prose.Printable(l.path))
		}
	}
	if n := len(zoneless); n > 0 {
		w := Warning{Text: fmt.Sprintf("%s has no time zone: its times are read as %s.", zoneless[0],
			zoneName(rec.opts.Log.Zone)), Hint: "--timezone sets another, such as --timezone Europe/Berlin"}
		if n > 1 {
			w.Text = fmt.Sprintf("%s and %d more have no time zone: their times are read as %s.", zoneless[0], n-1,
				zoneName(rec.opts.Log.Zone))
		}
		out = append(out, w)
	}
	return out
}

// oneClientWarning describes a client that sent n requests, most of all. Nobody may take a
// crawler for a proxy: a proxy that is trusted reports any address as the client's. So only an
// address with many user agents can be a proxy, and only one that is not a crawler's can be the
// operator's own.
func (rec *recorder) oneClientWarning(cl *ranked[client], n int64) Warning {
	w := Warning{Text: fmt.Sprintf("One address, %s, sent %s of the requests.", cl.facts.address(),
		prose.Share(part(n, rec.judged)))}
	bot := rec.bots.bot(cl.facts.bot)
	mixed := rec.has&accesslog.HasUserAgent == 0 || 2*int64(cl.facts.votes) < min(n, 1<<16-1)
	switch {
	case bot.Name != "": // one program may have many user agents
		w.Text = fmt.Sprintf("One address, %s, sent %s of the requests. Its user agent is that of %s (%s).",
			cl.facts.address(), prose.Share(part(n, rec.judged)), bot.Name, bot.State)
		if len(bot.Categories) > 0 && slices.Contains(ownPrograms, bot.Categories[0]) {
			w.Hint = "if it is your own program, such as a monitor or cron job, allow it by addr"
		}
	case mixed:
		w.Hint = "if it is your proxy, add it to clients.trusted_proxies and log the forwarded address"
	default:
		w.Hint = "if it is your own program, such as a monitor or cron job, allow it by addr"
	}
	return w
}

// ownPrograms are the categories of bots that operators run for their own sites.
var ownPrograms = []string{"monitor", "fetcher", "tool", "library"}

// enginesWarning warns of verified search engines that rules refuse. Operators' bans do
// not count: they are intended.
func enginesWarning(r *Report) (w Warning, needed bool) {
	var engines []string
	blocked := false
	for _, b := range r.Bots {
		if n := b.Refused + b.Blocked - b.byOperator; n > 0 && b.Category == "search" &&
			b.State == fairshare.Verified.String() {
			engines = append(engines, fmt.Sprintf("%s %s of %s", prose.Printable(b.Name), prose.Number(n),
				prose.Plural(b.Requests, "request")))
			blocked = blocked || b.Blocked > 0
		}
	}
	if engines == nil {
		return w, false
	}
	if more := len(engines) - 3; more > 0 {
		engines = append(engines[:3], fmt.Sprintf("and %d more", more))
	}
	w.Text = fmt.Sprintf("Verified search engines would be refused or blocked: %s.", strings.Join(engines, ", "))
	w.Hint = "if refused, they crawl less often"
	if blocked {
		w.Hint += "; if blocked, they drop the pages"
	}
	w.Hint += ": if that is not intended, put a rule with match: {bot: search} and allow: true above"
	return w, true
}

func skipWarnings(r *Report) []Warning {
	out := []Warning{}
	n := float64(r.Skipped) / float64(r.Lines)
	if r.Lines > 0 && n > 0.05 {
		w := Warning{Text: fmt.Sprintf("%s of the lines could not be judged; the reasons are below.", prose.Share(n)),
			Hint: "if the format was not recognized, set it with --format: a name, or the format string of the server"}
		if strings.HasPrefix(r.Reasons[0].Reason, accesslog.ReasonClient) {
			w.Hint = "have the server log addresses, not host names (Apache: HostnameLookups Off)"
		}
		out = append(out, w)
	}
	return out
}

func zoneName(zone *time.Location) string {
	if zone == nil {
		return "UTC"
	}
	return zone.String()
}
