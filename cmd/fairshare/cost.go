package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"runtime"
	"strconv"

	"fairshare"
	"fairshare/internal/cputime"
	"fairshare/policyfile"
)

// A meter measures the upstream's CPU time while serve runs. nil measures
// nothing.
type meter struct {
	*cputime.Sampler
	terms meterTerms
	stop  func() // ends what start began; nil before
}

// meterTerms are what makes a meter another one.
type meterTerms struct {
	policyfile.UpstreamCPU
	listening string
}

// openMeter returns what a policy file asks for; the old one if that asked for
// the same.
func openMeter(file *policyfile.File, upstream *url.URL, log func(string), old *meter) (*meter, error) {
	terms := meterTerms{file.UpstreamCPU, listening(upstream)}
	opts := cputime.Options{
		PIDFile: file.Beside(terms.PIDFile), Listening: terms.listening, Cgroup: terms.Cgroup,
		Every: terms.Every, Cores: cores(file), Log: log,
	}
	switch terms.From {
	case "process":
		opts.From = cputime.Process
	case "cgroup":
		opts.From = cputime.Cgroup
	default:
		return nil, nil
	}
	if old != nil && old.terms == terms {
		return old, nil
	}
	sampler, err := cputime.Open(opts)
	if sampler == nil {
		var hinted interface{ Hint() string }
		if errors.As(err, &hinted) {
			return nil, &hintError{fmt.Errorf("upstream: cpu: %w", err), hinted.Hint()}
		}
		return nil, fmt.Errorf("upstream: cpu: %w", err)
	}
	if err != nil { // it may come later
		log(fmt.Sprintf("warning: upstream: cpu: requests are charged the time they take until it can be read: %s", oneLine(err)))
	}
	return &meter{Sampler: sampler, terms: terms}, nil
}

// start measures until stop. A meter that measures already goes on.
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

// end ends what start began, unless another site goes on with the meter.
// What was not settled is.
func (m *meter) end(other *meter) {
	if m == nil || m == other {
		return
	}
	m.start() // else nobody closes what it has open
	m.stop()
}

// meters returns m as a guard asks it; nil for none.
func (m *meter) meters() fairshare.Meter {
	if m == nil {
		return nil
	}
	return m.Sampler
}

// cores is how many cores the upstream has.
func cores(file *policyfile.File) float64 {
	return cmp.Or(file.UpstreamCPU.Cores, float64(runtime.NumCPU()))
}

// listening returns where an upstream listens: host and port.
func listening(upstream *url.URL) string {
	if upstream.Port() != "" {
		return upstream.Host
	}
	if upstream.Scheme == "https" {
		return upstream.Host + ":443"
	}
	return upstream.Host + ":80"
}

// costs tells where a site learns what requests cost; "" when nothing asks.
func (st *site) costs() string {
	cpu, units := st.cpu(), st.units()
	if cpu != "" && units != "" {
		return cpu + "; " + units
	}
	return cpu + units
}

// units tells where units of cost come from.
func (st *site) units() string {
	switch c := &st.file.UpstreamCost; {
	case c.Header != "":
		return fmt.Sprintf("units by %s of the upstream, %d of one answer at most", c.Header, c.Max)
	case st.limits(fairshare.Cost):
		return "nobody tells units: each request costs 1; upstream: {cost: {header: …}} names a header"
	}
	return ""
}

// cpu tells where CPU time comes from.
func (st *site) cpu() string {
	c := &st.file.UpstreamCPU
	s, hint := "", ""
	switch {
	case metric(c) != "":
		s = fmt.Sprintf("CPU time by Server-Timing: %s of the upstream", metric(c))
	case st.meter != nil:
		s = "CPU time of " + st.meter.terms.source() + ", sampled"
	case st.limits(fairshare.CPU):
		s, hint = "nobody measures CPU time: the time that a request takes counts instead", "; upstream: {cpu: {from: …}} names a source"
	default:
		return ""
	}
	if cores := cores(st.file); cores != 1 {
		return s + ", " + strconv.FormatFloat(cores, 'g', 4, 64) + " cores" + hint
	}
	return s + ", one core" + hint
}

// source tells what is sampled.
func (t *meterTerms) source() string {
	switch {
	case t.From == "cgroup":
		return "cgroup " + t.Cgroup
	case t.PIDFile != "":
		return "the process in " + t.PIDFile + " and its children"
	}
	return "what listens at " + t.listening + " and its children"
}

// limits reports whether a rule of the site limits a resource.
func (st *site) limits(r fairshare.Resource) bool {
	for i := range st.file.Policy.Rules {
		if l := st.file.Policy.Rules[i].Limit; l != nil && l.Resource == r {
			return true
		}
	}
	return false
}

// metric returns the metric by which the upstream tells CPU time; "" for none.
func metric(c *policyfile.UpstreamCPU) string {
	if c.From != "server-timing" {
		return ""
	}
	return cmp.Or(c.Metric, policyfile.DefaultMetric)
}
