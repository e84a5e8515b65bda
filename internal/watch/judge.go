package watch

import (
	"context"
	"net/netip"
	"strings"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/internal/accesslog"
	"fairshare/internal/livepolicy"
	"fairshare/internal/replay"
)

const (
	chunkLines = 50              // lines whose positions are stored together, before they are judged
	tooLate    = 5 * time.Minute // a line that is so much earlier than the latest is not judged
)

// A judge judges lines with the policy in force, and reports as the handler of a server
// does.
type judge struct {
	policy *livepolicy.Policy
	live   *replay.Live
	guard  httpguard.Options
	report httpguard.Report
	passed httpguard.Completion
}

// newJudge returns the judge of a runtime.
func newJudge(p *livepolicy.Policy, rt *livepolicy.Runtime) *judge {
	j := &judge{policy: p, guard: p.GuardOptions(rt, httpguard.Options{})}
	opts := liveOptions(p, rt, &j.guard)
	j.live = replay.NewLive(replay.LiveOptions{Options: opts, Guard: rt.Guard, Fleets: j.guard.Fleets,
		Browser: j.guard.Browser, Logins: j.guard.Logins, Judged: j.judged})
	return j
}

// liveOptions returns what judging a line needs.
func liveOptions(p *livepolicy.Policy, rt *livepolicy.Runtime, guard *httpguard.Options) replay.Options {
	return replay.Options{
		Policy: &rt.File.Policy,
		Client: func(peer netip.Addr, forwarded string) (addr netip.Addr, proxy bool, via netip.Addr) {
			found := p.LogClient(rt, peer, forwarded)
			return found.Addr, found.Proxy, found.Via
		},
		Bot: guard.Bot, Owner: guard.Owner, Lookups: guard.Lookups, Override: guard.Override,
		Resolve: func(context.Context, netip.Addr, string) {}, // the DNS is asked in the background
	}
}

// judged reports a line. Texts are copied: they share memory with a block of the log.
func (j *judge) judged(line *replay.Judged) {
	req, v := *line.Request, line.Verdict
	req.Method, req.Host = strings.Clone(req.Method), strings.Clone(req.Host)
	req.Path, req.Query, req.UserAgent = strings.Clone(req.Path), strings.Clone(req.Query), strings.Clone(req.UserAgent)
	refused := v.Action == fairshare.Refuse || v.Action == fairshare.Block
	if refused {
		j.refuse(&req, &v.Finding, line, v.DryRun)
	}
	if v.DryRunFinding.Action != fairshare.Undecided {
		j.refuse(&req, &v.DryRunFinding, line, true)
	}
	if refused && !v.DryRun || j.guard.Passed == nil {
		return
	}
	out := line.Outcome
	j.passed = httpguard.Completion{
		Client: httpguard.Client{Addr: req.Addr, Proxy: req.Proxy, Via: req.Via, Bot: req.Bot},
		Method: req.Method, Path: req.Path, UserAgent: req.UserAgent, Time: req.Time, Took: out.Took, CPU: out.CPU,
		Status: out.Status, Bytes: out.Bytes, Owner: req.Owner, Fleet: req.Fleet,
	}
	j.guard.Passed(&j.passed)
}

func (j *judge) refuse(req *fairshare.Request, f *fairshare.Finding, line *replay.Judged, dryRun bool) {
	j.report = httpguard.Report{Request: req, Finding: *f, DryRun: dryRun, Status: line.Entry.Status,
		ID: j.policy.Reference(req, f.Rule)}
	if f.Action == fairshare.Refuse {
		j.report.RetryAfter = int64((f.Wait + time.Second - 1) / time.Second)
	}
	j.guard.Refused(&j.report)
}

// A lateness is how late lines were judged.
type lateness struct {
	worst, future time.Duration // since the last report
	late          int64         // lines that were too late
}

// next takes the earliest lines of all sources, at most chunkLines, into chunk. It stops
// where a source has to be read again.
func next(sources []source, chunk []accesslog.Entry) []accesslog.Entry {
	type head struct {
		source
		lines []accesslog.Entry
		more  bool
		taken int
	}
	var heads []head
	for _, s := range sources {
		if lines, more := s.pending(); len(lines) > 0 {
			heads = append(heads, head{source: s, lines: lines, more: more})
		}
	}
	for len(chunk) < chunkLines {
		first := -1
		for i := range heads {
			h := &heads[i]
			if h.taken < len(h.lines) &&
				(first < 0 || h.lines[h.taken].Time.Before(heads[first].lines[heads[first].taken].Time)) {
				first = i
			}
		}
		if first < 0 {
			break
		}
		h := &heads[first]
		chunk = append(chunk, h.lines[h.taken])
		if h.taken++; h.taken == len(h.lines) && h.more {
			break
		}
	}
	for i := range heads {
		if heads[i].taken > 0 {
			heads[i].take(heads[i].taken)
		}
	}
	return chunk
}
