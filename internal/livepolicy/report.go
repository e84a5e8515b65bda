package livepolicy

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"fairshare"

	"fairshare/policyfile"
	"fairshare/registry"
)

// FrequentReport returns lines for the log about the last seconds: refused
// clients, an expensive client, fleets, errors of the counters. Call it every five
// seconds.
func (p *Policy) FrequentReport() []string {
	p.FlushReports()
	now := p.Now()
	lines := p.census.Tick(now)
	capacity := 0
	if stats := p.Current().queueStats(); stats != nil {
		capacity = stats.Capacity
	}
	if line := p.census.Heavy(now, capacity); line != "" {
		lines = append(lines, line)
	}
	p.state.publishHolder(p.census.Holder(), p.Wall(now))
	lines = append(lines, p.fleetReport(now)...)
	lines = append(lines, p.loginReport()...)
	if line := p.errors.report(now); line != "" {
		lines = append(lines, line)
	}
	if p.Attack() == "" { // while it is on, MinuteReport says so
		if line := p.attackReport(); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// MinuteReport returns lines for the log about the last minute: memory for
// counters, proxies in front, waiting requests. Call it once a minute.
func (p *Policy) MinuteReport(ctx context.Context) []string {
	var lines []string
	p.refreshSecrets()
	if line := p.memoryReport(); line != "" {
		lines = append(lines, line)
	}
	lines = append(lines, p.ProxyReport()...)
	lines = append(lines, p.queueReport()...)
	if line := p.attackReport(); line != "" {
		lines = append(lines, line)
	}
	if p.state.settingsPending {
		p.state.publishSettings(ctx, p.Current())
	}
	p.startExport() // if this process has got the state folder only now
	return lines
}

// FinalReport returns the last lines for the log, after the last request.
func (p *Policy) FinalReport() []string {
	p.FlushReports()
	lines := p.ProxyReport()
	lines = append(lines, p.queueReport()...)
	if line := p.attackReport(); line != "" {
		lines = append(lines, line)
	}
	return append(lines, p.census.End(p.Now())...)
}

// ProxyReport returns the errors in the configuration of the proxies in front
// that were found since the last call.
func (p *Policy) ProxyReport() []string {
	lines := p.watch.Reports(p.Now(), p.Current().Clients)
	for i, line := range lines {
		lines[i] = "error: " + line
	}
	return lines
}

// memoryReport warns if counters were dropped since the last call.
func (p *Policy) memoryReport() (line string) {
	stats := p.Current().Limiter.Stats(p.Now())
	if stats.Lost > p.reportedLost {
		line = fmt.Sprintf("the memory for counters is too small: %d were dropped in the last minute; "+
			"memory: %s would be enough", stats.Lost-p.reportedLost, policyfile.FormatSize(stats.Needed))
	}
	p.reportedLost = stats.Lost
	return line
}

// DescribeState returns where the state folder is and what was found in it.
func (p *Policy) DescribeState() string { return p.state.describe() }

// HasRegistry reports whether there is a registry.
func (p *Policy) HasRegistry() bool { return p.state.registrar != nil }

// Registry returns the registry to read; nil if there is none. A restored backup may replace it: ask each
// time.
func (p *Policy) Registry() registry.Reader {
	if p.state.store == nil {
		return nil
	}
	return p.state.store.reader()
}

// Folder returns the state folder; "" if nothing outlives the process.
func (p *Policy) Folder() string { return p.state.folder }

// Holder names the client, network, fleet or owner that held most of a busy upstream in the last minute; ""
// if there was none.
func (p *Policy) Holder() string { return p.census.Holder() }

// Override returns what finds operators' decisions about a client; nil without a registry.
func (p *Policy) Override() func(netip.Addr, fairshare.Bot, time.Time) fairshare.Override {
	return p.state.override()
}
