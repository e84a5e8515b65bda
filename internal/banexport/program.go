package banexport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"strings"
	"time"
)

const (
	mostOutput = 400 // bytes of a program's output in an error
	killAfter  = 2 * time.Second
)

// run runs a program without a shell, and returns its standard output.
func run(ctx context.Context, input []byte, argv ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin = bytes.NewReader(input)
	var out bytes.Buffer
	errs := &head{most: 4 * mostOutput}
	cmd.Stdout, cmd.Stderr = &out, errs
	cmd.WaitDelay = killAfter
	err := cmd.Run()
	if err == nil {
		return out.Bytes(), nil
	}
	err = programError(ctx, argv, err, errs.String()+" "+out.String())
	if cmd.Process == nil {
		err = startError{err}
	}
	return nil, err
}

// A startError is the error of a program that could not be started, so it had no effect.
type startError struct{ error }

func (e startError) Unwrap() error { return e.error }

// programError describes the error of a program.
func programError(ctx context.Context, argv []string, err error, said string) error {
	name := argv[0]
	switch {
	case errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s is not installed, or not in $PATH", name)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("%s did not end in time", name)
	}
	said = strings.Join(strings.Fields(strings.ToValidUTF8(said, "?")), " ")
	if len(said) > mostOutput {
		said = said[:mostOutput] + "..."
	}
	if said != "" {
		return fmt.Errorf("%s: %w: %s", name, err, said)
	}
	return fmt.Errorf("%s: %w", name, err)
}

// A head keeps the first bytes that are written to it.
type head struct {
	bytes.Buffer
	most int
}

var _ io.Writer = (*head)(nil)

func (h *head) Write(p []byte) (int, error) {
	h.Buffer.Write(p[:min(len(p), max(0, h.most-h.Len()))])
	return len(p), nil
}
