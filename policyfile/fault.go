package policyfile

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// A ParseError is one fault of a policy file.
type ParseError struct {
	File   string
	Line   int    // from 1; 0 for the file as a whole
	Column int    // from 1, in characters
	Source string // the line
	Hint   string // a fix; "" if there is none
	Err    error
}

// Error returns the fault in one line: "file:line:column: message".
func (e *ParseError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %v", e.File, e.Err)
	}
	return fmt.Sprintf("%s:%d:%d: %v", e.File, e.Line, e.Column, e.Err)
}

func (e *ParseError) Unwrap() error { return e.Err }

// Text returns the fault in several lines: the text of Error, then the line with
// a caret below the column, then the hint.
func (e *ParseError) Text() string {
	return e.Error() + "\n" + excerpt(e.Source, e.Column) + hintLine(e.Hint)
}

// A Warning is about something that is valid and probably a mistake.
type Warning struct {
	File   string
	Line   int
	Column int
	Source string
	Hint   string
	Text   string
}

// String returns the warning in one line: "file:line:column: warning: text".
func (w *Warning) String() string {
	return fmt.Sprintf("%s:%d:%d: warning: %s", w.File, w.Line, w.Column, w.Text)
}

// Long returns the warning with its line, a caret and the hint.
func (w *Warning) Long() string {
	return w.String() + "\n" + excerpt(w.Source, w.Column) + hintLine(w.Hint)
}

// Faults returns the faults in an error of Load or Parse. It returns nil for other
// errors, such as a missing file.
func Faults(err error) []*ParseError {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return nil
	}
	var faults []*ParseError
	for _, e := range joined.Unwrap() {
		var fault *ParseError
		if errors.As(e, &fault) {
			faults = append(faults, fault)
		}
	}
	return faults
}

// excerptWidth is the part of a long line that is shown, in characters.
const excerptWidth = 100

// excerpt returns a source line with a caret below the column; "" if the line is
// empty.
func excerpt(source string, column int) string {
	if strings.TrimSpace(source) == "" || column < 1 {
		return ""
	}
	line := []rune(printable(source))
	at := min(column-1, len(line))
	if len(line) > excerptWidth {
		begin := max(0, min(at-excerptWidth/2, len(line)-excerptWidth))
		line, at = line[begin:begin+excerptWidth], at-begin
	}
	return "    " + string(line) + "\n    " + strings.Repeat(" ", at) + "^\n"
}

// userinfo matches the user name and password in a URL. A password may wrongly have a "/".
var userinfo = regexp.MustCompile(`://[^\s"',{}]*@`)

// printable makes s safe for terminals and logs. It replaces control characters,
// invalid bytes, and user names and passwords in URLs, each character by one
// character, so that columns do not change.
func printable(s string) string {
	s = userinfo.ReplaceAllStringFunc(s, func(found string) string {
		return "://" + strings.Repeat("*", utf8.RuneCountInString(found)-len("://@")) + "@"
	})
	return strings.Map(func(c rune) rune {
		switch {
		case c == '\t':
			return ' '
		case control(c) || c == utf8.RuneError || c >= 0x200E && c <= 0x200F || c >= 0x2028 && c <= 0x202E ||
			c >= 0x2066 && c <= 0x2069:
			return '?'
		}
		return c
	}, s)
}

func control(c rune) bool { return c < 0x20 || c >= 0x7F && c < 0xA0 }

func hintLine(hint string) string {
	if hint == "" {
		return ""
	}
	return "hint: " + hint + "\n"
}

// fault records a fault at a node.
func (r *reader) fault(n *node, hint, format string, args ...any) {
	r.faultAt(n.line, n.column, hint, format, args...)
}

func (r *reader) faultAt(line, column int, hint, format string, args ...any) {
	if r.tooManyFaults() {
		r.omitted++
		return
	}
	err := errors.New(printable(fmt.Sprintf(format, args...)))
	if line > 0 {
		line += r.base
	}
	name, local := r.locate(line)
	r.faults = append(r.faults, &ParseError{File: name, Line: local, Column: column, Source: r.source(line),
		Hint: printable(hint), Err: err})
}

func (r *reader) warn(n *node, hint, format string, args ...any) {
	name, line := r.locate(n.line)
	r.file.Warnings = append(r.file.Warnings, Warning{
		File: name, Line: line, Column: n.column, Source: r.source(n.line), Hint: printable(hint),
		Text: printable(fmt.Sprintf(format, args...)),
	})
}

// compareFiles compares two files by the order in which they were read.
func (r *reader) compareFiles(a, b string) int {
	place := func(name string) int {
		return slices.IndexFunc(r.includes, func(i include) bool { return i.name == name })
	}
	return cmp.Compare(place(a), place(b))
}

// maxFaults is the number of faults of a file that are reported.
const maxFaults = 200

func (r *reader) tooManyFaults() bool { return len(r.faults) >= maxFaults }

// maxSource is the length of the longest line that is shown, in bytes.
const maxSource = 1 << 14

// source returns a line of the file; "" if there is no such line or it is longer
// than maxSource.
func (r *reader) source(line int) string {
	if line < 1 || line > len(r.lines) || len(r.lines[line-1]) > maxSource {
		return ""
	}
	return r.lines[line-1]
}

// joined returns all faults, in the order of the file and without duplicates, as
// one error.
func (r *reader) joined() error {
	slices.SortStableFunc(r.faults, func(a, b *ParseError) int {
		return cmp.Or(r.compareFiles(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	faults := slices.CompactFunc(r.faults, func(a, b *ParseError) bool { return a.Error() == b.Error() })
	if r.omitted > 0 {
		faults = append(faults, &ParseError{File: r.file.Name, Err: fmt.Errorf("and %d more errors", r.omitted)})
	}
	errs := make([]error, len(faults))
	for i, f := range faults {
		for _, secret := range r.secrets {
			f.Source = strings.ReplaceAll(f.Source, secret, strings.Repeat("*", utf8.RuneCountInString(secret)))
		}
		errs[i] = f
	}
	return errors.Join(errs...)
}
