package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	goruntime "runtime"
	"strconv"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/internal/cli"
	"fairshare/internal/cputime"
	"fairshare/policyfile"
)

// A meter samples the upstream's CPU time. A nil *meter does nothing.
type meter struct {
	*cputime.Sampler
	settings meterSettings
	stop     func() // ends what start began; nil before
}

// meterSettings are the settings of a meter. A meter with other settings is another
// meter.
type meterSettings struct {
	policyfile.UpstreamCPU
	listening string
}

// openMeter returns the meter that a policy file asks for; old if its settings are
// the same.
func openMeter(file *policyfile.File, upstream *url.URL, log func(string), old *meter) (*meter, error) {
	settings := meterSettings{file.UpstreamCPU, listening(upstream)}
	opts := cputime.Options{
		PIDFile: file.ResolvePath(settings.PIDFile), Listening: settings.listening, Cgroup: settings.Cgroup,
		Every: settings.Every, Cores: cores(file), Log: log,
	}
	switch settings.From {
	case "process":
		opts.From = cputime.Process
	case "cgroup":
		opts.From = cputime.Cgroup
	default:
		return nil, nil
	}
	if old != nil && old.settings == settings {
		return old, nil
	}
	sampler, err := cputime.Open(opts)
	if sampler == nil {
		var hinted interface{ Hint() string }
		if errors.As(err, &hinted) {
			return nil, cli.Hint(fmt.Errorf("upstream: cpu: %w", err), hinted.Hint())
		}
		return nil, fmt.Errorf("upstream: cpu: %w", err)
	}
	if err != nil { // the process may start later
		log(fmt.Sprintf("warning: upstream: cpu: requests are charged the time they take until it can be read: %s",
			cli.OneLine(err)))
	}
	return &meter{Sampler: sampler, settings: settings}, nil
}

// start samples until stop. It does nothing if the meter has started already.
func (m *meter) start() {
	if m == nil || m.stop != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.Run(ctx)
	}()
	m.stop = func() {
		cancel()
		<-ended
	}
}

// end ends what start began, unless next continues to use the meter. It settles the
// requests that are not settled yet.
func (m *meter) end(next *meter) {
	if m == nil || m == next {
		return
	}
	m.start() // Run closes what the meter has open
	m.stop()
}

// asMeter returns m as a Meter; nil for a nil *meter.
func (m *meter) asMeter() httpguard.Meter {
	if m == nil {
		return nil
	}
	return m.Sampler
}

// cores is how many cores the upstream has.
func cores(file *policyfile.File) float64 {
	return cmp.Or(file.UpstreamCPU.Cores, float64(goruntime.NumCPU()))
}

// listening returns where an upstream listens: host and port.
func listening(upstream *url.URL) string {
	if upstream == nil { // several
		return ""
	}
	if upstream.Port() != "" {
		return upstream.Host
	}
	if upstream.Scheme == "https" {
		return upstream.Host + ":443"
	}
	return upstream.Host + ":80"
}

// costSource describes where the costs of requests come from; "" if no rule needs
// them.
func (rt *runtime) costSource() string {
	cpu, units := rt.cpuSource(), rt.unitSource()
	if cpu != "" && units != "" {
		return cpu + "; " + units
	}
	return cpu + units
}

// unitSource describes where units of cost come from.
func (rt *runtime) unitSource() string {
	switch c := &rt.File.UpstreamCost; {
	case c.Header != "":
		return fmt.Sprintf("units by %s of the upstream, %d of one answer at most", c.Header, c.Max)
	case rt.limits(fairshare.Cost):
		return "units are not reported: each request costs 1; upstream: {cost: {header: …}} names a header"
	}
	return ""
}

// cpuSource describes where CPU time comes from.
func (rt *runtime) cpuSource() string {
	c := &rt.File.UpstreamCPU
	s, hint := "", ""
	switch {
	case metric(c) != "":
		s = fmt.Sprintf("CPU time by Server-Timing: %s of the upstream", metric(c))
	case rt.meter != nil:
		s = "CPU time of " + rt.meter.settings.source() + ", sampled"
	case rt.limits(fairshare.CPU):
		s, hint = "CPU time is not measured: the duration of a request counts instead",
			"; upstream: {cpu: {from: …}} names a source"
	default:
		return ""
	}
	if cores := cores(rt.File); cores != 1 {
		return s + ", " + strconv.FormatFloat(cores, 'g', 4, 64) + " cores" + hint
	}
	return s + ", one core" + hint
}

// source describes what is sampled.
func (s *meterSettings) source() string {
	switch {
	case s.From == "cgroup":
		return "cgroup " + s.Cgroup
	case s.PIDFile != "":
		return "the process in " + s.PIDFile + " and its children"
	}
	return "what listens at " + s.listening + " and its children"
}

// limits reports whether a rule limits a resource.
func (rt *runtime) limits(r fairshare.Resource) bool {
	for i := range rt.File.Policy.Rules {
		if l := rt.File.Policy.Rules[i].Limit; l != nil && l.Resource == r {
			return true
		}
	}
	return false
}

// metric returns the metric in which the upstream reports CPU time; "" for none.
func metric(c *policyfile.UpstreamCPU) string {
	if c.From != "server-timing" {
		return ""
	}
	return cmp.Or(c.Metric, policyfile.DefaultMetric)
}
