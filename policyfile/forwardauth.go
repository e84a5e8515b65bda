package policyfile

import (
	"errors"
	"fmt"

	"fairshare"
)

// CheckForwardAuth returns an error for a policy that forward-auth cannot enforce: another server
// passes the requests on, so the site's answers are not known and no request waits. With logged,
// the log of that server has the status, the bytes and the time of each answer. With served,
// fairshare passes on other requests itself and judges them by the same policy. Then rules that only
// serve can enforce are left out. The error has a fault for each place, see [Faults]. The
// built-in rules are left out; without answers some of them refuse nothing.
func (f *File) CheckForwardAuth(logged, served bool) error {
	errs := make([]error, 0, len(f.answerRules))
	for _, fault := range f.answerRules {
		if fault.source == fromLog && logged || fault.source == fromServe && served {
			continue
		}
		errs = append(errs, fault.ParseError)
	}
	return errors.Join(errs...)
}

// IdleInForwardAuth returns how many rules count what forward-auth does not know of answers, and so
// refuse nothing. logged is that of [File.CheckForwardAuth].
func (f *File) IdleInForwardAuth(logged bool) (n int) {
	for i := range f.Policy.Rules {
		if lim := f.Policy.Rules[i].Limit; lim != nil && needsAnswers(lim) && !(logged && isLogged(lim)) {
			n++
		}
	}
	return n
}

func needsAnswers(lim *fairshare.Limit) bool {
	return lim.Resource.Held() || lim.Resource.CountsAnswers() || lim.Resource == fairshare.Concurrent ||
		lim.When == fairshare.Busy
}

// isLogged reports whether an access log has what a limit counts.
func isLogged(lim *fairshare.Limit) bool {
	switch lim.Resource {
	case fairshare.Bytes, fairshare.Errors, fairshare.Time:
		return lim.When != fairshare.Busy
	}
	return false
}

// An answerFault is a place in a policy that forward-auth cannot obey.
type answerFault struct {
	*ParseError
	source answerSource
}

// An answerSource provides what a rule depends on.
type answerSource uint8

const (
	fromNothing answerSource = iota
	fromLog                  // the log of the server in front
	fromServe                // fairshare, if it passes requests on itself
)

// noteAnswers notes what CheckForwardAuth returns.
func (r *reader) noteAnswers() {
	hints := [...]string{
		fromNothing: "status: 429",
		fromLog: "--settle-from LOG reads them from the log of the server in front; otherwise let all requests go " +
			"through fairshare serve, or remove it",
		fromServe: "let all requests go through fairshare serve, or remove it",
	}
	note := func(at *node, source answerSource, format string, args ...any) {
		r.file.answerRules = append(r.file.answerRules, answerFault{&ParseError{File: r.file.Name, Line: at.line,
			Column: at.column, Source: r.source(at.line), Hint: hints[source],
			Err: errors.New(printable(fmt.Sprintf(format, args...)))}, source})
	}
	if r.file.Share != nil {
		note(firstNode(find(r.root, "share"), r.root), fromServe,
			"share: with forward-auth another server passes requests on, so none can wait for a turn")
	}
	for i := range r.file.Policy.Rules {
		rule, at := &r.file.Policy.Rules[i], &r.rules[i]
		if at.builtIn {
			continue
		}
		if lim := rule.Limit; lim != nil && needsAnswers(lim) {
			what, source := "a limit of "+lim.Resource.String(), fromServe
			if lim.When == fairshare.Busy {
				what = "when: busy"
			}
			if isLogged(lim) {
				source = fromLog
			}
			note(firstNode(at.limit, at.node), source,
				"%s: %s needs the site's answers, which forward-auth does not see", quote(rule.Name), what)
		}
		if rule.Refund != (fairshare.StatusSet{}) {
			note(firstNode(find(at.node, "refund"), at.node), fromLog,
				"%s: refund depends on the site's answers, which forward-auth does not see", quote(rule.Name))
		}
		if rule.Answer != nil && rule.Answer.Status >= 200 && rule.Answer.Status < 300 {
			note(firstNode(find(at.node, "answer"), at.node), fromNothing,
				"%s: with the status %d another server would let the request pass", quote(rule.Name), rule.Answer.Status)
		}
	}
}
