//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"fairshare/bench/internal/stand"
)

// A rival is a program between clients and the upstream.
type rival struct {
	name  string
	nginx string // its http block, without the upstream
	share string // setting in the policy of fairshare serve; "": no share

	inside bool // a Go program with a share

	byDefault bool // fairshare serve without a policy file
	swarms    bool // it is for people who have been reading, and has all swarms
}

const plainNginx = "client_header_timeout 60s;" // any directive: no limits

var limitedNginx = `limit_req_zone $binary_remote_addr zone=req:32m rate=10r/s;
	limit_conn_zone $binary_remote_addr zone=conn:32m;
	limit_req zone=req burst=20 nodelay;
	limit_conn conn 4;
	limit_req_status 429;
	limit_conn_status 429;
	limit_req_log_level info;
	limit_conn_log_level info;`

// site is one upstream.
type site struct {
	*stand.Process
	control string // URL
}

// start starts the upstream.
func startSite(dir string, workers int) (*site, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p, err := stand.Fairshare(dir, "upstream", []string{self, "-role", "upstream", "-workers", strconv.Itoa(workers)})
	if err != nil {
		return nil, err
	}
	said, err := os.ReadFile(p.Log)
	if err != nil {
		p.Stop()
		return nil, err
	}
	_, rest, _ := strings.Cut(string(said), "control ")
	control, _, _ := strings.Cut(rest, " ")
	return &site{p, control}, nil
}

// state gets the report of the upstream.
func (s *site) state(clients bool) (state, error) {
	query := ""
	if clients {
		query = "?clients=1"
	}
	var answer state
	resp, err := http.Get(s.control + "/state" + query)
	if err != nil {
		return answer, err
	}
	defer resp.Body.Close()
	return answer, json.NewDecoder(resp.Body).Decode(&answer)
}

// slower multiplies all times of the upstream.
func (s *site) slower(times int) error {
	resp, err := http.PostForm(s.control+"/slower", url.Values{"times": {strconv.Itoa(times)}})
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// policy returns the policy of fairshare serve.
func (r *rival) policy(upstream string, more string) string {
	text := "upstream: http://" + upstream + "\njournal: {file: journal}\n" + more
	if r.share != "" {
		text += "share: " + r.share + "\n"
	}
	return text + "rules:\n  - name: ceiling, never reached\n    limit: {requests: 100000000, per: 1h, by: addr}\n"
}

// front starts a rival in front of the upstream of a stage.
func (b *bench) front(ctx context.Context, s *stage, r *rival) (*stand.Process, error) {
	if r.nginx != "" {
		return stand.Nginx(s.dir, "nginx", fmt.Sprintf(`%s
	upstream site { server %s; keepalive 512; keepalive_requests 1000000; }
	server {
		listen ADDR backlog=4096;
		location / {
			proxy_pass http://site;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
			proxy_set_header Host $host;
			proxy_set_header X-Forwarded-For $remote_addr;
		}
	}`, r.nginx, s.site.Addr))
	}
	if r.inside {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		return stand.Fairshare(s.dir, "middleware", []string{self, "-role", "middleware", "-upstream", s.site.Addr,
			"-capacity", strconv.Itoa(*capacity)})
	}
	if r.byDefault {
		return stand.Fairshare(s.dir, "fairshare", []string{b.fairshare, "serve", "--upstream", "http://" + s.site.Addr,
			"--listen", "127.0.0.1:0", "--state", filepath.Join(s.dir, "state")})
	}
	file, err := stand.Write(s.dir, "serve/site.yaml", r.policy(s.site.Addr, s.more))
	if err != nil {
		return nil, err
	}
	args := []string{b.fairshare, "serve", "-c", file, "--listen", "127.0.0.1:0", "--state",
		filepath.Join(s.dir, "serve/state")}
	if s.socket == nil {
		return stand.Fairshare(s.dir, "fairshare", args)
	}
	// Like systemd, it passes a socket: only the new process knows its own process ID.
	args = append([]string{"/bin/sh", "-c", `LISTEN_FDS=1 LISTEN_PID=$$ exec "$@"`, "sh"}, args...)
	return stand.Fairshare(s.dir, "fairshare", args, s.socket)
}

// listenHere returns a socket that listens on loopback.
func listenHere() (*os.File, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	return l.(*net.TCPListener).File()
}

// addrIn returns address host (1 to 254) of the /24 n below 127.0.0.0/8.
func addrIn(network, host int) netip.Addr {
	return netip.AddrFrom4([4]byte{127, byte(network >> 8), byte(network), byte(host)})
}

// The first /24s of clients: people at 127.1.0.0, fleets at 127.2.0.0, new clients at
// 127.16.0.0.
const (
	peopleAt = 1 << 8
	fleetAt  = 2 << 8
	newAt    = 16 << 8
)
