package policyfile

import (
	"errors"
	"fmt"

	"fairshare"
)

// CheckForwardAuth returns an error for a policy that forward-auth cannot enforce: another server
// passes the requests on, so the site's answers are not known and no request waits. With logged,
// the log of that server has the status, the bytes and the time of each answer. The error has
// a fault for each place, see [Faults]. The built-in rules are left out; without answers some of
// them refuse nothing.
func (f *File) CheckForwardAuth(logged bool) error {
	errs := make([]error, 0, len(f.answerRules))
	for _, fault := range f.answerRules {
		if !logged || !fault.logged {
			errs = append(errs, fault.ParseError)
		}
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

// An answerFault is a place in a policy that depends on the site's answers.
type answerFault struct {
	*ParseError
	logged bool // a log has what it depends on
}

// noteAnswers notes what CheckForwardAuth returns.
func (r *reader) noteAnswers() {
	logged := false
	note := func(at *node, hint, format string, args ...any) {
		r.file.answerRules = append(r.file.answerRules, answerFault{&ParseError{File: r.file.Name, Line: at.line,
			Column: at.column, Source: r.source(at.line), Hint: hint,
			Err: errors.New(printable(fmt.Sprintf(format, args...)))}, logged})
	}
	const useServe = "use fairshare serve, or remove it"
	const useLog = "--settle-from LOG reads them from the log of the server in front; otherwise use fairshare serve, " +
		"or remove it"
	if r.file.Share != nil {
		note(firstNode(find(r.root, "share"), r.root), useServe,
			"share: fairshare auth does not pass requests on, so none can wait for a turn")
	}
	for i := range r.file.Policy.Rules {
		rule, at := &r.file.Policy.Rules[i], &r.rules[i]
		if at.builtIn {
			continue
		}
		if rule.Limit != nil && needsAnswers(rule.Limit) {
			what := "a limit of " + rule.Limit.Resource.String()
			if rule.Limit.When == fairshare.Busy {
				what = "when: busy"
			}
			hint := useServe
			if logged = isLogged(rule.Limit); logged {
				hint = useLog
			}
			note(firstNode(at.limit, at.node), hint,
				"%s: %s needs the site's answers, which fairshare auth does not see", quote(rule.Name), what)
			logged = false
		}
		if rule.Refund != (fairshare.StatusSet{}) {
			logged = true
			note(firstNode(find(at.node, "refund"), at.node), useLog,
				"%s: refund depends on the site's answers, which fairshare auth does not see", quote(rule.Name))
			logged = false
		}
		if rule.Answer != nil && rule.Answer.Status >= 200 && rule.Answer.Status < 300 {
			note(firstNode(find(at.node, "answer"), at.node), "status: 429",
				"%s: with the status %d another server would let the request pass", quote(rule.Name), rule.Answer.Status)
		}
	}
}
