package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// Exit codes of the program.
const (
	ExitOK     = 0
	ExitFailed = 1 // errors were found, or the command failed
	ExitUsage  = 2 // the command line is wrong: an argument, a flag or its value
)

// ErrReported makes a command fail without printing anything: the command has
// already printed its errors.
var ErrReported = errors.New("")

// A HintError is an error together with a hint: how to correct it.
type HintError struct {
	Err  error
	Hint string
}

func (e *HintError) Error() string { return e.Err.Error() }
func (e *HintError) Unwrap() error { return e.Err }

// Hint adds a hint to an error.
func Hint(err error, hint string) error { return &HintError{Err: err, Hint: hint} }

// A UsageError is an error of the command line that is found only while the
// command runs. The exit code is ExitUsage.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// WrongUsage marks an error as one of the command line.
func WrongUsage(err error) error { return &UsageError{Err: err} }

// ExitCode returns the exit code for the error of a command, which may be nil.
func ExitCode(err error) int {
	var usage *UsageError
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &usage):
		return ExitUsage
	}
	return ExitFailed
}

// PrintError writes an error in one line and its hint, if it has one, in the
// next. It writes nothing for nil and ErrReported.
func PrintError(w io.Writer, err error) {
	if err == nil || errors.Is(err, ErrReported) {
		return
	}
	fmt.Fprintf(w, "fairshare: %s\n", OneLine(err))
	var hinted *HintError
	if errors.As(err, &hinted) {
		fmt.Fprintf(w, "hint: %s\n", hinted.Hint)
	}
}

// OneLine returns the text of an error in one line. The lines of joined errors
// are separated by semicolons.
func OneLine(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}
