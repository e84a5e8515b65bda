package cputime

import (
	"errors"
	"fmt"
)

const (
	procRoot   = "/proc"
	cgroupRoot = "/sys/fs/cgroup"
)

// openSource returns the source that opts name, and what keeps it from being
// read now. Without a source, opts are wrong.
func openSource(opts Options) (source, error) {
	switch opts.From {
	case Cgroup:
		if opts.Cgroup == "" {
			return nil, errors.New("no cgroup is named")
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
			return nil, errors.New("neither a pid file nor an address that the upstream listens on is named")
		}
		t := newTree(procRoot, at)
		if err := t.read(new(usage)); err != nil && !errors.Is(err, errBaseline) {
			return t, err
		}
		return t, nil
	}
	return nil, fmt.Errorf("CPU time is read from a process or a cgroup, not from source %d", opts.From)
}

// hinted is an error with advice, for people.
func hinted(err error, hint string) error { return fmt.Errorf("%w\nhint: %s", err, hint) }
