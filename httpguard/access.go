package httpguard

import (
	"net/http"
	"time"

	"fairshare"
)

// An Access describes one request with its answer, for an access log. Texts that come from the
// client are as received: escape them.
type Access struct {
	Client
	HTTP   *http.Request // as received; its body may be closed, its context ended
	Time   time.Time     // of arrival
	Status int           // that the client got; 0 if it got no answer
	Bytes  int64         // of the body of the answer

	// The verdict. Of a request that passed because of a dry run it is what would have happened.
	Action fairshare.Action // Undecided: the guard could not judge the request
	DryRun bool             // the request passed, whatever Action is
	Rule   *fairshare.Rule  // that decided; nil if no rule did; it must not be changed
	ID     string           // the reference shown to the client; "" if it was not refused
	Gone   bool             // the client left while the request waited

	WaitingRoom bool // the client got the page of Options.WaitingRoom

	Waited time.Duration // for other requests to end and for a turn
	Took   time.Duration // as Completion.Took
	CPU    time.Duration // as Completion.CPU
	Cost   int64         // units that the handler reported; below 0: none
}

// noteAccess begins an Access of a request that is judged.
func (g *generation) noteAccess(vis *visit, v *fairshare.Verdict) Access {
	req := &vis.req
	a := Access{
		Client: Client{Addr: req.Addr, Proxy: req.Proxy, Via: req.Via, Bot: req.Bot},
		HTTP:   vis.report.HTTP, Time: vis.arrived, Action: v.Action, DryRun: v.DryRun, Rule: v.Rule, Cost: -1,
		Waited: max(req.Time.Sub(vis.arrived), 0), // Options.Now may step back
	}
	if v.Action == fairshare.Allow && v.DryRunFinding.Action != fairshare.Undecided {
		a.Action, a.DryRun, a.Rule = v.DryRunFinding.Action, true, v.DryRunFinding.Rule
	}
	if a.Action == fairshare.Refuse || a.Action == fairshare.Block {
		a.ID = g.reference(vis, a.Rule)
	} else {
		a.DryRun = false
	}
	return a
}

// reportAnswered calls Options.Answered about a request that did not reach the handler. change
// completes its Access.
func (g *generation) reportAnswered(vis *visit, v *fairshare.Verdict, change func(*Access)) {
	if g.Answered == nil {
		return
	}
	a := g.noteAccess(vis, v)
	change(&a)
	g.Answered(&a)
}

// reportAnswered calls Options.Answered about a request that reached the handler and has ended.
func (x *Exchange) reportAnswered() {
	a := x.access
	if a == nil {
		return
	}
	x.access = nil
	a.Status, a.Bytes = int(x.response.status.Load()), x.response.bytes.Load()
	if a.Status == 0 {
		a.Status = x.response.outcome()
	}
	x.work.mu.Lock()
	a.Took, a.CPU, a.Cost = x.completion.Took, x.completion.CPU, x.work.cost
	x.work.mu.Unlock()
	x.gen.Answered(a)
}
