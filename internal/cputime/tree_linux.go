package cputime

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"bytes"

	"golang.org/x/sys/unix"
)

// A tree is a source with the CPU time of an upstream's processes and their children.
//
// Its CPU time is the sum of the clocks of living processes and of the times that parents have of
// their ended children. A child that was read while it lived is not counted again after it ended.
type tree struct {
	proc   string
	finder finder
	roots  []int
	procs  []*process // parents before their children
	byPID  map[int]*process
	since  int64     // time when the roots were found, ticks since the machine started
	scan   time.Time // time of the next search through all processes
	buf    []byte
	list   []byte
}

const (
	maxProcesses = 4096
	maxThreads   = 64
	scanEvery    = time.Second
	scanShare    = 300 // searching takes at most 1/scanShare of the time
	rounding     = 2 * tick
)

func newTree(proc string, at finder) *tree {
	return &tree{proc: proc, finder: at, byPID: map[int]*process{}, buf: make([]byte, 4096)}
}

func (t *tree) close() {
	for _, p := range t.procs {
		p.close()
	}
	t.procs, t.roots = nil, nil
	clear(t.byPID)
}

// program returns the program name of the first root.
func (t *tree) program() string {
	if len(t.roots) == 0 {
		return ""
	}
	comm, _ := os.ReadFile(t.proc + "/" + strconv.Itoa(t.roots[0]) + "/comm")
	return string(bytes.TrimSpace(comm))
}

// read adds up the CPU time since the last read.
func (t *tree) read(u *usage) error {
	*u = usage{parts: u.parts[:0]}
	roots, err := t.finder.find(t.alive())
	if err == nil && !slices.Equal(roots, t.roots) || len(t.byPID) == 0 {
		if err == nil {
			err = t.begin(roots)
		}
		if err != nil {
			t.close()
			return err
		}
		return errBaseline
	}
	// The processes found before still count while the finder fails.
	t.follow()
	t.readAll()
	t.count(u)
	if !t.alive() {
		pid := t.roots[0]
		t.close()
		return fmt.Errorf("process %d has ended", pid)
	}
	u.processes, u.threads = len(t.procs), 0
	for _, p := range t.procs {
		u.threads += p.threads
	}
	return nil
}

// alive reports whether a root lived at the last read.
func (t *tree) alive() bool {
	for _, pid := range t.roots {
		if t.byPID[pid] != nil {
			return true
		}
	}
	return false
}

// begin starts to measure other processes. The CPU time of them and their children so far is not
// counted.
func (t *tree) begin(roots []int) error {
	t.close()
	var first error
	for _, pid := range roots {
		if err := t.add(pid, 0); err != nil && first == nil {
			first = err
		}
	}
	if len(t.procs) == 0 {
		switch {
		case first == nil:
			return errors.New("no process belongs to the upstream")
		case unix.Kill(roots[0], 0) == unix.ESRCH:
			return hinted(fmt.Errorf("process %d is not running", roots[0]),
				"is the upstream running, and is this its pid file?")
		}
		return hinted(fmt.Errorf("process %d: %w", roots[0], first),
			"other users' processes are hidden in /proc by hidepid, or by ProtectProc= of fairshare's service; every user may read a cgroup's cpu.stat: upstream: {cpu: {from: cgroup, service: …}}")
	}
	t.roots = append(t.roots, roots...)
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) == nil {
		t.since = now.Nano() / tick
	}
	t.scan = time.Time{}
	t.follow()
	t.readAll()
	for _, p := range t.procs {
		p.own, p.waited = p.nextOwn, p.nextWaited
	}
	t.drop()
	if len(t.procs) == 0 {
		return fmt.Errorf("process %d has ended", roots[0])
	}
	return nil
}

// add measures one more process.
func (t *tree) add(pid, parent int) error {
	if t.byPID[pid] != nil || len(t.procs) >= maxProcesses {
		return nil
	}
	p, err := openProcess(t.proc, pid)
	if err != nil {
		return err
	}
	p.parent = parent
	st, ok := p.readStat(t.buf)
	if !ok {
		p.close()
		return os.ErrProcessDone
	}
	if parent != 0 && st.began < t.since { // it was there before, but found late
		if p.read(t.buf) {
			p.own, p.waited = p.nextOwn, p.nextWaited
		}
	}
	t.procs = append(t.procs, p)
	t.byPID[pid] = p
	return nil
}

// follow finds new children. In every sample it checks up to maxThreads threads of a process; other
// children are found by the search through all processes, once a second or less often.
func (t *tree) follow() {
	for i := 0; i < len(t.procs); i++ { // t.procs grows in the loop
		p := t.procs[i]
		t.adopt(p, p.children)
		if p.threads < 2 || p.threads > maxThreads {
			continue
		}
		tasks := t.proc + "/" + strconv.Itoa(p.pid) + "/task"
		threads, err := os.ReadDir(tasks)
		if err != nil {
			continue
		}
		for _, thread := range threads {
			file, err := unix.Open(tasks+"/"+thread.Name()+"/children", unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err == nil {
				t.adopt(p, file)
				unix.Close(file)
			}
		}
	}
	if now := time.Now(); !now.Before(t.scan) {
		t.lookThrough()
		took := time.Since(now)
		t.scan = now.Add(max(scanEvery, scanShare*took))
	}
}

// adopt adds the processes in a children file.
func (t *tree) adopt(p *process, file int) {
	if file < 0 {
		return
	}
	t.list = t.list[:0]
	for offset := int64(0); len(t.list) < 8*maxProcesses; {
		n, err := unix.Pread(file, t.buf, offset)
		if err != nil || n <= 0 {
			break
		}
		offset += int64(n)
		t.list = append(t.list, t.buf[:n]...)
	}
	for word := range bytes.FieldsSeq(t.list) {
		pid := 0
		for _, c := range word {
			pid = pid*10 + int(c-'0')
		}
		if t.byPID[pid] == nil {
			t.add(pid, p.pid)
		}
	}
}

// lookThrough adds all processes whose parents are measured.
func (t *tree) lookThrough() {
	folder, err := os.Open(t.proc)
	if err != nil {
		return
	}
	defer folder.Close()
	names, _ := folder.Readdirnames(-1)
	parents := map[int]int{}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || t.byPID[pid] != nil {
			continue
		}
		fd, err := unix.Open(t.proc+"/"+name+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		n, _ := unix.Read(fd, t.buf)
		unix.Close(fd)
		if st, ok := parseStat(t.buf[:max(n, 0)]); ok {
			parents[pid] = st.parent
		}
	}
	for again := true; again; {
		again = false
		for pid, parent := range parents {
			if t.byPID[parent] != nil && t.byPID[pid] == nil && t.add(pid, parent) == nil && t.byPID[pid] != nil {
				again = true
			}
		}
	}
}

// readAll reads every process, children before their parents. So a parent's time of an ended child
// is never older than the last reading of the child.
func (t *tree) readAll() {
	for _, p := range slices.Backward(t.procs) {
		p.nextOwn, p.nextWaited = p.own, p.waited
		p.gone = !p.read(t.buf)
	}
	// A child that ended between its reading and its parent's has already disappeared.
	for _, p := range t.procs {
		if p.gone || p.nextWaited == p.waited {
			continue
		}
		for _, child := range t.procs {
			if child.parent == p.pid && !child.gone {
				_, there := child.readStat(t.buf)
				child.gone = !there
			}
		}
	}
}

// count adds up the results of readAll.
func (t *tree) count(u *usage) {
	for _, p := range slices.Backward(t.procs) {
		used := p.nextOwn - p.own
		told := p.nextWaited - p.waited
		p.own, p.waited = p.nextOwn, p.nextWaited
		known := min(told, p.owed)
		used += told - known
		p.owed -= known
		if p.gone {
			if parent := t.byPID[p.parent]; parent != nil {
				parent.owed += p.own + p.waited + p.owed
			}
		} else {
			p.owed = min(p.owed, rounding) // a parent that does not wait for a child never gets its time
		}
		if used > 0 {
			u.used += used
			u.parts = append(u.parts, part{p.pid, used})
		}
	}
	t.drop()
}

// drop removes the processes that have ended.
func (t *tree) drop() {
	t.procs = slices.DeleteFunc(t.procs, func(p *process) bool {
		if p.gone {
			p.close()
			delete(t.byPID, p.pid)
		}
		return p.gone
	})
}
