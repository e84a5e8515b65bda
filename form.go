package fairshare

import (
	"slices"
	"strings"
)

// A Form holds the fields of a form in a request's body. The zero Form has none.
// It holds what people type, passwords too: nothing of it may be logged.
type Form struct {
	// Encoded holds the fields as application/x-www-form-urlencoded does.
	Encoded string

	// Unknown says that the body may hold fields that are not in Encoded: it was too
	// long, too slow, or servers may read it in several ways. A restriction holds then,
	// and a permission does not, whatever field it asks for. Keys take the form for empty.
	Unknown bool
}

// TestsForms reports whether a rule matches fields of forms, or counts by one.
func (p *Policy) TestsForms() bool {
	return slices.ContainsFunc(p.Rules, func(r Rule) bool { return r.TestsForms() })
}

// TestsForms reports whether the rule matches fields of forms, or counts by one.
func (r *Rule) TestsForms() bool {
	isForm := func(part KeyPart) bool { return part.Kind == ByForm }
	return r.tests(func(m *Match) bool { return m.Form != nil }) ||
		r.Limit != nil && slices.ContainsFunc(r.Limit.By, isForm)
}

// tests reports whether a condition is in a match of the rule.
func (r *Rule) tests(condition func(*Match) bool) bool {
	return r.Match.has(condition) || r.Ban != nil && r.Ban.Unless != nil && r.Ban.Unless.has(condition)
}

func (m *Match) has(condition func(*Match) bool) bool {
	return condition(m) || slices.ContainsFunc(m.Not, func(not Match) bool { return not.has(condition) })
}

// holdsForm looks at a field as holdsEncoded does at a parameter.
func (c *condition) holdsForm(d *decision) bool {
	if f := &d.req.Form; !f.Unknown {
		return c.holdsEncoded(d, f.Encoded)
	}
	return !c.favorable
}

// formKey returns the value of a field that limits count under: in lower case and
// without spaces around it, as logins take names. It is "" if the field is sent
// with several values, or under a second spelling of the name: servers take either.
func (d *decision) formKey(name string) string {
	encoded := d.req.Form.Encoded
	if encoded == "" || d.req.Form.Unknown {
		return ""
	}
	value, same := d.formValue(encoded, "&", name)
	if same && strings.IndexByte(encoded, ';') >= 0 {
		var other string
		other, same = d.formValue(encoded, "&;", name)
		same = same && other == value
	}
	if !same {
		return ""
	}
	return value
}

// formValue returns the value of a field; same is false if there are several.
func (d *decision) formValue(encoded, separators, name string) (value string, same bool) {
	spelling := string(appendSpelling(nil, name))
	array := strings.IndexByte(name, '[') >= 0 // "user[name]" and "user[password]" are not one field
	found := false
	for pair := range strings.FieldsFuncSeq(encoded, func(c rune) bool { return strings.ContainsRune(separators, c) }) {
		sent, text, _ := strings.Cut(pair, "=")
		spelled := string(appendSpelling(nil, sent))
		same := spelled == spelling || d.guard.policy.FoldPaths && strings.EqualFold(spelled, spelling)
		if unescape(sent) != name && (array || !same) {
			continue
		}
		text = strings.ToLower(strings.TrimSpace(unescape(text)))
		if found && text != value {
			return "", false
		}
		value, found = text, true
	}
	return value, true
}
