package cputime

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// A listener is a finder of the processes that listen at an address of this machine. It searches
// the kernel's sockets every two seconds, or less often if there are many.
type listener struct {
	proc   string
	fs     procfs.FS
	at     string // host:port, or the path of a unix socket
	host   string
	port   uint16
	inodes []uint64 // of the sockets found
	pids   []int
	why    error     // why no process was found
	next   time.Time // time of the next search
}

const (
	socketsEvery = 2 * time.Second
	socketsShare = 300              // searching takes at most 1/socketsShare of the time
	lostEvery    = 10 * time.Second // interval of searches while no process is found
	tcpListen    = "0A"             // TCP_LISTEN
	unixListen   = 1 << 16
)

func newListener(proc, at string) (*listener, error) {
	fs, err := procfs.NewFS(proc)
	if err != nil {
		return nil, hinted(err, "/proc must be mounted; or use a cgroup: from: cgroup")
	}
	l := &listener{proc: proc, fs: fs, at: strings.TrimPrefix(at, "unix:")}
	if strings.HasPrefix(l.at, "/") || strings.HasPrefix(l.at, "@") {
		return l, nil
	}
	host, port, err := net.SplitHostPort(l.at)
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return nil, fmt.Errorf("%s: no port", at)
	}
	l.host, l.port = host, uint16(n)
	return l, nil
}

func (l *listener) find(alive bool) ([]int, error) {
	now := time.Now()
	if now.Before(l.next) && (alive || len(l.pids) == 0) {
		return l.pids, l.why
	}
	defer func() {
		l.next = now.Add(pause(time.Since(now), len(l.pids) > 0))
	}()
	inodes, err := l.sockets()
	if err != nil {
		return l.lost(err)
	}
	if len(inodes) == 0 {
		return l.lost(hinted(fmt.Errorf("no process listens at %s on this machine", l.at),
			"is the upstream running? it must run here, in the same network namespace; otherwise use upstream: {cpu: {from: cgroup, service: …}}, or server-timing"))
	}
	if alive && slices.Equal(inodes, l.inodes) {
		return l.pids, nil
	}
	pids, err := l.holders(inodes)
	if err != nil {
		return l.lost(err)
	}
	l.inodes, l.pids, l.why = inodes, pids, nil
	return pids, nil
}

func (l *listener) lost(err error) ([]int, error) {
	l.inodes, l.pids, l.why = nil, nil, err
	return nil, err
}

// pause returns the time until the next search, from the duration of the last.
func pause(took time.Duration, found bool) time.Duration {
	d := max(socketsEvery, socketsShare*took)
	if !found {
		d = min(d, lostEvery)
	}
	return d
}

// sockets returns the inodes of the sockets that listen at the address.
func (l *listener) sockets() ([]uint64, error) {
	var inodes []uint64
	if l.host == "" && l.port == 0 {
		all, err := l.fs.NetUNIX()
		if err != nil {
			return nil, err
		}
		for _, row := range all.Rows {
			if row.Path == l.at && row.Flags&unixListen != 0 {
				inodes = append(inodes, row.Inode)
			}
		}
		slices.Sort(inodes)
		return inodes, nil
	}
	addrs, err := l.addrs()
	if err != nil {
		return nil, err
	}
	v4, err := os.ReadFile(l.proc + "/net/tcp")
	v6, err6 := os.ReadFile(l.proc + "/net/tcp6")
	if err != nil && err6 != nil {
		return nil, err
	}
	for _, table := range [][]byte{v4, v6} {
		for line := range bytes.Lines(table) {
			at, inode, ok := parseListening(line)
			if ok && at.Port() == l.port && (at.Addr().IsUnspecified() || slices.Contains(addrs, at.Addr())) {
				inodes = append(inodes, inode)
			}
		}
	}
	slices.Sort(inodes)
	return slices.Compact(inodes), nil
}

// parseListening reads a line of /proc/net/tcp or tcp6; false if it is not of a
// socket that listens. An address is one or four words of 32 bits in hex, each in
// the machine's byte order (proc_net_tcp(5)).
func parseListening(line []byte) (at netip.AddrPort, inode uint64, ok bool) {
	var fields [10][]byte
	n := 0
	for field := range bytes.FieldsSeq(line) {
		if n == len(fields) {
			break
		}
		fields[n] = field
		n++
	}
	if n < len(fields) || string(fields[3]) != tcpListen {
		return at, 0, false
	}
	host, port, found := bytes.Cut(fields[1], []byte(":"))
	var raw [16]byte
	if !found || len(host) != 8 && len(host) != 32 {
		return at, 0, false
	}
	if _, err := hex.Decode(raw[:], host); err != nil {
		return at, 0, false
	}
	for i := 0; i < len(host)/2; i += 4 {
		binary.NativeEndian.PutUint32(raw[i:], binary.BigEndian.Uint32(raw[i:]))
	}
	addr, _ := netip.AddrFromSlice(raw[:len(host)/2])
	p, err := strconv.ParseUint(string(port), 16, 16)
	inode, err2 := strconv.ParseUint(string(fields[9]), 10, 64)
	return netip.AddrPortFrom(addr.Unmap(), uint16(p)), inode, err == nil && err2 == nil
}

// addrs returns the addresses of the host.
func (l *listener) addrs() ([]netip.Addr, error) {
	if addr, err := netip.ParseAddr(l.host); err == nil {
		return []netip.Addr{addr.Unmap().WithZone("")}, nil
	}
	if l.host == "localhost" || l.host == "" {
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", l.host)
	for i := range addrs {
		addrs[i] = addrs[i].Unmap()
	}
	return addrs, err
}

// holders returns the processes that hold one of the sockets. It leaves out init and other
// ancestors of this process: they only pass sockets on, and are not the upstream.
func (l *listener) holders(inodes []uint64) ([]int, error) {
	wanted := make([]string, len(inodes))
	for i, inode := range inodes {
		wanted[i] = "socket:[" + strconv.FormatUint(inode, 10) + "]"
	}
	all, err := l.fs.AllProcs()
	if err != nil {
		return nil, err
	}
	above := l.ancestors()
	var pids []int
	closed, passed := 0, 0
	for _, p := range all {
		targets, err := p.FileDescriptorTargets()
		if errors.Is(err, os.ErrPermission) {
			closed++
		}
		if !slices.ContainsFunc(targets, func(target string) bool { return slices.Contains(wanted, target) }) {
			continue
		}
		if slices.Contains(above, p.PID) {
			passed++
			continue
		}
		pids = append(pids, p.PID)
	}
	slices.Sort(pids)
	switch {
	case len(pids) > 0:
		return pids, nil
	case passed > 0:
		return nil,
			hinted(fmt.Errorf(
				"only process 1 holds the socket at %s so far: it starts the upstream at the first request", l.at),
				"use the cgroup of its service: upstream: {cpu: {from: cgroup, service: …}}")
	case closed > 0:
		return nil,
			hinted(fmt.Errorf(
				"the process that listens at %s is unknown: user %[3]d may not read /proc/PID/fd of %[2]d processes",
				l.at, closed, os.Geteuid()),
				"name the upstream's pid_file, or its cgroup (service: …): every user may read both; or run fairshare as the upstream's user, as root, or with CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH")
	}
	return nil, hinted(fmt.Errorf("no process visible here holds the socket at %s", l.at),
		"it may belong to another container, or to another user and be hidden (hidepid, ProtectProc= of fairshare's service): name its cgroup (service: …), or use server-timing")
}

// ancestors returns process 1 and the ancestors of this process.
func (l *listener) ancestors() []int {
	above := []int{1}
	for pid := os.Getppid(); pid > 1 && len(above) < 64; {
		above = append(above, pid)
		p, err := l.fs.Proc(pid)
		if err != nil {
			break
		}
		st, err := p.Stat()
		if err != nil {
			break
		}
		pid = st.PPID
	}
	return above
}
