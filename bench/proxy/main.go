//go:build linux

// Proxy measures the cost of fairshare serve: CPU seconds of its process for 100,000
// requests, compared with the same work by net/http alone.
//
//	go run ./proxy            # in bench/; builds fairshare from the module above
//
// Passed requests are compared with a bare, equally tuned
// httputil.ReverseProxy; refused ones with a handler that writes the same
// answer. All rivals run at the same time and take turns of some thousand requests, so
// that other load on the machine affects all of them. The client and the upstream run in
// this process and are not counted.
//
// The tables of peers compare serve with nginx, HAProxy and Caddy, which must be installed, for
// answers of several lengths, and for one to 9,000 connections. The table of latencies has
// requests at fixed rates.
//
//	go run ./proxy -only peers
//	go run ./proxy -only latency
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"fairshare/bench/internal/stand"
)

var (
	rounds   = flag.Int("rounds", 40, "turns of each rival")
	requests = flag.Int("requests", 5_000, "requests per turn")
	conns    = flag.Int("conns", 16, "concurrent connections")
	only     = flag.String("only", "", "tables whose name contains this")
	role     = flag.String("role", "", "the role of a child process: bare, plain")
	upstream = flag.String("upstream", "", "for the child")
)

func main() {
	flag.Parse()
	switch *role {
	case "bare":
		serveChild(bareProxy())
		return
	case "plain":
		serveChild(plainAnswer())
		return
	}
	if err := measureAll(); err != nil {
		log.Fatal(err)
	}
}

// bareProxy is a ReverseProxy that is tuned for speed and keeps the Host and
// X-Forwarded-For right.
func bareProxy() http.Handler {
	target, err := url.Parse(*upstream)
	if err != nil {
		log.Fatal(err)
	}
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host
			r.SetXForwarded()
		},
		Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 1024,
			ResponseHeaderTimeout: time.Minute},
		BufferPool: &buffers{},
	}
}

type buffers struct{ pool sync.Pool }

func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[32 << 10]byte); ok {
		return p[:]
	}
	return make([]byte, 32<<10)
}

func (b *buffers) Put(p []byte) { b.pool.Put((*[32 << 10]byte)(p)) }

// plainAnswer writes fairshare's answer to a refused request.
func plainAnswer() http.Handler {
	body := []byte(
		"429 Too many requests: You have sent too many requests. Please wait 60 minutes. Rule: one an hour. Reference: 0123456789.\n")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Type", "text/plain; charset=utf-8")
		h.Set("Retry-After", "3600")
		h.Set("RateLimit-Policy", `"one an hour";q=1;w=3600`)
		h.Set("RateLimit", `"one an hour";r=0;t=3600`)
		w.WriteHeader(http.StatusTooManyRequests)
		w.Write(body)
	})
}

// serveChild serves on a port that the kernel chooses, and prints it.
func serveChild(h http.Handler) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Fprintf(os.Stderr, "child: http://%s protects\n", l.Addr())
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	log.Fatal(srv.Serve(l))
}

// A rival is a process to measure.
type rival struct {
	name string
	args []string
	want string // start of each answer

	forwarded bool // requests come from ten thousand clients of a proxy
	conns     int  // concurrent connections; 0: -conns
	size      int  // of the answers; 0: 1 KiB

	peer func(dir, site string) (*stand.Process, error) // starts it instead of args
}

// requests returns the number of requests per turn: fewer if their answers are long.
func (r *rival) requests() int {
	if r.size >= 1<<20 {
		return max(*requests/20, 1)
	}
	return *requests
}

// calm is a number of connections with which no request waits for a turn: half of the 8 slots that
// serve has after a quiet start stay free.
const calm = 3

const (
	passPolicy    = "rules:\n  - name: ceiling\n    limit: {requests: 100000000, per: 1h, by: addr}\n"
	manyPolicy    = "clients: {trusted_proxies: loopback}\n" + passPolicy
	noShare       = "share: none\n"
	builtInPolicy = "clients: {trusted_proxies: loopback}\nrules: [{use: default}]\n"
	refusePolicy  = "rules:\n  - name: one an hour\n    limit: {requests: 1, per: 1h, by: addr, algorithm: quiet}\n"
)

func measureAll() error {
	dir, err := os.MkdirTemp("", "fairshare-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fairshare := filepath.Join(dir, "fairshare")
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "fairshare").Output()
	if err != nil {
		return fmt.Errorf("looking for fairshare: %w", err)
	}
	build := exec.Command("go", "build", "-o", fairshare, "./cmd/fairshare")
	build.Dir = strings.TrimSpace(string(module))
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building fairshare: %w\n%s", err, out)
	}
	site, err := startSite()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	policy := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			log.Fatal(err)
		}
		return path
	}
	states := 0
	serve := func(args ...string) []string {
		states++
		return append([]string{fairshare, "serve", "--listen", "127.0.0.1:0", "--upstream", site, "--state",
			filepath.Join(dir, fmt.Sprint("state", states))}, args...)
	}
	const passed, refused = "HTTP/1.1 200 ", "HTTP/1.1 429 "
	for _, table := range []struct {
		name   string
		rivals []rival // the others are compared with the first
	}{
		{"passed", []rival{
			{"bare tuned ReverseProxy", []string{self, "-role", "bare", "-upstream", site}, passed, false, 0, 0, nil},
			{"fairshare serve, one limit", serve("-c", policy("pass.yaml", passPolicy)), passed, false, 0, 0, nil},
		}},
		{"passed, 10,000 clients", []rival{
			{"bare tuned ReverseProxy", []string{self, "-role", "bare", "-upstream", site}, passed, true, 0, 0, nil},
			{"fairshare serve, built-in policy", serve("-c", policy("built-in.yaml", builtInPolicy)), passed, true, 0,
				0, nil},
		}},
		{"refused", []rival{
			{"net/http handler, same answer", []string{self, "-role", "plain"}, refused, false, 0, 0, nil},
			{"fairshare serve, with its journal", serve("-c", policy("refuse.yaml", refusePolicy)), refused, false, 0,
				0, nil},
		}},
		{"the registry, one client", []rival{
			{"fairshare serve --registry none", serve("-c", policy("pass.yaml", passPolicy), "--registry", "none"),
				passed, false, 0, 0, nil},
			{"fairshare serve", serve("-c", policy("pass.yaml", passPolicy)), passed, false, 0, 0, nil},
		}},
		{"the registry, 10,000 clients", []rival{
			{"fairshare serve --registry none", serve("-c", policy("many.yaml", manyPolicy), "--registry", "none"),
				passed, true, 0, 0, nil},
			{"fairshare serve", serve("-c", policy("many.yaml", manyPolicy)), passed, true, 0, 0, nil},
		}},
		{"the share, one client", []rival{
			{"fairshare serve, share: none", serve("-c", policy("no-share.yaml", noShare+passPolicy)),
				passed, false, calm, 0, nil},
			{"fairshare serve, share: none again", serve("-c", policy("no-share.yaml", noShare+passPolicy)),
				passed, false, calm, 0, nil},
			{"fairshare serve", serve("-c", policy("pass.yaml", passPolicy)), passed, false, calm, 0, nil},
		}},
		{"the share, 10,000 clients", []rival{
			{"fairshare serve, share: none", serve("-c", policy("many-no-share.yaml", noShare+manyPolicy)),
				passed, true, calm, 0, nil},
			{"fairshare serve, share: none again", serve("-c", policy("many-no-share.yaml", noShare+manyPolicy)),
				passed, true, calm, 0, nil},
			{"fairshare serve", serve("-c", policy("many.yaml", manyPolicy)), passed, true, calm, 0, nil},
		}},
	} {
		if *only != "" && !strings.Contains(table.name, *only) {
			continue
		}
		if err := compare(dir, site, table.name, table.rivals); err != nil {
			return err
		}
	}
	return comparePeers(dir, site, serve, policy)
}

func compare(dir, site, title string, rivals []rival) error {
	children, stop, err := startAll(dir, site, rivals)
	defer stop()
	if err != nil {
		return err
	}
	total := make([]float64, len(rivals)) // including background work, also during turns of others
	for i, c := range children {
		total[i] = -cpuOf(c.pid)
	}
	ratio := make([][]float64, len(rivals))
	for round := range *rounds {
		turn := make([]float64, len(rivals))
		for i := range rivals {
			who := (i + round) % len(rivals)
			before := cpuOf(children[who].pid)
			if err := load(children[who].addr, rivals[who], rivals[who].requests()); err != nil {
				return fmt.Errorf("%s: %w", rivals[who].name, err)
			}
			turn[who] = cpuOf(children[who].pid) - before
		}
		for i := range rivals {
			ratio[i] = append(ratio[i], turn[i]/turn[0])
		}
	}
	for i, c := range children {
		total[i] += cpuOf(c.pid)
	}
	fmt.Printf("| %s | CPU s/100 k | ratio | half of the turns |\n|---|---|---|---|\n", title)
	for i, r := range rivals {
		slices.Sort(ratio[i])
		n := len(ratio[i])
		fmt.Printf("| %s | %.2f | %.2f | %.2f–%.2f |\n", r.name, total[i]*100_000/float64(*rounds*r.requests()),
			ratio[i][n/2], ratio[i][n/4], ratio[i][n*3/4])
	}
	fmt.Println()
	return nil
}

// A child is a running rival.
type child struct {
	cmd  *exec.Cmd // nil for a peer
	pid  int
	addr string
	stop func()
}

// startAll starts all rivals and warms them up. stop ends those that were started, also after an error.
func startAll(dir, site string, rivals []rival) (children []*child, stop func(), err error) {
	stop = func() {
		for _, c := range children {
			c.stop()
		}
	}
	for _, r := range rivals {
		c, err := start(dir, site, r)
		if err != nil {
			return children, stop, fmt.Errorf("%s: %w", r.name, err)
		}
		children = append(children, c)
		if err := load(c.addr, r, 2*r.requests()); err != nil {
			return children, stop, fmt.Errorf("%s: %w", r.name, err)
		}
	}
	return children, stop, nil
}

func start(dir, site string, r rival) (*child, error) {
	if r.peer != nil {
		p, err := r.peer(dir, site)
		if err != nil {
			return nil, err
		}
		return &child{pid: p.Pid(), addr: p.Addr, stop: func() { p.Stop() }}, nil
	}
	c := &child{cmd: exec.Command(r.args[0], r.args[1:]...)}
	stderr, err := c.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	journal, err := os.Create(filepath.Join(dir, "journal"))
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	c.pid, c.stop = c.cmd.Process.Pid, func() {
		c.cmd.Process.Kill()
		c.cmd.Wait()
	}
	if c.addr, err = address(stderr, journal); err != nil {
		c.stop()
		return nil, err
	}
	return c, nil
}

// address reads the address of a child from its output, and continues to copy its output.
func address(stderr io.Reader, sink io.Writer) (string, error) {
	r := bufio.NewReaderSize(stderr, 1<<20)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return "", fmt.Errorf("the child printed no address: %w", err)
		}
		if before, _, found := strings.Cut(line, " protects"); found {
			go io.Copy(sink, r)
			_, addr, _ := strings.Cut(before, "http://")
			return addr, nil
		}
	}
}

// cpuOf returns the CPU seconds that the threads of a process and of its children took so far.
func cpuOf(pid int) float64 {
	total := 0.0
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		data, err := os.ReadFile(list)
		if err != nil {
			continue
		}
		for text := range strings.FieldsSeq(string(data)) {
			if child, err := strconv.Atoi(text); err == nil {
				total += cpuOf(child)
			}
		}
	}
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		log.Fatal(err)
	}
	for _, task := range tasks {
		data, err := os.ReadFile(task)
		if err != nil {
			continue
		}
		var ns float64
		fmt.Sscan(string(data), &ns)
		total += ns / 1e9
	}
	return total
}

// sent counts the requests of all turns.
var sent int64

// load sends n requests over keep-alive connections and checks each answer.
func load(addr string, r rival, requests int) error {
	var left atomic.Int64
	left.Store(int64(requests))
	n := cmp.Or(r.conns, *conns)
	failed := make(chan error, n)
	for range n {
		go func() { failed <- client(addr, r, sent, &left) }()
	}
	sent += int64(requests)
	var first error
	for range n {
		if err := <-failed; err != nil && first == nil {
			first = err
		}
	}
	return first
}

func client(addr string, rival rival, clients int64, left *atomic.Int64) error {
	c, err := dial(addr, rival)
	if err != nil {
		return err
	}
	defer c.Close()
	for {
		n := left.Add(-1)
		if n < 0 {
			return nil
		}
		if err := c.request(n + clients); err != nil {
			return err
		}
	}
}

// A caller sends one request after the other on a connection.
type caller struct {
	net.Conn
	rival rival
	head  string
	r     *bufio.Reader
	buf   []byte
}

func dial(addr string, rival rival) (*caller, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	head := fmt.Sprintf("GET /page?id=7&size=%d", rival.size) + " HTTP/1.1\r\nHost: site.example\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n" +
		"Accept: */*\r\nAccept-Language: en\r\nAccept-Encoding: gzip\r\nCookie: session=0123456789abcdef\r\n"
	return &caller{Conn: conn, rival: rival, head: head, r: bufio.NewReader(conn)}, nil
}

// request sends a request, of client n modulo 10,000, and reads its answer.
func (c *caller) request(n int64) error {
	c.buf = append(c.buf[:0], c.head...)
	if c.rival.forwarded { // ten thousand clients, spread over a /8
		spread := uint32(n) % 10_000 * 2654435761
		c.buf = fmt.Appendf(c.buf, "X-Forwarded-For: 10.%d.%d.%d\r\n", spread>>8&255, spread>>16&255, spread>>24)
	}
	c.buf = append(c.buf, "\r\n"...)
	if _, err := c.Write(c.buf); err != nil {
		return err
	}
	status, err := c.r.ReadString('\n')
	if err != nil {
		return err
	}
	// The first request of a client passes; the others are refused.
	if !strings.HasPrefix(status, c.rival.want) && !strings.HasPrefix(status, "HTTP/1.1 200 ") {
		return fmt.Errorf("answer %q, want %q", status, c.rival.want)
	}
	length := 0
	for {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return err
		}
		if len(line) == 2 {
			break
		}
		if name, value, _ := strings.Cut(string(line), ": "); strings.EqualFold(name, "Content-Length") {
			fmt.Sscan(value, &length)
		}
	}
	_, err = c.r.Discard(length)
	return err
}

// startSite starts the upstream: a small page.
func startSite() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	page := []byte(strings.Repeat("welcome ", 128))
	long := bytes.Repeat([]byte("x"), 1<<20)
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		size, _ := strconv.Atoi(r.URL.Query().Get("size"))
		if size == 0 {
			w.Write(page)
			return
		}
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Content-Length", strconv.Itoa(size))
		w.Write(long[:size])
	}))
	return "http://" + l.Addr().String(), nil
}
