package livepolicy

import (
	"context"
	"net/http"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/internal/amount"
	"fairshare/internal/journal"
	"fairshare/internal/registrar"
	"fairshare/internal/reports"
	"fairshare/registry"
)

// A recorder hands reports to the census, the registry and the journal.
type recorder struct{ *Policy }

func (p recorder) Passed(g *reports.Passages) {
	p.census.Passed(g, g.Reported)
	p.state.recordPassed(g)
}

func (p recorder) Refused(g *reports.Refusals) {
	p.census.Refused(g)
	p.state.recordRefused(g)
	if p.journal != nil {
		entry := p.journalEntry(g)
		p.journal.Add(&entry)
	}
}

// Record also hands reports to other recorders. Call it before the first request.
func (p *Policy) Record(to ...reports.Recorder) { p.reports.Use(to...) }

// UseJournal logs refusals in a journal. Call it before the first request. watch says that the requests are read
// from a log.
func (p *Policy) UseJournal(j *journal.Journal, watch bool) { p.journal, p.watches = j, watch }

// FlushReports hands what was reported so far to all that count it and log it. Otherwise this takes up to
// [reports.Delay]. Call it before reading what recorders know.
func (p *Policy) FlushReports() { p.reports.Flush() }

// refused records a refusal. If a ban began or is in force, it waits until the ban is on disk.
func (p *Policy) refused(r *httpguard.Report) {
	p.reports.Refused(r)
	if !r.DryRun {
		p.fleets.Refused(r.Request.Fleet)
		p.state.settle(&r.Finding)
	}
}

// settle waits until a ban is on disk, for at most half a second.
func (s *State) settle(f *fairshare.Finding) {
	if s.registrar != nil && f.Ban != fairshare.NotBanned && f.Rule != fairshare.OperatorBan {
		s.registrar.Settle(context.Background())
	}
}

// recordPassed counts requests that passed.
func (s *State) recordPassed(g *reports.Passages) {
	if s.registrar == nil {
		return
	}
	all := registrar.Request{Addr: g.Addr, Via: g.Via, Bot: g.Bot, UserAgent: g.UserAgent, Fleet: g.Fleet, At: g.Last,
		First: g.First, N: int64(len(g.Requests))}
	for _, p := range g.Requests {
		all.Took, all.CPU, all.Bytes = all.Took+max(p.Took, 0), all.CPU+max(p.CPU, 0), all.Bytes+max(p.Bytes, 0)
		if p.Status >= http.StatusBadRequest && p.Status < http.StatusInternalServerError {
			all.Errors++
		}
	}
	s.registrar.Passed(all)
}

// recordRefused keeps the story of refusals.
func (s *State) recordRefused(g *reports.Refusals) {
	if s.registrar == nil {
		return
	}
	latest := g.Latest()
	story := registry.Story{
		ID: g.ID, Action: g.Action, Ban: g.Ban, DryRun: g.DryRun, Status: g.Status,
		Method: g.Method, Host: g.Host, Path: latest.Path, Rule: g.RuleName(),
	}
	if g.Action == fairshare.Refuse || g.Ban == fairshare.BanStarted {
		story.Until = latest.Time.Add(latest.Wait)
	}
	if g.Ban != fairshare.BanInForce { // the ban is the reason then
		story.Robots = latest.Robots
	}
	if lim := g.Limit; lim != nil {
		story.By, story.Resource = amount.Key(lim.By), lim.Resource.String()
		story.Used, story.Allowed, story.Window = latest.Tally.Spent(), lim.Allowed(), lim.Window
		if g.Ceiling {
			story.By = ceilingKey
		}
	}
	s.registrar.Refused(registrar.Refusal{
		Request: registrar.Request{Addr: g.Addr, Via: g.Via, Bot: g.Bot, UserAgent: g.UserAgent, Fleet: g.Fleet,
			At: g.Last, First: g.First, N: g.N},
		Story: story,
	})
}
