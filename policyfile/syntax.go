package policyfile

import (
	"errors"
	"strings"

	"github.com/goccy/go-yaml/token"
)

// A syntaxFault is an error in the YAML itself.
type syntaxFault struct {
	line, column int
	message      string
	last         bool // the rest of the file cannot be read
}

// newSyntaxFault converts an error of the YAML library.
func newSyntaxFault(err error) *syntaxFault {
	var at interface {
		GetMessage() string
		GetToken() *token.Token
	}
	if !errors.As(err, &at) || at.GetToken() == nil || at.GetToken().Position == nil {
		message, _, _ := strings.Cut(err.Error(), "\n")
		return &syntaxFault{line: 1, column: 1, message: message}
	}
	pos := at.GetToken().Position
	message, _, _ := strings.Cut(at.GetMessage(), "\n")
	return &syntaxFault{line: max(pos.Line, 1), column: max(pos.Column, 1), message: message}
}

// maxRepairs is the number of syntax errors of a file that are reported.
const maxRepairs = 10

// tree reads the YAML. After a syntax error it removes the rule or key around the
// error and reads the rest, so that all errors of the file are reported at once.
func (r *reader) tree(text string) *node {
	var removed [2]int // the first and last line of the part that was removed last, from 1
	for range maxRepairs {
		root, fault := r.parseTree(text)
		if fault == nil {
			return root
		}
		if r.broken && fault.line >= removed[0] && fault.line <= removed[1]+1 {
			return nil // the error is at the same position: removing more does not help
		}
		r.broken = true
		fault.moveToBracket(text)
		message, hint := r.explainSyntax(fault)
		r.faultAt(fault.line, fault.column, hint, "%s", message)
		if fault.last {
			return nil
		}
		lines := strings.Split(text, "\n")
		first, last := blockAround(lines, fault)
		for i := first; i <= last; i++ {
			lines[i-1] = ""
		}
		removed = [2]int{first, last}
		text = strings.Join(lines, "\n")
	}
	return nil
}

// blockAround returns the lines of the list item or top-level key that contains a
// fault.
func blockAround(lines []string, fault *syntaxFault) (first, last int) {
	for first = min(fault.line, len(lines)); first > 1; first-- {
		line := lines[first-1]
		if blank(line) {
			continue
		}
		if i := indent(line); i == 0 || line[i] == '-' {
			break
		}
	}
	begin := indent(lines[first-1])
	last = max(first, min(fault.line, len(lines)))
	for last < len(lines) && (blank(lines[last]) || indent(lines[last]) > begin) {
		last++
	}
	return first, last
}

func blank(line string) bool {
	line = strings.TrimSpace(line)
	return line == "" || line[0] == '#'
}

func indent(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }

// moveToBracket moves the fault of a [ or { that is not closed to that bracket. The
// library reports it at a later position.
func (f *syntaxFault) moveToBracket(text string) {
	if !strings.Contains(f.message, "must be specified") && !strings.Contains(f.message, "could not find flow") {
		return
	}
	var open []*token.Token
	for _, t := range tokenize(text) {
		if at := t.Position; at.Line > f.line || at.Line == f.line && at.Column >= f.column {
			break
		}
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			open = append(open, t)
		case token.SequenceEndType, token.MappingEndType:
			open = open[:max(len(open)-1, 0)]
		}
	}
	if len(open) == 0 {
		return
	}
	last := open[len(open)-1]
	f.message = "the " + last.Value + " is not closed, or a comma is missing"
	f.line, f.column = last.Position.Line, last.Position.Column
}

// explainSyntax returns the message of a syntax error, and a hint if the line shows
// a usual mistake.
func (r *reader) explainSyntax(fault *syntaxFault) (message, hint string) {
	line := []rune(r.source(fault.line))
	rest := ""
	if fault.column <= len(line) {
		rest = string(line[fault.column-1:])
	}
	if strings.HasPrefix(fault.message, "unexpected scalar") &&
		strings.HasSuffix(string(line[:min(fault.column-1, len(line))]), "*") {
		fault.column--
		rest = "*"
	}
	rest = strings.TrimSpace(rest)
	word := rest
	if i := strings.IndexAny(word, ",]}"); i > 0 {
		word = word[:i]
	}
	message = fault.message
	switch {
	case fault.last:
		return message, ""
	case strings.Contains(message, "'\t'"), strings.Contains(message, "tab"),
		strings.HasPrefix(strings.TrimLeft(string(line), " "), "\t"):
		return "the indentation contains a tab", "YAML is indented with spaces"
	case strings.Contains(message, "alias name"), strings.HasPrefix(rest, "*"):
		return "a * alone is an alias of YAML", "a text that begins with * needs quotes: " + quote(word)
	case strings.Contains(message, "reserved character"):
		return message, "the text needs quotes: " + quote(word)
	case strings.Contains(message, "directive"):
		return message, "a text that begins with % needs quotes: " + quote(word)
	case strings.Contains(message, "escape character"):
		return message, `in "…" a backslash is written \\; in '…' it is itself: 're:\.php$'`
	case strings.Contains(message, "end character"):
		return message, ""
	case strings.Contains(string(line), "re:") && strings.ContainsAny(string(line), "{}[],"):
		return message, `a regexp with any of { } [ ] , # : in it needs quotes: 're:^/[a-z]{2}/'`
	case strings.Contains(message, "mapping value is not allowed"):
		if strings.Count(string(line), ": ") > 1 {
			return message, `a text with ": " in it needs quotes; a map in one line needs { }`
		}
		return message, "is the line indented like the one above?"
	case strings.Contains(message, "value is not allowed"):
		return message,
			"is it indented like the keys next to it? all keys of a rule begin in the same column, two after its -"
	case strings.Contains(message, "unexpected key name"):
		if key, value, found := strings.Cut(strings.TrimLeft(strings.TrimSpace(string(line)), "- "), ":"); found &&
			value != "" && value[0] != ' ' && !strings.ContainsAny(key, " {[\"'") {
			return message, "a space is needed after the colon: " + key + ": " + value
		}
		return message, "is it indented like the keys next to it?"
	case strings.Contains(message, "non-map value"):
		return message, "all items of a list begin in the same column"
	}
	return message, ""
}
