package policyfile

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"fairshare"
	"fairshare/internal/prose"
)

// Settings describes in sentences where costs come from and how a busy upstream is
// shared. Each line has one or more sentences.
func (f *File) Settings() []string {
	var lines []string
	if f.FailOpen {
		lines = append(lines,
			"fail: open: while the counters fail, requests pass all limits; bans, blocks and allows still hold.")
	}
	if f.Store != nil {
		lines = append(lines, "store: "+f.storeDescription())
	}
	if f.TLS != nil && f.TLS.ACME != nil {
		lines = append(lines, "tls: "+f.TLS.description(f.CertificateHosts(), f.ListenHTTP != ""))
	}
	if f.ListenHTTP != "" {
		lines = append(lines, fmt.Sprintf("listen_http: serve redirects requests to %s for %s to https, and answers "+
			"421 for other hosts; no rule counts them.", f.ListenHTTP, list(f.RedirectHosts())))
	}
	if sentence := f.cpuSentence(); sentence != "" {
		lines = append(lines, "upstream: "+sentence)
	}
	if c := f.UpstreamCost; c.Header != "" {
		lines = append(lines,
			fmt.Sprintf("upstream: it reports the cost of a request in %s, %s at most; clients do not see it.",
				c.Header, prose.Plural(c.Max, "unit")))
	}
	for _, host := range slices.Sorted(maps.Keys(f.Bots.Agents)) {
		lines = append(lines, f.Bots.Agents[host].description(host))
	}
	switch {
	case f.NoShare:
		lines = append(lines, "share: none: requests do not wait for the upstream.")
	case f.Share != nil && !f.Share.Default:
		lines = append(lines, "share: "+f.Share.description())
	}
	if sentence := f.robotsSetting(); sentence != "" {
		lines = append(lines, sentence)
	}
	if f.Policy.TestsForms() {
		lines = append(lines, formsText)
	}
	if f.Visitors != nil {
		lines = append(lines, "visitors: "+f.Visitors.description())
	}
	if w := f.WaitingRoom; w != nil || f.Share != nil {
		if w == nil {
			w = new(WaitingRoom)
		}
		lines = append(lines, "waiting_room: "+w.description())
	}
	if sentences := f.Answers.description(); sentences != "" {
		lines = append(lines, "answers: "+sentences)
	}
	if f.BanExport != nil {
		lines = append(lines, "bans: "+f.BanExport.description())
	}
	if l := f.AccessLog; l != nil {
		lines = append(lines, "access_log: "+l.description())
	}
	if o := f.OpenTelemetry; o != nil {
		lines = append(lines, "opentelemetry: "+o.description())
	}
	return lines
}

// counts reports whether some limit counts a resource.
func (f *File) counts(res fairshare.Resource) bool {
	return slices.ContainsFunc(f.Policy.Rules, func(r fairshare.Rule) bool {
		return r.Limit != nil && r.Limit.Resource == res
	})
}

// cpuSentence describes where CPU time comes from; "" if no limit counts it and the
// upstream does not report it.
func (f *File) cpuSentence() string {
	c := &f.UpstreamCPU
	measured := ""
	switch c.From {
	case "":
		if f.counts(fairshare.CPU) {
			return "CPU time is not measured: the time of the request counts, at most one core for each request."
		}
		return ""
	case "server-timing":
		if c.KeepHeader {
			return fmt.Sprintf("it reports the CPU time of a request in Server-Timing, as %s; clients see that too.",
				printable(c.Metric))
		}
		return fmt.Sprintf("it reports the CPU time of a request in Server-Timing, as %s; clients do not see it.",
			printable(c.Metric))
	case "process":
		measured = "the process that listens at its port and its children"
		if u, err := url.Parse(f.Upstream); err == nil && u.Port() != "" {
			measured = "the process that listens at port " + u.Port() + " and its children"
		}
		if c.PIDFile != "" {
			measured = "the process of " + printable(c.PIDFile) + " and its children"
		}
	case "cgroup":
		measured = "the service " + printable(c.Cgroup)
		if strings.HasPrefix(c.Cgroup, "/") {
			measured = "the cgroup " + printable(c.Cgroup)
		}
	}
	every := DefaultSampling
	if c.Every > 0 {
		every = c.Every
	}
	return fmt.Sprintf("the CPU time of %s is measured every %s and divided among the requests in progress.",
		measured, FormatDuration(every))
}

// description describes how a busy upstream is shared.
func (s *Share) description() string {
	var b strings.Builder
	if s.Capacity > 0 {
		fmt.Fprintf(&b, "the upstream works on %s at once", prose.Plural(int64(s.Capacity), "request"))
	} else {
		fmt.Fprintf(&b, "the upstream works on as many requests at once as its latency allows, %d to %d", s.Min, s.Max)
	}
	b.WriteString("; when it is busy, it is shared by")
	for i, part := range s.By {
		if i > 0 {
			b.WriteString(", then by")
		}
		b.WriteString(" " + printable(part.String()))
	}
	if s.Wait > 0 && s.Queue > 0 {
		fmt.Fprintf(&b, "; a request waits for its turn %s at most, %d of them in all; then 503.",
			FormatDuration(s.Wait), s.Queue)
	} else {
		b.WriteString("; no request waits: without a turn it gets 503.")
	}
	if s.Ages {
		b.WriteString(" Clients that are known for longer come first, and clients with a label and verified bots before them.")
	} else {
		b.WriteString(" How long a client is known does not matter.")
	}
	if s.EachMember && !s.Default {
		b.WriteString(" Each server has an upstream of its own.")
	}
	if weights := append(weightTexts("label ", s.Labels), weightTexts("bot ", s.Bots)...); weights != nil {
		fmt.Fprintf(&b, " Weights: %s.", strings.Join(weights, ", "))
	}
	return b.String()
}

// weightTexts lists weights in the order of their names, at most maxTexts.
func weightTexts(what string, weights map[string]float64) []string {
	var list []string
	for i, name := range slices.Sorted(maps.Keys(weights)) {
		if i == maxTexts {
			return append(list, others(len(weights)-i))
		}
		list = append(list, what+printable(name)+" "+strconv.FormatFloat(weights[name], 'f', -1, 64))
	}
	return list
}
