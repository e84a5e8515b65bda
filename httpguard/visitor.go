package httpguard

import (
	"net/http"
	"strings"
	"time"

	"fairshare"
	"fairshare/visitor"
)

// VisitorField is the response header by which the site says that a client is logged in:
// "member" or "guest". It never reaches the client.
const VisitorField = "Fairshare-Visitor"

// Values of VisitorField.
const (
	fieldMember = "member"
	fieldGuest  = "guest"
)

// A visitorChange says what the next cookie of a visitor has to hold.
type visitorChange struct {
	Waits time.Time     // since when it has been waiting for a turn; zero: it does not wait
	Raise time.Duration // a step was passed: it counts as known for at least so long
}

// wall returns the time of day at a time of Options.Now.
func (g *generation) wall(now time.Time) time.Time {
	if g.Wall == nil {
		return now
	}
	return g.Wall(now)
}

// readVisitor fills in the visitor of a request, and returns the value of the cookie.
// It removes the cookie from the request: neither rules nor the handler see it as a
// cookie of the site.
func (g *generation) readVisitor(req *fairshare.Request, r *http.Request) (cookie string) {
	req.Visitor = fairshare.Visitor{}
	if g.Visitors == nil && g.Members == nil {
		return ""
	}
	lines := r.Header["Cookie"]
	if len(lines) == 0 {
		return ""
	}
	if g.Visitors != nil {
		var sent bool
		if cookie, sent = visitor.Find(lines); sent {
			req.Visitor = g.Visitors.Read(cookie, req.Time, g.wall(req.Time)).Visitor
			if lines = visitor.Strip(lines); len(lines) > 0 {
				r.Header["Cookie"] = lines
			} else {
				delete(r.Header, "Cookie")
			}
		}
	}
	if g.Members != nil {
		if member := g.Members.Read(lines, req.Time, g.wall(req.Time)); member.ID != 0 {
			if req.Visitor.ID == member.ID { // the waiting room gave it this cookie
				member.Since, member.Waits = req.Visitor.Since, req.Visitor.Waits
			}
			req.Visitor = member
		}
	}
	return cookie
}

// setVisitor adds a visitor's cookie to the header of an answer. No cache may store
// that answer. It returns false if the visitor gets none. Then the program has no
// cookies, or the client's network has got too many.
func (g *generation) setVisitor(header http.Header, r *http.Request, req *fairshare.Request,
	change visitorChange) (fairshare.Visitor, bool) {
	return g.signVisitor(header, g.isSecure(r), req, req.Visitor,
		visitor.Change{Waits: change.Waits, Raise: change.Raise, Member: req.Visitor.Member})
}

// signVisitor adds the cookie of v. secure says whether the client uses TLS.
func (g *generation) signVisitor(header http.Header, secure bool, req *fairshare.Request, v fairshare.Visitor,
	change visitor.Change) (fairshare.Visitor, bool) {
	if g.Visitors == nil {
		return fairshare.Visitor{}, false
	}
	now := g.Now()
	value, signed, ok := g.Visitors.Sign(v, req, now, g.wall(now), change)
	if ok {
		header["Set-Cookie"] = append(header["Set-Cookie"], visitor.SetCookie(value, secure))
	}
	return signed, ok
}

// isSecure reports whether the client's connection uses TLS.
func (g *generation) isSecure(r *http.Request) bool {
	return r.TLS != nil || g.Secure != nil && g.Secure(r)
}

// wantsVisitor reports whether a refusal gives the client a cookie. A person at the
// limit of a shared address has a limit of its own from then on.
func (g *generation) wantsVisitor(req *fairshare.Request, r *http.Request, v *fairshare.Verdict) bool {
	return g.Visitors != nil && req.Visitor.ID == 0 && v.Action == fairshare.Refuse &&
		v.Ban == fairshare.NotBanned && isNavigation(r)
}

// isNavigation reports whether the client says that it loads a page with a browser. Any client can say
// so: it must not gain anything by it.
func isNavigation(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodPost {
		return false
	}
	if modes := r.Header["Sec-Fetch-Mode"]; len(modes) > 0 {
		return modes[0] == "navigate"
	}
	accept := r.Header["Accept"]
	return len(accept) > 0 && strings.HasPrefix(accept[0], "text/html")
}

// answerVisitor reads what the site says about the visitor, and removes it from the
// answer. It sets the cookie if there is a reason and no cache may store the answer.
func (x *Exchange) answerVisitor(header http.Header) {
	g := x.gen
	field, said := header[VisitorField]
	if said {
		delete(header, VisitorField)
	}
	if g.Visitors == nil || g.guard.Policy().DryRun {
		return
	}
	r := x.completion.HTTP
	if !said && !isNavigation(r) || !isUncacheable(header) {
		return
	}
	now := g.Now()
	found := g.Visitors.Read(x.visitorCookie, now, g.wall(now))
	change := visitor.Change{Member: found.Member}
	switch {
	case said && len(field) > 0 && field[len(field)-1] == fieldMember:
		change.Member = true
	case said && len(field) > 0 && field[len(field)-1] == fieldGuest:
		change.Member = false
	}
	if change.Member != found.Member || found.Renew ||
		found.ID == 0 && (g.Visitors.Always() || x.work.queued != nil && x.work.queued.queue.IsBusy() ||
			x.isNearLimit()) {
		req := fairshare.Request{Addr: x.completion.Addr, Via: x.completion.Via, Proxy: x.completion.Proxy,
			Owner: x.completion.Owner}
		g.signVisitor(header, x.secure, &req, found.Visitor, change)
	}
}

// finishHeader reads what the site says about the visitor if its handler wrote nothing, and
// removes it from the trailers of the answer.
func (x *Exchange) finishHeader() {
	res := &x.response
	switch header := res.w.Header(); {
	case res.own || res.hijacked || x.isWhole:
	case res.status.Load() == 0:
		x.answerVisitor(header)
	default:
		delete(header, VisitorField)
		delete(header, http.TrailerPrefix+VisitorField)
	}
}

// isNearLimit reports whether the client has used most of what an enforced limit allows.
func (x *Exchange) isNearLimit() (near bool) {
	x.peek(func(_ *fairshare.Rule, l *fairshare.Limit, t fairshare.Tally) {
		near = near || !l.Shared() && t.Used > l.Allowed()/nearParts*(nearParts-1)
	})
	return near
}

// nearParts: a client is near a limit if it has used all but one of so many parts.
const nearParts = 4

// isUncacheable reports whether no shared cache may store an answer (RFC 9111 §3).
// Without an explicit directive a cache may store it, and so may a cache that a field of
// its own addresses (RFC 9213), unless that says the same.
func isUncacheable(header http.Header) bool {
	if !forbidsStoring(header["Cache-Control"]) {
		return false
	}
	for name, lines := range header {
		switch {
		case name == "X-Accel-Expires": // nginx
			if len(lines) != 1 || lines[0] != "0" {
				return false
			}
		case name == "Surrogate-Control", name == "Edge-Control", strings.HasSuffix(name, "-Cache-Control"):
			if !forbidsStoring(lines) {
				return false
			}
		}
	}
	return true
}

// forbidsStoring reports whether a directive forbids shared caches to store an answer.
func forbidsStoring(lines []string) bool {
	for _, line := range lines {
		for directive := range strings.SplitSeq(line, ",") {
			directive = strings.Trim(directive, " \t")
			if strings.EqualFold(directive, "no-store") || strings.EqualFold(directive, "private") {
				return true
			}
		}
	}
	return false
}
