package livepolicy

import (
	"context"
	"strings"
	"time"

	"fairshare/internal/setup"
	"fairshare/policyfile"
	"fairshare/robots"
)

// robotsTimeout bounds one question for a robots.txt.
const robotsTimeout = 10 * time.Second

// robotsOf returns the robots.txt of the site's hosts for a runtime; nil if no rule
// looks at them.
func (p *Policy) robotsOf(rt *Runtime) *robots.Sites {
	if !rt.File.UsesRobots() {
		return nil
	}
	return p.robots
}

// useRobots sets the hosts whose robots.txt is asked for.
func (p *Policy) useRobots(rt *Runtime) {
	if !rt.File.UsesRobots() {
		p.robots.SetHosts(nil)
		return
	}
	p.robots.SetHosts(robotsHosts(rt.File))
}

// robotsHosts returns the names in hosts. If there are none, a file holds for all
// hosts that are not known by themselves.
func robotsHosts(file *policyfile.File) []string {
	if len(file.Hosts) == 0 {
		return []string{robots.DefaultHost}
	}
	var hosts []string
	for _, host := range file.Hosts {
		if !strings.HasPrefix(host, "*.") {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// botOfToken returns the name of the bot that a product token of a robots.txt
// names.
func (p *Policy) botOfToken(token string) string {
	rt := p.current.Load()
	if rt == nil {
		return ""
	}
	return setup.BotOfToken(rt.Bots.Table, token)
}

// RunRobots asks for the robots.txt of the site's hosts: at the start, every
// hour, and when a verified bot visits a host that is not known. It returns when ctx
// ends. ask is httpguard.Handler.AskRobots.
func (p *Policy) RunRobots(ctx context.Context, ask func(ctx context.Context, host string)) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		for _, host := range p.robots.Wanted(p.Now()) {
			ctx, cancel := context.WithTimeout(ctx, robotsTimeout)
			ask(ctx, host)
			cancel()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
