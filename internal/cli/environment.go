// Package cli holds what the subcommands of the fairshare program share: their
// environment, errors with hints, exit codes, the version and terminals. Start
// with Environment.
package cli

import (
	"context"
	"fmt"
	"io"
	"time"
)

// An Environment is the part of the process that a subcommand may use.
// Results go to Stdout, everything else to Stderr.
type Environment struct {
	Context context.Context // ends with SIGINT and SIGTERM
	StopNow <-chan struct{} // closed by the second of these signals; nil: never
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer
	Now     func() time.Time // the system's clock; nil means time.Now
	// OutputErr is the first error of Printf. The program fails with it if the
	// subcommand itself succeeds.
	OutputErr error
}

// Clock returns the system's clock.
func (env *Environment) Clock() func() time.Time {
	if env.Now != nil {
		return env.Now
	}
	return time.Now
}

// Printf writes one line to Stdout. The first error is kept in OutputErr.
func (env *Environment) Printf(format string, args ...any) {
	if _, err := fmt.Fprintf(env.Stdout, format+"\n", args...); err != nil && env.OutputErr == nil {
		env.OutputErr = err
	}
}
