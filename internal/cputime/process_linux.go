package cputime

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// A process is a process of the upstream. Its files below /proc stay open: they end with the
// process, and never show a later process with the same ID.
type process struct {
	pid      int
	parent   int
	threads  int
	stat     int // file
	children int // file of the main thread's children; -1: the kernel has no such file

	own    int64 // ns of CPU time since it began, as last read
	waited int64 // ns of its ended children, as last read
	owed   int64 // ns of ended children that were counted but are not yet in waited

	nextOwn, nextWaited int64 // values of this sample
	gone                bool
}

// tick is the unit of /proc/PID/stat: USER_HZ is 100 on all platforms of Go.
const tick = int64(10 * time.Millisecond)

// openProcess opens the files of a process.
func openProcess(proc string, pid int) (*process, error) {
	folder := proc + "/" + strconv.Itoa(pid)
	stat, err := unix.Open(folder+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	children, err := unix.Open(folder+"/task/"+strconv.Itoa(pid)+"/children", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		children = -1
	}
	return &process{pid: pid, stat: stat, children: children}, nil
}

func (p *process) close() {
	unix.Close(p.stat)
	if p.children >= 0 {
		unix.Close(p.children)
	}
}

// A procStat holds the needed values of /proc/PID/stat.
type procStat struct {
	parent      int
	own, waited int64 // ns, in ticks of 10 ms
	threads     int
	began       int64 // ticks since the machine started
}

// parseStat reads a line of /proc/PID/stat. The name may contain any character and ends at the last
// parenthesis (proc_pid_stat(5)).
func parseStat(line []byte) (procStat, bool) {
	end := bytes.LastIndexByte(line, ')')
	if end < 0 {
		return procStat{}, false
	}
	var st procStat
	field := 2 // the name's
	for word := range bytes.FieldsSeq(line[end+1:]) {
		field++
		switch field {
		case 4, 14, 15, 16, 17, 20, 22:
		default:
			continue
		}
		n, err := strconv.ParseInt(string(word), 10, 64)
		if err != nil || n < 0 || n > 1<<38 { // 87 years of ticks
			return procStat{}, false
		}
		switch field {
		case 4:
			st.parent = int(n)
		case 14, 15:
			st.own += n * tick
		case 16, 17:
			st.waited += n * tick
		case 20:
			st.threads = int(n)
		case 22:
			st.began = n
			return st, true
		}
	}
	return procStat{}, false
}

// readStat returns false after the process has ended.
func (p *process) readStat(buf []byte) (procStat, bool) {
	n, err := unix.Pread(p.stat, buf, 0)
	if err != nil || n <= 0 {
		return procStat{}, false
	}
	return parseStat(buf[:n])
}

// read reads the CPU time of the process; false after it has ended. It reads the clock before the
// file. If the file can still be read, the clock was that of this process.
func (p *process) read(buf []byte) bool {
	own, ok := processClock(p.pid)
	st, there := p.readStat(buf)
	if !there {
		return false
	}
	if !ok {
		own = st.own
	}
	p.parent, p.threads = st.parent, st.threads
	p.nextOwn, p.nextWaited = max(own, p.own), max(st.waited, p.waited)
	return true
}

// processClock returns the CPU time of all threads of a process, ns, by its clock
// (clock_getcpuclockid(3)), which every user may read.
func processClock(pid int) (int64, bool) {
	var ts unix.Timespec
	if unix.ClockGettime(int32(^pid<<3|2), &ts) != nil { // CPUCLOCK_SCHED
		return 0, false
	}
	return ts.Nano(), true
}

// A finder returns the processes of the upstream, without their children. It is called before each
// sample. alive reports whether the processes from the last call live.
type finder interface {
	find(alive bool) ([]int, error)
}

// pidFile finds the process whose ID is in a file.
type pidFile struct{ path string }

func (f *pidFile) find(bool) ([]int, error) {
	text, err := readShort(f.path)
	if err != nil {
		return nil, hinted(fmt.Errorf("pid file: %w", err),
			"is the upstream running, and may the user that fairshare runs as read the file?")
	}
	pid, err := parsePID(text)
	if err != nil {
		return nil, hinted(fmt.Errorf("pid file %s: %w", f.path, err),
			"the first line must be the process ID of the upstream")
	}
	return []int{pid}, nil
}

// readShort reads the first 4 KiB of a file.
func readShort(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	buf := make([]byte, 4096)
	n, err := f.Read(buf)
	if n == 0 && err != nil {
		return nil, fmt.Errorf("%s is empty", path)
	}
	return buf[:n], nil
}

// maxPID is the kernel's PID_MAX_LIMIT.
const maxPID = 1 << 22

// parsePID reads a pid file: the number on the first line.
func parsePID(text []byte) (int, error) {
	line, _, _ := bytes.Cut(text, []byte("\n"))
	pid, err := strconv.ParseUint(string(bytes.TrimSpace(line)), 10, 32)
	if err != nil || pid == 0 || pid > maxPID {
		return 0, errors.New("the first line is not a process ID")
	}
	return int(pid), nil
}
