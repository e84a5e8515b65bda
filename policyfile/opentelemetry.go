package policyfile

import (
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// OpenTelemetry sets which requests are reported to an OpenTelemetry collector, and how.
type OpenTelemetry struct {
	Endpoint    string  // the URL of the collector, with http or https
	Sample      float64 // the part of requests that are reported, 0 to 1
	Service     string  // the name of the service
	Parents     bool    // trusted proxies decide about the requests for which they send a traceparent
	HeadersFile string  // see File.ResolvePath; "" means no more headers
}

const (
	defaultSample  = 0.01
	defaultService = "fairshare"
	tracesPath     = "/v1/traces"
)

// TracesURL returns the URL to which spans are sent.
func (o *OpenTelemetry) TracesURL() string {
	base := strings.TrimRight(o.Endpoint, "/")
	if strings.HasSuffix(base, tracesPath) {
		return base
	}
	return base + tracesPath
}

func openTelemetryKeys() []key[OpenTelemetry] {
	return []key[OpenTelemetry]{
		{"endpoint", func(r *reader, n *node, o *OpenTelemetry) { o.Endpoint = r.collector(n) }},
		{"sample", func(r *reader, n *node, o *OpenTelemetry) { o.Sample = r.sample(n) }},
		{"service", func(r *reader, n *node, o *OpenTelemetry) { o.Service = r.line(n, "service") }},
		{"parents", func(r *reader, n *node, o *OpenTelemetry) { o.Parents = r.boolean(n, "parents") }},
		{"headers_file", func(r *reader, n *node, o *OpenTelemetry) {
			o.HeadersFile = r.fileName(n, "headers_file", "")
		}},
	}
}

func readOpenTelemetry(r *reader, n *node, f *File) {
	const example = "{endpoint: http://127.0.0.1:4318}"
	o := &OpenTelemetry{Sample: defaultSample, Service: defaultService, Parents: true}
	got := readMap(r, n, "opentelemetry", example, openTelemetryKeys(), o)
	switch {
	case got == nil:
	case !got.has("endpoint"):
		r.missing(n, "opentelemetry: "+example, "opentelemetry: an endpoint is needed")
	default:
		f.OpenTelemetry = o
	}
}

// collector reads the URL of a collector.
func (r *reader) collector(n *node) string {
	s := r.line(n, "endpoint")
	if s == "" {
		return ""
	}
	u, err := url.Parse(s)
	if err == nil && u.User != nil {
		r.fault(n, "put a header Authorization into a file, and name it in headers_file",
			"endpoint: a name or password in it would appear in logs")
		return ""
	}
	if err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && u.RawQuery == "" &&
		!u.ForceQuery && u.Fragment == "" {
		return s
	}
	hint := ""
	if !strings.Contains(s, "://") {
		hint = "endpoint: http://" + shorten(withoutQuery(s))
	}
	r.fault(n, hint, "endpoint: a URL with http or https and a host is needed, not %s", quote(withoutQuery(s)))
	return ""
}

// samplePercent matches 0% to 100%.
var samplePercent = regexp.MustCompile(`^(100(\.0{1,9})?|[0-9]{1,2}(\.[0-9]{1,9})?)%$`)

// sample reads a part of all requests.
func (r *reader) sample(n *node) float64 {
	if n.kind == scalarNode && samplePercent.MatchString(n.text) {
		percent, _ := strconv.ParseFloat(strings.TrimSuffix(n.text, "%"), 64)
		return percent / 100
	}
	hint := ""
	if part, err := strconv.ParseFloat(n.text, 64); n.kind == scalarNode && err == nil && part >= 0 && part <= 1 {
		hint = "sample: " + FormatPercent(part)
	}
	r.fault(n, hint, "sample: a percentage from 0%% to 100%% is needed, such as 1%%, not %s", n.describe())
	return 0
}

// FormatPercent returns a part of a whole as a policy has it: 0.01 is "1%".
func FormatPercent(part float64) string {
	return strings.TrimSuffix(strings.TrimRight(strconv.FormatFloat(part*100, 'f', 6, 64), "0"), ".") + "%"
}

// description describes the export in a sentence.
func (o *OpenTelemetry) description() string {
	text := FormatPercent(o.Sample) + " of the requests"
	if o.Parents {
		text += ", and those that a trusted proxy samples,"
	}
	return fmt.Sprintf("%s are reported to %s as spans of the service %s.", text, printable(o.Endpoint),
		printable(o.Service))
}

// warnOpenTelemetry warns of the port for gRPC, and of credentials without TLS.
func (r *reader) warnOpenTelemetry() {
	o := r.file.OpenTelemetry
	if o == nil || o.Endpoint == "" {
		return
	}
	at := find(r.root, "opentelemetry")
	u, err := url.Parse(o.Endpoint)
	if err != nil {
		return
	}
	if u.Port() == "4317" {
		r.warn(find(at, "endpoint"), "", "collectors usually expect gRPC at the port 4317, and HTTP at 4318")
	}
	if o.HeadersFile != "" && u.Scheme == "http" && !isLocalHost(u.Hostname()) {
		r.warn(find(at, "headers_file"), "endpoint: https://"+u.Host, "the headers travel to %s without encryption",
			printable(u.Host))
	}
}

// isLocalHost reports whether a host of a URL is this machine.
func isLocalHost(host string) bool {
	if strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}
