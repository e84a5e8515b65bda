package cputime

import (
	"errors"
	"fmt"
)

const (
	procRoot   = "/proc"
	cgroupRoot = "/sys/fs/cgroup"
)

// openSource returns the source in opts, and an error if it cannot be read now. If the source is
// nil, opts are invalid.
func openSource(opts Options) (source, error) {
	switch opts.From {
	case Cgroup:
		if opts.Cgroup == "" {
			return nil, errors.New("the cgroup is missing")
		}
		c := &cgroup{root: cgroupRoot, name: opts.Cgroup}
		return c, c.open()
	case Process:
		var at finder
		switch {
		case opts.PIDFile != "":
			at = &pidFile{path: opts.PIDFile}
		case opts.Listening != "":
			listener, err := newListener(procRoot, opts.Listening)
			if err != nil {
				return nil, err
			}
			at = listener
		default:
			return nil, errors.New("a pid file or the upstream's listening address is needed")
		}
		t := newTree(procRoot, at)
		if err := t.read(new(usage)); err != nil && !errors.Is(err, errBaseline) {
			return t, err
		}
		return t, nil
	}
	return nil, fmt.Errorf("CPU time is read from a process or a cgroup, not from source %d", opts.From)
}

// hinted returns an error with a hint.
func hinted(err error, hint string) error { return fmt.Errorf("%w\nhint: %s", err, hint) }
