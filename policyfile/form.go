package policyfile

import (
	"slices"
	"strings"
)

// warnForm warns of a condition on a form in a match whose methods have no body.

func (r *reader) warnForm(n *node) {
	form := find(n, "form")
	if form == nil {
		return
	}
	methods := items(find(n, "method"))
	if len(methods) > 0 && !slices.ContainsFunc(methods, func(item *node) bool {
		return isRegexp(item.text) || !slices.Contains([]string{"GET", "HEAD"}, strings.ToUpper(item.text))
	}) {
		r.warn(methods[0], "method: POST", "form: requests with method GET or HEAD send no form")
	}
}

// formsText says what happens to bodies whose fields are unknown.
const formsText = "forms: bodies up to 64KB are read before a request is judged. " +
	"The fields of longer, slower and ambiguous bodies are unknown: limits and blocks hold for them, allows do not."
