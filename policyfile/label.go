package policyfile

import (
	"fmt"
	"strings"
)

const maxLabel = 40 // bytes

// labelLetters reports whether s has only characters that labels may have.
func labelLetters(s string) bool {
	return strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == ""
}

// ParseLabel reads the name of a label, in any case, and returns it in lower
// case: 1 to 40 letters a to z, digits, dots, "_" and "-". An error is a
// [*LabelError].
func ParseLabel(s string) (string, error) {
	if s == "" || len(s) > maxLabel || !labelLetters(s) {
		return "", &LabelError{Text: s}
	}
	return strings.ToLower(s), nil
}

// A LabelError is about a text that cannot be the name of a label.
type LabelError struct{ Text string }

func (e *LabelError) Error() string {
	if len(e.Text) > maxLabel && labelLetters(e.Text) {
		return fmt.Sprintf("%s is longer than %d letters", printable(quote(e.Text)), maxLabel)
	}
	return printable(quote(e.Text)) + " is not a label name"
}

// Hint returns a fix.
func (e *LabelError) Hint() string {
	name := strings.Join(strings.Fields(e.Text), "-")
	if meant, err := ParseLabel(name); err == nil {
		return fmt.Sprintf("did you mean %q?", meant)
	}
	return fmt.Sprintf("use up to %d letters a to z, digits, dots, _ and -", maxLabel)
}

// labels reads names of labels and regexps, and returns names in lower case.
func (r *reader) labels(n *node) []string {
	list := []string{}
	for _, item := range r.list(n, "label") {
		s, ok := r.pattern(item, "label")
		if !ok {
			continue
		}
		if isRegexp(s) {
			list = append(list, s)
			continue
		}
		name, err := ParseLabel(s)
		if err != nil {
			r.fault(item, labelHint(s, err.(*LabelError)), "label: %v", err)
			continue
		}
		list = append(list, name)
	}
	return list
}

// labelHint returns a fix for a text that is not a label name.
func labelHint(s string, err *LabelError) string {
	begin, _, star := strings.Cut(s, "*")
	switch {
	case s == "":
		return noLabelHint
	case s == "*":
		return anyLabelHint
	case star && begin != "" && len(begin) < maxLabel && labelLetters(begin):
		return fmt.Sprintf("%q matches all labels that begin with it",
			"re:^"+strings.ReplaceAll(strings.ToLower(begin), ".", `\.`))
	case strings.ContainsAny(s, ",;"):
		return "write several values in brackets: [a, b]"
	}
	return err.Hint()
}

const (
	anyLabel     = "re:."
	anyLabelHint = `"re:." matches any label`
	noLabelHint  = `not: {label: "re:."} holds for clients without one`
)

// warnLabels warns of the labels none and any: with cookie, these words have a
// special meaning.
func (r *reader) warnLabels(n *node) {
	for _, item := range items(find(n, "label")) {
		r.warnLabel(item, noLabelHint, anyLabelHint)
	}
}

func (r *reader) warnLabel(item *node, none, any string) {
	switch strings.ToLower(item.text) {
	case "none":
		r.warn(item, none, "label: none is a label of that name, not the lack of one")
	case "any":
		r.warn(item, any, "label: any is a label of that name, not any label")
	}
}
