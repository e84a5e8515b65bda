package policyfile

import (
	"slices"
	"strings"

	"fairshare"
)

// attemptWords are the values of match: {attempt: …}.
var attemptWords = []string{fairshare.LoginAttempt.String(), fairshare.CommentAttempt.String(),
	fairshare.CredentialsAttempt.String(), "excess", "known"}

// attempts reads the values of attempt.
func (r *reader) attempts(n *node) []string {
	list := []string{}
	for _, item := range r.list(n, "attempt") {
		if word := r.choice(item, "attempt", attemptWords, map[string]string{
			"log in": "login", "logins": "login", "password": "login", "guess": "login",
			"auth": "credentials", "authorization": "credentials",
			"basic": "credentials", "bearer": "credentials",
			"comments": "comment", "spam": "comment", "form": "comment", "post": "comment", "signup": "comment",
			"stranger": "excess", "attacked": "excess", "attack": "excess", "over": "excess", "member": "known",
		}); word != "" {
			list = append(list, word)
		}
	}
	return list
}

// byAttempt reports whether a match looks at attempts.
func byAttempt(m *fairshare.Match) bool {
	return m.Attempt != nil || slices.ContainsFunc(m.Not, func(not fairshare.Match) bool { return byAttempt(&not) })
}

// UsesAttempts reports whether a rule looks at attempts to log in or to send a form, or
// counts those that fail.
func (f *File) UsesAttempts() bool {
	return slices.ContainsFunc(f.Policy.Rules, func(r fairshare.Rule) bool {
		return byAttempt(&r.Match) || r.Ban != nil && r.Ban.Unless != nil && byAttempt(r.Ban.Unless) ||
			r.Limit != nil && r.Limit.Resource == fairshare.Failures
	})
}

// attemptText describes the requests for which the words of a condition hold.
func attemptText(words []string) string {
	var parts []string
	for _, word := range words {
		switch word {
		case "login":
			parts = append(parts, "for a login")
		case "comment":
			parts = append(parts, "for a comment")
		case "credentials":
			parts = append(parts, "with Basic or Bearer credentials")
		case "excess":
			parts = append(parts, "beyond the budget of a login or form under attack")
		case "known":
			parts = append(parts, "of a client that has logged in before")
		}
	}
	return strings.Join(parts, " or ")
}
