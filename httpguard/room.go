package httpguard

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"fairshare"
	"fairshare/waitingroom"
)

// wantsPage reports whether a request without a turn gets the page of the waiting
// room: a browser loads a page with it and shows it at once. The client decides
// that, and gains only another body.
func (g *generation) wantsPage(r *http.Request, req *fairshare.Request) bool {
	if g.WaitingRoom == nil || r.Method != http.MethodGet || !isNavigation(r) || req.Bot.Name != "" ||
		req.Path == robotsPath || preferred(r.Header["Accept"]) != htmlBody {
		return false
	}
	if dest := r.Header["Sec-Fetch-Dest"]; len(dest) > 0 {
		switch dest[0] {
		case "document", "iframe", "frame":
		default:
			return false
		}
	}
	return !isPrefetch(r.Header["Sec-Purpose"]) && !isPrefetch(r.Header["Purpose"]) &&
		!isScripted(r.Header["X-Requested-With"])
}

// isScripted reports whether a script says that it sent the request. Web views of Android name their program in
// that header.
func isScripted(requestedWith []string) bool {
	return len(requestedWith) > 0 && strings.EqualFold(requestedWith[0], "XMLHttpRequest")
}

// isPrefetch reports whether a browser loads a page that nobody has asked for yet.
func isPrefetch(purpose []string) bool {
	return len(purpose) > 0 && strings.HasPrefix(purpose[0], "prefetch")
}

// inRoom reports whether the waiting room answered a request that the guard let
// through: a passed step, or the first request of a client that Options.RoomFirst
// holds.
func (g *generation) inRoom(w http.ResponseWriter, r *http.Request, vis *visit, v *fairshare.Verdict) bool {
	room, req := g.WaitingRoom, &vis.req
	if room == nil || v.Action != fairshare.Allow || g.guard.Policy().DryRun {
		return false
	}
	if req.Path == waitingroom.StepPath && room.HasStep() {
		g.reportFailed(r, g.guard.Settle(r.Context(), v, fairshare.Outcome{Time: g.Now(), Status: http.StatusSeeOther}))
		g.answerStep(w, r, req)
		g.reportAnswered(vis, v, func(a *Access) { a.Status = http.StatusSeeOther })
		return true
	}
	if g.RoomFirst == nil || req.Visitor.ID != 0 || r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	held := true // also if a hook panics
	defer func() {
		if held {
			g.reportFailed(r, g.guard.Settle(r.Context(), v,
				fairshare.Outcome{Time: g.Now(), Part: fairshare.SettleNotForwarded}))
		}
	}()
	if !g.RoomFirst(req) {
		held = false
		return false
	}
	// A client that gets no cookie could never come back with one: it waits for its turn like all others.
	signed, ok := g.setVisitor(w.Header(), r, req, visitorChange{Waits: req.Time})
	if !ok {
		held = false
		return false
	}
	g.reportDryRun(vis, v)
	NoUpstreamAnswer(w) // for a guard around this one
	if g.wantsPage(r, req) {
		g.sendPage(w, r, vis, fairshare.AttackMode, 0, signed)
	} else {
		req.Visitor = signed // a refusal sets no second cookie
		wait := waitVerdict(fairshare.AttackMode, time.Second)
		g.refuse(w, r, vis, &wait)
	}
	return true
}

// waitVerdict returns the verdict about a request that has to wait: rule is BusyUpstream or AttackMode.
func waitVerdict(rule *fairshare.Rule, wait time.Duration) fairshare.Verdict {
	return fairshare.Verdict{Finding: fairshare.Finding{Action: fairshare.Refuse, Rule: rule, Wait: wait}}
}

// sendRoom sends the page of the waiting room to a visitor, with a cookie that
// keeps its place.
func (g *generation) sendRoom(w http.ResponseWriter, r *http.Request, vis *visit, expected time.Duration) {
	waits := vis.req.Visitor.Waits
	if waits.IsZero() {
		waits = vis.req.Time
	}
	signed, _ := g.setVisitor(w.Header(), r, &vis.req, visitorChange{Waits: waits})
	g.sendPage(w, r, vis, fairshare.BusyUpstream, expected, signed)
}

// sendPage sends the page of the waiting room. The visitor is as its new cookie says;
// without a cookie it is zero.
func (g *generation) sendPage(w http.ResponseWriter, r *http.Request, vis *visit, rule *fairshare.Rule,
	expected time.Duration, signed fairshare.Visitor) {
	room, req, now := g.WaitingRoom, &vis.req, g.Now()
	waited := max(now.Sub(req.Time), 0)
	visit := waitingroom.Visit{
		Languages: r.Header["Accept-Language"], Waits: signed.ID != 0, Contact: g.answers.html,
		Reference: g.reference(vis, rule), Now: g.wall(now),
	}
	if signed.ID != 0 {
		waited = max(now.Sub(signed.Waits), 0)
		if raise := room.Raise(); now.Sub(signed.Since) < raise {
			visit.Visitor, visit.Target = signed.ID, r.URL.RequestURI()
		}
	}
	reload := room.Reload(expected, waited, uint8(rand.Uint32()), visit.Visitor != 0)
	visit.Wait = max(expected, time.Duration(reload)*time.Second)
	if g.Refused != nil {
		v := waitVerdict(rule, time.Duration(reload)*time.Second)
		vis.report = Report{Request: req, HTTP: r, Finding: v.Finding, Status: http.StatusServiceUnavailable,
			RetryAfter: int64(reload), ID: visit.Reference, WaitingRoom: true}
		g.Refused(&vis.report)
	}
	body, language := room.AppendPage(vis.buf[:0], &visit)
	vis.buf = body
	header := w.Header()
	header["Cache-Control"], header["X-Robots-Tag"] = noStore, noIndex
	header["Content-Type"], header["Content-Language"] = contentTypes[htmlBody].values, language
	header["Content-Security-Policy"] = room.ContentSecurityPolicy()
	numbers := [...]string{strconv.Itoa(reload), strconv.Itoa(len(body))}
	header["Refresh"], header["Retry-After"], header["Content-Length"] = numbers[:1], numbers[:1], numbers[1:]
	w.WriteHeader(http.StatusServiceUnavailable)
	w.Write(body)
	if g.Answered != nil {
		v := waitVerdict(rule, 0)
		g.reportAnswered(vis, &v, func(a *Access) {
			a.Status, a.Bytes, a.WaitingRoom = http.StatusServiceUnavailable, int64(len(body)), true
			a.Waited = max(now.Sub(vis.arrived), 0)
		})
	}
}

var noIndex = []string{"noindex"}

// maxStepForm is the most bytes of the form of a step.
const maxStepForm = 16 << 10

// answerStep raises the standing of a visitor that has passed the step, and sends
// its browser back to the page that it wanted. A form that is not right changes
// nothing.
func (g *generation) answerStep(w http.ResponseWriter, r *http.Request, req *fairshare.Request) {
	NoUpstreamAnswer(w) // for a guard around this one
	to := "/"
	if r.Method == http.MethodPost {
		http.NewResponseController(w).SetReadDeadline(time.Now().Add(unreadTime)) // an error: no connection below
		r.Body = http.MaxBytesReader(w, r.Body, maxStepForm)
		if err := r.ParseForm(); err == nil {
			form := r.PostForm
			to = waitingroom.ReturnPath(form.Get("to"))
			if g.WaitingRoom.Passed(req.Visitor.ID, form.Get("challenge"), form.Get("answer"), g.wall(g.Now())) {
				g.setVisitor(w.Header(), r, req,
					visitorChange{Waits: req.Visitor.Waits, Raise: g.WaitingRoom.Raise()})
			}
		}
	}
	header := w.Header()
	header["Cache-Control"], header["X-Robots-Tag"] = noStore, noIndex
	header["Location"] = []string{to}
	w.WriteHeader(http.StatusSeeOther)
}
