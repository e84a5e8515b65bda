// Package redistest starts real Redis or Valkey servers for tests: one server, a
// cluster, or a master with a replica and sentinels. They listen on free loopback
// ports, store nothing on disk and end with the test.
//
// A test is skipped if neither valkey-server nor redis-server is installed.
// FAIRSHARE_STORE_SERVER may name another program. With
// FAIRSHARE_REQUIRE_SERVICES=1 a missing server is a failure.
package redistest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// patience is how long a server may take to answer for the first time.
const patience = time.Minute

// Program returns the server that tests start, or skips the test.
func Program(t testing.TB) string {
	t.Helper()
	names := []string{"valkey-server", "redis-server"}
	if own := os.Getenv("FAIRSHARE_STORE_SERVER"); own != "" {
		names = []string{own}
	}
	return program(t, names...)
}

func program(t testing.TB, names ...string) string {
	t.Helper()
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	missing := strings.Join(names, " and ") + " not found: install redis-server, or set FAIRSHARE_STORE_SERVER"
	if os.Getenv("FAIRSHARE_REQUIRE_SERVICES") == "1" {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return ""
}

// A Server is one running server.
type Server struct {
	Addr string // host:port

	t       testing.TB
	program string
	args    []string
	dir     string
	command *exec.Cmd
	exited  chan struct{}
}

// Start starts a server with further arguments, such as "--maxmemory", "10mb".
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return start(t, Program(t), freeAddr(t), args...)
}

func start(t testing.TB, program, addr string, args ...string) *Server {
	t.Helper()
	s := &Server{Addr: addr, t: t, program: program, dir: t.TempDir(), args: args}
	s.Run()
	t.Cleanup(s.Kill)
	return s
}

// URL returns the URL of the server.
func (s *Server) URL() string { return "redis://" + s.Addr }

// Run starts the server again after Kill, empty, and waits until it answers.
func (s *Server) Run() {
	s.t.Helper()
	host, port, _ := net.SplitHostPort(s.Addr)
	args := append([]string{"--port", port, "--bind", host, "--save", "", "--appendonly", "no", "--dir", s.dir},
		s.args...)
	if slices.Contains(s.args, "--sentinel") {
		args = s.args
	}
	s.command = exec.Command(s.program, args...)
	s.command.SysProcAttr = ownGroup()
	log, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.command.Stdout, s.command.Stderr = log, log
	if err := s.command.Start(); err != nil {
		s.t.Fatal(err)
	}
	log.Close()
	exited, command := make(chan struct{}), s.command
	s.exited = exited
	go func() {
		command.Wait()
		close(exited)
	}()
	s.await("PING", func(reply string) bool { return reply == "PONG" || strings.HasPrefix(reply, "NOAUTH") })
}

// await repeats a command until its reply is right.
func (s *Server) await(command string, right func(reply string) bool) {
	s.t.Helper()
	last := ""
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		reply, err := s.try(strings.Fields(command)...)
		if last = reply; err != nil {
			last = err.Error()
		}
		if right(last) {
			return
		}
	}
	log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
	s.t.Fatalf("%s answered %s last with %q\n%s", s.Addr, command, last, log)
}

// try runs a command over a connection of its own.
func (s *Server) try(args ...string) (string, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Addr}, ForceSingleClient: true,
		DisableCache: true, DisableRetry: true, PipelineMultiplex: 0, RingScaleEachConn: 8})
	if err != nil {
		return "", err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	reply, err := client.Do(ctx, client.B().Arbitrary(args...).Build()).ToMessage()
	if rueidis.IsRedisNil(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if text, err := reply.ToString(); err == nil {
		return text, nil
	}
	if n, err := reply.ToInt64(); err == nil {
		return strconv.FormatInt(n, 10), nil
	}
	return reply.String(), nil
}

// Do runs a command, such as "FLUSHALL", and returns its reply as text.
func (s *Server) Do(args ...string) string {
	s.t.Helper()
	reply, err := s.try(args...)
	if err != nil {
		s.t.Fatalf("%s: %s: %v", s.Addr, strings.Join(args, " "), err)
	}
	return reply
}

// Kill ends the server at once, as kill -9 does, and waits for its end.
func (s *Server) Kill() {
	s.command.Process.Signal(syscall.SIGKILL)
	<-s.exited
}

// Stop has the server do nothing until Continue, as SIGSTOP does.
func (s *Server) Stop() { signalStop(s.command.Process) }

// Continue lets the server go on.
func (s *Server) Continue() { signalContinue(s.command.Process) }

// A Cluster is a running cluster of three masters, each with as many replicas.
type Cluster struct {
	Nodes []*Server // the masters first
}

// StartCluster starts a cluster.
func StartCluster(t testing.TB, replicas int) *Cluster {
	t.Helper()
	const masters = 3
	c := &Cluster{}
	for i := range masters * (1 + replicas) {
		addr := freeAddr(t)
		for port(addr) > 55535 || !isFree("127.0.0.1:"+strconv.Itoa(port(addr)+10000)) { // of the cluster bus
			addr = freeAddr(t)
		}
		c.Nodes = append(c.Nodes, start(t, Program(t), addr, "--cluster-enabled", "yes",
			"--cluster-node-timeout", "1000", "--cluster-require-full-coverage", "no",
			"--cluster-config-file", fmt.Sprintf("nodes-%d.conf", i)))
	}
	first := c.Nodes[0]
	for i, node := range c.Nodes {
		if i < masters {
			node.Do("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(i*16384/masters), strconv.Itoa((i+1)*16384/masters-1))
		}
	}
	all := fmt.Sprintf("cluster_known_nodes:%d\r", len(c.Nodes))
	asked := time.Time{}
	for _, node := range c.Nodes {
		node.await("CLUSTER INFO", func(info string) bool {
			if time.Since(asked) > 3*time.Second { // a busy machine may lose a meeting
				for _, other := range c.Nodes[1:] {
					host, port, _ := net.SplitHostPort(other.Addr)
					first.Do("CLUSTER", "MEET", host, port)
				}
				asked = time.Now()
			}
			return strings.Contains(info, all)
		})
	}
	for i, node := range c.Nodes[masters:] {
		node.await("CLUSTER REPLICATE "+c.Nodes[i%masters].Do("CLUSTER", "MYID"),
			func(reply string) bool { return reply == "OK" })
	}
	for _, node := range c.Nodes {
		node.await("CLUSTER INFO", func(info string) bool { return strings.Contains(info, "cluster_state:ok") })
	}
	for _, node := range c.Nodes[masters:] {
		node.await("INFO replication", linkIsUp)
	}
	return c
}

// URL returns the URL of the cluster.
func (c *Cluster) URL() string {
	addrs := make([]string, len(c.Nodes))
	for i, node := range c.Nodes {
		addrs[i] = node.Addr
	}
	return "redis+cluster://" + strings.Join(addrs, ",")
}

// A Sentinels is a running master with one replica and three sentinels.
type Sentinels struct {
	Master, Replica *Server
	Watchers        []*Server
}

// StartSentinels starts them. A failover takes about two seconds.
func StartSentinels(t testing.TB) *Sentinels {
	t.Helper()
	sentinel := program(t, "valkey-sentinel", "redis-sentinel")
	s := &Sentinels{Master: Start(t)}
	host, masterPort, _ := net.SplitHostPort(s.Master.Addr)
	s.Replica = Start(t, "--replicaof", host+" "+masterPort, "--repl-diskless-sync-delay", "0")
	s.Replica.await("INFO replication", linkIsUp)
	for range 3 {
		addr := freeAddr(t)
		config := filepath.Join(t.TempDir(), "sentinel.conf")
		text := fmt.Sprintf("port %d\nbind %s\nsentinel monitor main %s %s 2\nsentinel down-after-milliseconds main 1000\n"+
			"sentinel failover-timeout main 5000\n", port(addr), host, host, masterPort)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s.Watchers = append(s.Watchers, start(t, sentinel, addr, config, "--sentinel"))
	}
	for _, watcher := range s.Watchers {
		watcher.await("SENTINEL CKQUORUM main", func(reply string) bool { return strings.HasPrefix(reply, "OK 3") })
		watcher.await("INFO sentinel", func(info string) bool { return strings.Contains(info, "slaves=1") })
	}
	return s
}

// URL returns the URL of the sentinels.
func (s *Sentinels) URL() string {
	addrs := make([]string, len(s.Watchers))
	for i, watcher := range s.Watchers {
		addrs[i] = watcher.Addr
	}
	return "redis+sentinel://" + strings.Join(addrs, ",") + "/main"
}

// linkIsUp reports whether a replica has all that its master has.
func linkIsUp(info string) bool { return strings.Contains(info, "master_link_status:up") }

func port(addr string) int {
	_, text, _ := net.SplitHostPort(addr)
	n, _ := strconv.Atoi(text)
	return n
}

func freeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func isFree(addr string) bool {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return false
	}
	l.Close()
	return true
}
