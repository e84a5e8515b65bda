//go:build linux

package main

import (
	"fmt"
	"strings"

	"fairshare/bench/internal/stand"
)

// comparePeers compares serve with nginx, HAProxy and Caddy: one limit that no request reaches, or one that all
// requests but the first reach. One address may open only some hundred connections, so the tables of many
// connections have the clients of a proxy. They have no share: a request must not be refused because the
// upstream is busy.
func comparePeers(dir, site string, serve func(...string) []string, policy func(name, text string) string) error {
	const passed, refused = "HTTP/1.1 200 ", "HTTP/1.1 429 "
	pass := policy("peers.yaml", passPolicy)
	without := policy("peers-without.yaml", "fast_lane: false\n"+passPolicy)
	table := func(name string, size, conns int) error {
		if *only != "" && !strings.Contains(name, *only) {
			return nil
		}
		pass, without, forwarded := pass, without, conns > 256
		if forwarded {
			pass = policy("peers-many.yaml", noShare+manyPolicy)
			without = policy("peers-many-without.yaml", "fast_lane: false\n"+noShare+manyPolicy)
		}
		return compare(dir, site, name, []rival{
			{"nginx, limit_req", nil, passed, forwarded, conns, size,
				nginx("rate=1000000r/s", "burst=1000000 nodelay")},
			{"HAProxy, stick table", nil, passed, forwarded, conns, size, haproxy(100_000_000)},
			{"Caddy, no limit", nil, passed, forwarded, conns, size, caddy},
			{"fairshare serve, one limit", serve("-c", pass), passed, forwarded, conns, size, nil},
			{"the same, fast_lane: false", serve("-c", without), passed, forwarded, conns, size, nil},
		})
	}
	for _, size := range []int{100, 1 << 10, 10 << 10, 1 << 20} {
		if err := table(fmt.Sprintf("peers, %d bytes", size), size, 64); err != nil {
			return err
		}
	}
	for _, conns := range []int{1, 1000, 9000} {
		if err := table(fmt.Sprintf("peers, %d connections", conns), 1<<10, conns); err != nil {
			return err
		}
	}
	if *only == "" || strings.Contains("latency", *only) {
		if err := compareLatency(dir, site, []rival{
			{"nginx, limit_req", nil, passed, false, latencyConns, 1 << 10,
				nginx("rate=1000000r/s", "burst=1000000 nodelay")},
			{"HAProxy, stick table", nil, passed, false, latencyConns, 1 << 10, haproxy(100_000_000)},
			{"Caddy, no limit", nil, passed, false, latencyConns, 1 << 10, caddy},
			{"fairshare serve, one limit", serve("-c", pass), passed, false, latencyConns, 1 << 10, nil},
			{"the same, share: none", serve("-c", policy("peers-no-share.yaml", noShare+passPolicy)), passed, false,
				latencyConns, 1 << 10, nil},
		}); err != nil {
			return err
		}
	}
	if *only != "" && !strings.Contains("peers, refused", *only) {
		return nil
	}
	return compare(dir, site, "peers, refused", []rival{
		{"nginx, limit_req", nil, refused, false, 64, 0, nginx("rate=1r/m", "")},
		{"HAProxy, stick table", nil, refused, false, 64, 0, haproxy(1)},
		{"fairshare serve, with its journal", serve("-c", policy("peers-refuse.yaml", refusePolicy)), refused, false,
			64, 0, nil},
		{"the same, fast_lane: false", serve("-c", policy("peers-refuse-without.yaml",
			"fast_lane: false\n"+refusePolicy)), refused, false, 64, 0, nil},
	})
}

func nginx(rate, burst string) func(dir, site string) (*stand.Process, error) {
	if burst != "" {
		burst = " " + burst
	}
	return func(dir, site string) (*stand.Process, error) {
		return stand.Nginx(dir, "nginx", fmt.Sprintf(`
	limit_req_zone $binary_remote_addr zone=addr:10m %s;
	limit_req_status 429;
	upstream site { server %s; keepalive 512; keepalive_requests 1000000; }
	server {
		listen ADDR;
		location / {
			limit_req zone=addr%s;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
			proxy_set_header Host $host;
			proxy_set_header X-Forwarded-For $remote_addr;
			proxy_pass http://site;
		}
	}`, rate, strings.TrimPrefix(site, "http://"), burst))
	}
}

// haproxy refuses a client after most requests in an hour.
func haproxy(most int) func(dir, site string) (*stand.Process, error) {
	return func(dir, site string) (*stand.Process, error) {
		program, err := stand.Find("haproxy")
		if err != nil {
			return nil, err
		}
		addr, err := stand.Free()
		if err != nil {
			return nil, err
		}
		config, err := stand.Write(dir, "haproxy.cfg", fmt.Sprintf(`
global
	maxconn 9900
defaults
	mode http
	timeout connect 5s
	timeout client 60s
	timeout server 60s
	option forwardfor
frontend in
	bind %s
	stick-table type ip size 100k expire 1h store http_req_rate(1h)
	http-request track-sc0 src
	http-request deny deny_status 429 if { sc_http_req_rate(0) gt %d }
	default_backend site
backend site
	http-reuse always
	server one %s
`, addr, most, strings.TrimPrefix(site, "http://")))
		if err != nil {
			return nil, err
		}
		return await(stand.Start(dir, "haproxy", []string{program, "-db", "-f", config}))(addr)
	}
}

func caddy(dir, site string) (*stand.Process, error) {
	program, err := stand.Find("caddy")
	if err != nil {
		return nil, err
	}
	addr, err := stand.Free()
	if err != nil {
		return nil, err
	}
	config, err := stand.Write(dir, "Caddyfile", fmt.Sprintf(`{
	admin off
	auto_https off
}
:%s {
	bind 127.0.0.1
	reverse_proxy %s
}
`, addr[strings.LastIndexByte(addr, ':')+1:], strings.TrimPrefix(site, "http://")))
	if err != nil {
		return nil, err
	}
	run := []string{program, "run", "--adapter", "caddyfile", "--config", config}
	return await(stand.Start(dir, "caddy", run))(addr)
}

// await waits until a started process listens.
func await(p *stand.Process, err error) func(addr string) (*stand.Process, error) {
	return func(addr string) (*stand.Process, error) {
		if err != nil {
			return nil, err
		}
		p.Addr = addr
		return p, p.Await("tcp", addr)
	}
}
