//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"
)

// Rate limit services: programs of their own that decide by gRPC. They are built with "go install".
const (
	gubernatorProgram = "github.com/gubernator-io/gubernator/v2/cmd/gubernator@v2.16.0"
	ratelimitProgram  = "github.com/envoyproxy/ratelimit/src/service_cmd@v1.4.1-0.20260122083618-3fb702589d36"
)

// A service is a running rate limit service, and a connection to it.
type service struct {
	command *exec.Cmd
	conn    *grpc.ClientConn
}

// startService builds and starts a program, and connects to addr.
func startService(dir, program, addr string, env ...string) (*service, error) {
	path, _, _ := strings.Cut(program, "@")
	path = filepath.Join(dir, filepath.Base(path))
	if _, err := os.Stat(path); err != nil {
		build := exec.Command("go", "install", program)
		build.Env, build.Dir = append(os.Environ(), "GOBIN="+dir), dir
		if out, err := build.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("go install %s: %w\n%s", program, err, out)
		}
	}
	s := &service{command: exec.Command(path)}
	s.command.Env = append(os.Environ(), env...)
	s.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.command.Start(); err != nil {
		return nil, err
	}
	var err error
	s.conn, err = grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(plain{})))
	return s, err
}

func (s *service) stop() {
	s.conn.Close()
	_ = s.command.Process.Kill()
	_, _ = s.command.Process.Wait()
}

// cpu returns the CPU seconds of the service.
func (s *service) cpu() float64 {
	total := 0.0
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", s.command.Process.Pid))
	for _, task := range tasks {
		data, _ := os.ReadFile(task)
		ns, _, _ := strings.Cut(string(data), " ")
		n, _ := strconv.ParseFloat(ns, 64)
		total += n / 1e9
	}
	return total
}

// call sends a message and returns the answer.
func (s *service) call(ctx context.Context, method string, message []byte) ([]byte, error) {
	var answer []byte
	return answer, s.conn.Invoke(ctx, method, &message, &answer, grpc.WaitForReady(true))
}

// find returns the number or the text of a field, and whether the message has it. Numbers of 0 are left out.
func find(message []byte, field protowire.Number) (number uint64, text []byte, found bool) {
	for len(message) > 0 {
		is, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return 0, nil, false
		}
		message = message[n:]
		if n = protowire.ConsumeFieldValue(is, kind, message); n < 0 {
			return 0, nil, false
		}
		if is == field {
			switch kind {
			case protowire.VarintType:
				number, _ = protowire.ConsumeVarint(message)
			case protowire.BytesType:
				text, _ = protowire.ConsumeBytes(message)
			}
			return number, text, true
		}
		message = message[n:]
	}
	return 0, nil, false
}

// plain is the codec of messages that are bytes already.
type plain struct{}

func (plain) Name() string                  { return "proto" }
func (plain) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (plain) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}

func text(b []byte, field protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

func number(b []byte, field protowire.Number, n uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), n)
}

// freePorts returns n ports of 127.0.0.1 that nothing listens on.
func freePorts(n int) ([]string, error) {
	var ports []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports = append(ports, strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	}
	return ports, nil
}

// startGubernator starts one peer, which counts in its own memory.
func startGubernator(dir string) (*service, subject, error) {
	ports, err := freePorts(3)
	if err != nil {
		return nil, subject{}, err
	}
	addr := "127.0.0.1:" + ports[0]
	s, err := startService(dir, gubernatorProgram, addr, "GUBER_GRPC_ADDRESS="+addr, "GUBER_ADVERTISE_ADDRESS="+addr,
		"GUBER_HTTP_ADDRESS=127.0.0.1:"+ports[1], "GUBER_PEER_DISCOVERY_TYPE=member-list",
		"GUBER_MEMBERLIST_ADDRESS=127.0.0.1:"+ports[2], "GUBER_MEMBERLIST_BIND_ADDRESS=127.0.0.1:"+ports[2],
		"GUBER_MEMBERLIST_KNOWN_NODES=127.0.0.1:"+ports[2],
		"GUBER_CACHE_SIZE=500000", "GUBER_LOG_LEVEL=error")
	if err != nil {
		return nil, subject{}, err
	}
	return s, subject{"gubernator v2, one peer", func(ctx context.Context, client string, limits int) (bool, error) {
		var message []byte
		for i := range limits { // one call for all limits
			one := text(text(nil, 1, suffixes[i]), 2, client)
			one = number(number(number(one, 3, 1), 4, allowed), 5, uint64(window.Milliseconds()))
			message = protowire.AppendTag(message, 1, protowire.BytesType)
			message = protowire.AppendBytes(message, one)
		}
		answer, err := s.call(ctx, "/pb.gubernator.V1/GetRateLimits", message)
		if err != nil {
			return false, err
		}
		_, first, _ := find(answer, 1)
		if _, text, failed := find(first, 5); failed {
			return false, errors.New(string(text))
		}
		over, _, _ := find(first, 1)
		return over == 0, nil
	}, s.cpu}, nil
}

// startRatelimit starts Envoy's rate limit service, which counts in the store.
func startRatelimit(dir string, store *server) (*service, subject, error) {
	ports, err := freePorts(3)
	if err != nil {
		return nil, subject{}, err
	}
	config := "domain: bench\ndescriptors:\n"
	for _, key := range suffixes {
		config += fmt.Sprintf("  - {key: %q, rate_limit: {unit: minute, requests_per_unit: %d}}\n", key, allowed)
	}
	if err := os.MkdirAll(filepath.Join(dir, "ratelimit", "config"), 0o755); err != nil {
		return nil, subject{}, err
	}
	if err := os.WriteFile(filepath.Join(dir, "ratelimit", "config", "bench.yaml"), []byte(config), 0o600); err != nil {
		return nil, subject{}, err
	}
	s, err := startService(dir, ratelimitProgram, "127.0.0.1:"+ports[0], "GRPC_HOST=127.0.0.1",
		"GRPC_PORT="+ports[0], "HOST=127.0.0.1", "PORT="+ports[1], "DEBUG_HOST=127.0.0.1",
		"DEBUG_PORT="+ports[2], "REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+store.addr,
		"REDIS_POOL_SIZE="+strconv.Itoa(atOnce), "USE_STATSD=false", "LOG_LEVEL=error", "RUNTIME_ROOT="+dir,
		"RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false")
	if err != nil {
		return nil, subject{}, err
	}
	return s, subject{"envoyproxy/ratelimit", func(ctx context.Context, client string, limits int) (bool, error) {
		message := text(nil, 1, "bench")
		for i := range limits { // one call for all limits
			entry := text(text(nil, 1, suffixes[i]), 2, client)
			descriptor := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), entry)
			message = protowire.AppendBytes(protowire.AppendTag(message, 2, protowire.BytesType), descriptor)
		}
		answer, err := s.call(ctx, "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", message)
		code, _, found := find(answer, 1)
		if err == nil && !found {
			err = errors.New("the service knows no limit")
		}
		return code == 1, err
	}, s.cpu}, nil
}

// startServices starts the services, and waits until they decide.
func startServices(store *server) (subjects []subject, stop func(), err error) {
	dir, err := os.MkdirTemp("", "fairshare-store")
	if err != nil {
		return nil, nil, err
	}
	var running []*service
	stop = func() {
		for _, s := range running {
			s.stop()
		}
		os.RemoveAll(dir)
	}
	starts := []func() (*service, subject, error){
		func() (*service, subject, error) { return startRatelimit(dir, store) },
		func() (*service, subject, error) { return startGubernator(dir) },
	}
	for _, start := range starts {
		s, asked, err := start()
		if err == nil {
			running = append(running, s)
			err = awaitService(&asked)
		}
		if err != nil {
			stop()
			return nil, nil, err
		}
		subjects = append(subjects, asked)
	}
	return subjects, stop, nil
}

// awaitService waits until a service decides, and counts.
func awaitService(s *subject) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for {
		_, err := s.decide(ctx, "the first", len(suffixes))
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	passed := 0
	for _, client := range []string{"the second", "the third"} { // a minute may end during one of them
		passed = 0
		for range 2 * allowed {
			ok, err := s.decide(ctx, client, 1)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			if ok {
				passed++
			}
		}
		if passed >= allowed && passed <= allowed*11/10 { // it may forget some in a moment
			return nil
		}
	}
	return fmt.Errorf("%s: %d of %d requests passed", s.name, passed, allowed)
}
