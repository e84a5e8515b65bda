package replay

import (
	"fmt"
	"strings"
	"time"

	"fairshare"
	"fairshare/internal/accesslog"
)

// warnings returns what makes the report worth less than it looks.
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
		w := Warning{Text: fmt.Sprintf("This log holds proxy addresses: %s of the requests come from %s.", percent(share(n)), known.Name)}
		switch {
		case forwarded:
			w.Hint = fmt.Sprintf("the log holds the forwarded address too: set clients.trusted_proxies: [%s] in the policy", known.Trust)
		default:
			w.Hint = "log the forwarded address (X-Forwarded-For) as well, and replay that log with clients.trusted_proxies set"
		}
		out = append(out, w)
	}
	if n := int64(top.count - top.over); !proxies && share(n) > 0.5 && rec.clients.n > 1 {
		out = append(out, Warning{
			Text: fmt.Sprintf("One address, %s, sent %s of the requests.", top.facts.address(), percent(share(n))),
			Hint: "if it is a proxy of yours, name it in clients.trusted_proxies and log the forwarded address; if it is your own monitor or cron job, allow it by addr",
		})
	}
	if r.Restarts.Count > 0 {
		at := r.Restarts.At[0]
		out = append(out, Warning{
			Text: fmt.Sprintf("Time ran back by more than an hour %s, first at %s:%d (%s after %s): counters and bans began afresh there.",
				times(r.Restarts.Count), printable(at.File), at.Line, at.Time.Format(stamp), at.Latest.Format(stamp)),
			Hint: "hand over rotated logs as files of their own: they are merged by time",
		})
	}
	if share(rec.backwards) > 0.01 && rec.furthest > int64(2e9) {
		out = append(out, Warning{Text: fmt.Sprintf("%s lines (%s) are earlier than the line before, by up to %s; each was judged at the latest time so far.",
			count(rec.backwards), percent(share(rec.backwards)), roughly(time.Duration(rec.furthest))),
			Hint: "usual where a line is written when the answer ends and tells when the request came, as with Apache and HAProxy"})
	}
	if w, needed := enginesWarning(r); needed {
		out = append(out, w)
	}
	if rec.asks != nil && rec.asks.full.Load() {
		out = append(out, Warning{
			Text: fmt.Sprintf("More than %s questions to the DNS came up: what came later was not asked.", count(int64(rec.asks.most))),
			Hint: "replay a part of the log",
		})
	}
	var zoneless []string
	for _, l := range rec.logs {
		if l.note != nil {
			out = append(out, Warning{Text: l.note.Error()})
		}
		if !l.zoned && l.entries > 0 {
			zoneless = append(zoneless, printable(l.path))
		}
	}
	if n := len(zoneless); n > 0 {
		w := Warning{Text: fmt.Sprintf("%s tells no time zone: its times are taken as %s.", zoneless[0], zoneName(rec.opts.Log.Zone)), Hint: "--timezone says otherwise, as in --timezone Europe/Berlin"}
		if n > 1 {
			w.Text = fmt.Sprintf("%s and %d more tell no time zone: their times are taken as %s.", zoneless[0], n-1, zoneName(rec.opts.Log.Zone))
		}
		out = append(out, w)
	}
	return out
}

// enginesWarning tells of verified search engines that rules turn away. What an
// operator has banned is meant.
func enginesWarning(r *Report) (w Warning, needed bool) {
	var gone []string
	blocked := false
	for _, b := range r.Bots {
		if n := b.Refused + b.Blocked - b.meant; n > 0 && b.Category == "search" && b.State == fairshare.Verified.String() {
			gone = append(gone, fmt.Sprintf("%s %s of %s", printable(b.Name), count(n), plural(b.Requests, "request")))
			blocked = blocked || b.Blocked > 0
		}
	}
	if gone == nil {
		return w, false
	}
	if more := len(gone) - 3; more > 0 {
		gone = append(gone[:3], fmt.Sprintf("and %d more", more))
	}
	w.Text = fmt.Sprintf("Verified search engines would be turned away: %s.", strings.Join(gone, ", "))
	w.Hint = "refused, they come less often"
	if blocked {
		w.Hint += "; blocked, they drop the pages"
	}
	w.Hint += ": if that is not meant, put a rule with match: {bot: search} and allow: true above"
	return w, true
}

func skipWarnings(r *Report) []Warning {
	out := []Warning{}
	n := float64(r.Skipped) / float64(r.Lines)
	if r.Lines > 0 && n > 0.05 {
		w := Warning{Text: fmt.Sprintf("%s of the lines could not be judged; the reasons are below.", percent(n)), Hint: "if the format was not recognised, name it with --format, or give the server's own format string"}
		if strings.HasPrefix(r.Reasons[0].Reason, "client is no address") {
			w.Hint = "have the server log addresses, not host names (Apache: HostnameLookups Off)"
		}
		out = append(out, w)
	}
	return out
}
