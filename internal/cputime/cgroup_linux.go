package cputime

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A cgroup is a source with the CPU time of all processes in a cgroup and below it, including
// processes that ended.
type cgroup struct {
	root string // mount point of the cgroups
	name string // name in the policy
	file int    // 0: not open
	v1   bool
	last int64 // ns
	buf  [4096]byte

	procs          int           // file with the list of its processes; 0: not open
	clocks, before map[int]int64 // ns of its processes, now and at the last read
}

// open finds the cgroup and reads it for the first time.
func (c *cgroup) open() error {
	c.close()
	file, v1, err := c.find()
	if err != nil {
		return err
	}
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	c.file, c.v1 = fd, v1
	if c.procs, err = unix.Open(filepath.Dir(file)+"/cgroup.procs", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		c.procs = 0
	}
	c.clocks, c.before = map[int]int64{}, map[int]int64{}
	c.split(new(usage))
	if c.last, err = c.total(); err != nil {
		c.close()
	}
	return err
}

func (c *cgroup) close() {
	if c.file != 0 {
		unix.Close(c.file)
	}
	if c.procs != 0 {
		unix.Close(c.procs)
	}
	c.file, c.procs = 0, 0
}

// read returns the CPU time since the last read. It also finds a cgroup that was removed and
// created again, as at the restart of a service; the CPU time until then is not counted.
func (c *cgroup) read(u *usage) error {
	*u = usage{parts: u.parts[:0]}
	if c.file != 0 {
		now, err := c.total()
		if err == nil && now >= c.last {
			u.used, c.last = now-c.last, now
			c.split(u)
			return nil
		}
	}
	if err := c.open(); err != nil {
		return err
	}
	return errBaseline
}

// split returns the CPU time of each process of the cgroup, if their list fits into a buffer. Every
// user may read their clocks.
func (c *cgroup) split(u *usage) {
	if c.procs == 0 {
		return
	}
	n, err := unix.Pread(c.procs, c.buf[:], 0)
	if err != nil || n == len(c.buf) {
		return
	}
	c.clocks, c.before = c.before, c.clocks
	clear(c.clocks)
	for word := range bytes.FieldsSeq(c.buf[:n]) {
		pid := 0
		for _, digit := range word {
			pid = pid*10 + int(digit-'0')
		}
		now, ok := processClock(pid)
		if pid == 0 || !ok {
			continue // in another namespace, or already ended
		}
		u.processes++
		c.clocks[pid] = now
		if used := now - c.before[pid]; used > 0 && used <= u.used {
			u.parts = append(u.parts, part{pid, used})
		}
	}
}

// total reads the CPU time since the cgroup was created.
func (c *cgroup) total() (int64, error) {
	n, err := unix.Pread(c.file, c.buf[:], 0)
	if err != nil {
		return 0, fmt.Errorf("cgroup %s: %w", c.name, err)
	}
	parse := parseCPUStat
	if c.v1 {
		parse = parseCPUAcct
	}
	total, ok := parse(c.buf[:n])
	if !ok {
		return 0, fmt.Errorf("cgroup %s: cannot parse its CPU time", c.name)
	}
	return total, nil
}

// parseCPUStat returns usage_usec of a cpu.stat, ns (cgroup v2).
func parseCPUStat(text []byte) (int64, bool) {
	for line := range bytes.Lines(text) {
		if value, ok := bytes.CutPrefix(line, []byte("usage_usec ")); ok {
			usec, err := strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64)
			if err != nil || usec < 0 || usec > 1<<53 {
				return 0, false
			}
			return usec * 1000, true
		}
	}
	return 0, false
}

// parseCPUAcct returns the value of a cpuacct.usage, ns (cgroup v1).
func parseCPUAcct(text []byte) (int64, bool) {
	nsec, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	return nsec, err == nil && nsec >= 0
}

// find returns the file with the CPU time: of cgroup v2, also if v1 is mounted too, or of v1's
// cpuacct.
func (c *cgroup) find() (file string, v1 bool, err error) {
	mounts := []struct {
		folder, file string
		v1           bool
	}{
		{c.root, "cpu.stat", false},
		{c.root + "/unified", "cpu.stat", false},
		{c.root + "/cpuacct", "cpuacct.usage", true},
		{c.root + "/cpu,cpuacct", "cpuacct.usage", true},
	}
	for _, m := range mounts {
		below, ok := c.below(m.folder)
		if !ok {
			continue
		}
		file := filepath.Join(m.folder, below, m.file)
		if _, err := os.Stat(file); err == nil {
			return file, m.v1, nil
		}
	}
	if _, err := os.Stat(c.root); err != nil {
		return "", false, hinted(fmt.Errorf("cgroups: %w", err),
			"this machine or container has no visible cgroups: use from: process")
	}
	if strings.Contains(c.name, "/") {
		return "", false, hinted(fmt.Errorf("there is no cgroup %s below %s", c.name, c.root),
			"systemd-cgls shows the cgroups; that of a process is in /proc/PID/cgroup")
	}
	return "", false, hinted(fmt.Errorf("no cgroup of a service %s is below %s", c.name, c.root),
		"is the service running? systemctl status "+c.name+" shows its cgroup")
}

// below returns the cgroup's path below the mount point, from a path or from the name of a service.
func (c *cgroup) below(mount string) (string, bool) {
	if name, ok := strings.CutPrefix(c.name, c.root+"/"); ok || strings.Contains(c.name, "/") {
		clean := filepath.Clean("/" + name)
		return clean, clean != "/"
	}
	unit := c.name
	if !strings.HasSuffix(unit, ".service") && !strings.HasSuffix(unit, ".slice") &&
		!strings.HasSuffix(unit, ".scope") {
		unit += ".service"
	}
	const services = "/system.slice/"
	if _, err := os.Stat(filepath.Join(mount, services, unit)); err == nil {
		return services + unit, true
	}
	var found string
	rest := 10_000
	filepath.WalkDir(mount, func(file string, entry fs.DirEntry, err error) error {
		switch rest--; {
		case rest < 0 || found != "":
			return filepath.SkipAll
		case err != nil || !entry.IsDir():
			return nil
		case entry.Name() == unit:
			found = strings.TrimPrefix(file, mount)
			return filepath.SkipAll
		}
		return nil
	})
	return found, found != ""
}

var _ source = (*cgroup)(nil)
