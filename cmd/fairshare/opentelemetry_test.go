package main

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	collectorpb "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"fairshare/internal/cli"
)

// A receivedSpan is a span with the attributes of its request, as text.
type receivedSpan struct {
	*tracepb.Span
	service    string
	attributes map[string]string
}

// startCollector starts a receiver of OTLP over HTTP, which sends each span to the channel.
func startCollector(t *testing.T, wantHeader string) (url string, spans chan receivedSpan) {
	t.Helper()
	spans = make(chan receivedSpan, 100)
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var request collectorpb.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &request)
		}
		if err != nil || r.Method != "POST" || r.URL.Path != "/v1/traces" ||
			r.Header.Get("Content-Type") != "application/x-protobuf" || r.Header.Get("Authorization") != wantHeader {
			t.Errorf("%s %s %v: %v", r.Method, r.URL, r.Header, err)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		for _, resource := range request.ResourceSpans {
			service := ""
			for _, a := range resource.Resource.Attributes {
				if a.Key == "service.name" {
					service = a.Value.GetStringValue()
				}
			}
			for _, scope := range resource.ScopeSpans {
				for _, span := range scope.Spans {
					received := receivedSpan{span, service, map[string]string{}}
					for _, a := range span.Attributes {
						_, text, _ := strings.Cut(a.Value.String(), ":")
						received.attributes[a.Key] = strings.Trim(text, `"`)
					}
					spans <- received
				}
			}
		}
		answer, _ := proto.Marshal(&collectorpb.ExportTraceServiceResponse{})
		w.Header().Set("Content-Type", "application/x-protobuf")
		w.Write(answer)
	}))
	t.Cleanup(collector.Close)
	return collector.URL, spans
}

// startTracedSite starts a site that sends the traceparent of each request to the channel.
func startTracedSite(t *testing.T) (url string, parents chan string) {
	t.Helper()
	parents = make(chan string, 100)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		parents <- r.Header.Get("Traceparent") + " " + r.Header.Get("Tracestate")
		if r.URL.Path == "/broken" {
			w.WriteHeader(http.StatusInternalServerError)
		}
		io.WriteString(w, "hello")
	}))
	t.Cleanup(site.Close)
	return site.URL, parents
}

const (
	parentTrace  = "4bf92f3577b34da6a3ce929d0e0e4736"
	parentSpan   = "00f067aa0ba902b7"
	clientParent = "00-" + parentTrace + "-" + parentSpan + "-01"
)

// Each request becomes a span with its verdict, whatever its client says in traceparent.
func TestServeReportsVerdictsAsSpans(t *testing.T) {
	t.Parallel()
	collector, spans := startCollector(t, "Bearer secret")
	site, parents := startTracedSite(t)
	headers := writeFile(t, "headers", "Authorization: Bearer secret\n")
	s := startServe(t, fmt.Sprintf(`
upstream: %s
opentelemetry: {endpoint: %s, sample: 100%%, service: shop, headers_file: %s}
share: none
rules:
  - {name: admin, match: {path: /admin}, block: true}
  - {name: tried, match: {path: /tried}, limit: {requests: 1, per: 1h}, dry_run: true}
  - {name: pages, match: {path: /page}, limit: {requests: 1, per: 1h}}
`, site, collector, headers))
	s.stderr.wait(`(opentelemetry: spans of 100% of the requests go to http://127\S+/v1/traces, as shop)`)
	for _, c := range []struct {
		path, status string
		want         map[string]string // "*": any text
	}{
		{"/page?token=secret", "200", map[string]string{"fairshare.verdict": "allow", "fairshare.action": "allow",
			"fairshare.dry_run": "false", "fairshare.upstream_time": "*"}},
		{"/page?token=secret", "429", map[string]string{"fairshare.verdict": "refuse", "fairshare.action": "refuse",
			"fairshare.dry_run": "false", "fairshare.rule": "pages", "fairshare.reference": "*"}},
		{"/admin", "403", map[string]string{"fairshare.verdict": "block", "fairshare.action": "block",
			"fairshare.dry_run": "false", "fairshare.rule": "admin", "fairshare.reference": "*"}},
		{"/tried", "200", map[string]string{"fairshare.verdict": "allow", "fairshare.action": "allow",
			"fairshare.dry_run": "false", "fairshare.upstream_time": "*"}},
		{"/tried", "200", map[string]string{"fairshare.verdict": "refuse", "fairshare.action": "allow",
			"fairshare.dry_run": "true", "fairshare.rule": "tried", "fairshare.reference": "*",
			"fairshare.upstream_time": "*"}},
		{"/broken", "500", map[string]string{"fairshare.verdict": "allow", "fairshare.action": "allow",
			"fairshare.dry_run": "false", "fairshare.upstream_time": "*", "error.type": "500"}},
	} {
		resp, _ := requestAs(t, "GET", "http://"+s.addr+c.path, "203.0.113.7", "browser/1", "Traceparent", clientParent,
			"Tracestate", "a=1", "Connection", "traceparent")
		span := <-spans
		maps.Copy(c.want, map[string]string{"http.request.method": "GET", "url.scheme": "http",
			"url.path": strings.TrimSuffix(c.path, "?token=secret"), "server.address": s.addr,
			"http.response.status_code": c.status, "http.response.body.size": "*", "fairshare.wait": "0"})
		for name, want := range c.want {
			if got, found := span.attributes[name]; !found || want != "*" && got != want {
				t.Errorf("%s %s: %s is %q, want %q", c.path, c.status, name, got, want)
			}
		}
		if len(span.attributes) != len(c.want) {
			t.Errorf("%s: attributes %v, want %v", c.path, slices.Sorted(maps.Keys(span.attributes)),
				slices.Sorted(maps.Keys(c.want)))
		}
		if strings.Contains(span.String(), "secret") || strings.Contains(span.String(), "203.0.113.7") {
			t.Errorf("it has a query or the client: %s", span)
		}
		trace, id := fmt.Sprintf("%x", span.TraceId), fmt.Sprintf("%x", span.SpanId)
		if trace == parentTrace || len(span.ParentSpanId) != 0 || span.TraceState != "" || span.service != "shop" ||
			span.Name != "GET" || span.Kind != tracepb.Span_SPAN_KIND_SERVER ||
			span.EndTimeUnixNano < span.StartTimeUnixNano ||
			(span.Status.GetCode() == tracepb.Status_STATUS_CODE_ERROR) != (c.status == "500") {
			t.Errorf("%s: %s of %s", c.path, span, span.service)
		}
		if resp.StatusCode == 200 || resp.StatusCode == 500 {
			if got := <-parents; got != "00-"+trace+"-"+id+"-01 " {
				t.Errorf("%s: the site gets %q in the trace %s", c.path, got, trace)
			}
		}
	}
}

// A trusted proxy chooses the trace and what is recorded. Others get neither.
func TestServeContinuesTracesOfTrustedProxies(t *testing.T) {
	t.Parallel()
	collector, spans := startCollector(t, "")
	site, parents := startTracedSite(t)
	s := startServe(t, fmt.Sprintf(`
upstream: %s
clients: {trusted_proxies: loopback}
opentelemetry: {endpoint: "%s/v1/traces", sample: 0%%}
access_log: {file: access.log}
rules: [{name: all, limit: {requests: 100, per: 1h}}]
`, site, collector))
	get := func(header ...string) string {
		t.Helper()
		requestAs(t, "GET", "http://"+s.addr+"/", "203.0.113.7", "browser/1", header...)
		return <-parents
	}
	if got := get(); got != " " {
		t.Errorf("without a parent the site gets %q", got)
	}
	unsampled := strings.TrimSuffix(clientParent, "1") + "0"
	if got := get("Traceparent", unsampled, "Tracestate", "a=1"); got != unsampled+" a=1" {
		t.Errorf("without a sampled parent the site gets %q", got)
	}
	got := get("Traceparent", clientParent, "Tracestate", "a=1", "X-Forwarded-Proto", "https")
	span := <-spans // the first
	if want := fmt.Sprintf("00-%s-%x-01 a=1", parentTrace, span.SpanId); got != want {
		t.Errorf("the site gets %q, want %q", got, want)
	}
	if fmt.Sprintf("%x %x %s", span.TraceId, span.ParentSpanId, span.TraceState) !=
		parentTrace+" "+parentSpan+" a=1" || span.attributes["client.address"] != "203.0.113.7" ||
		span.attributes["url.scheme"] != "https" || span.service != "fairshare" {
		t.Errorf("%s %s", span, span.attributes)
	}
}

// A request that another server asks about is a span, too, of the request and not of the question.
func TestForwardAuthReportsSpans(t *testing.T) {
	t.Parallel()
	collector, spans := startCollector(t, "")
	site, _ := startTracedSite(t)
	listen := freeAddr(t)
	startServe(t, fmt.Sprintf(`
upstream: %s
opentelemetry: {endpoint: %s, sample: 0%%}
rules: [{name: admin, match: {path: /admin}, block: true}]
`, site, collector), "--auth", listen)
	for path, want := range map[string]string{"/page": "allow 204", "/admin": "block 403"} {
		requestAs(t, "GET", "http://"+listen+"/caddy", "203.0.113.7", "browser/1", "X-Forwarded-Method", "PUT",
			"X-Forwarded-Uri", path+"?token=secret", "X-Forwarded-Host", "shop.example", "Traceparent", clientParent)
		span := <-spans
		a := span.attributes
		if got := a["fairshare.action"] + " " + a["http.response.status_code"]; got != want || a["url.path"] != path ||
			a["server.address"] != "shop.example" || span.Name != "PUT" ||
			fmt.Sprintf("%x", span.ParentSpanId) != parentSpan {
			t.Errorf("%s: %s, want %s; %s", path, got, want, span)
		}
	}
}

// Without a collector requests are still answered, and the loss is reported.
func TestServeWithoutItsCollector(t *testing.T) {
	t.Parallel()
	held := make(chan struct{})
	arrived := make(chan struct{}, 100)
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-held
	}))
	t.Cleanup(slow.Close)
	t.Cleanup(func() { close(held) }) // before slow is closed
	for name, endpoint := range map[string]string{"dead": "http://" + freeAddr(t), "slow": slow.URL} {
		site, _ := startTracedSite(t)
		s := startServe(t, fmt.Sprintf(`
upstream: %s
opentelemetry: {endpoint: %s, sample: 100%%}
rules: [{name: all, limit: {requests: 100, per: 1h}}]
`, site, endpoint), "--admin", "127.0.0.1:0")
		admin := s.stderr.wait(`admin: http://(\S+): /metrics`)
		get := func() {
			t.Helper()
			if resp := getFrom(t, "http://"+s.addr+"/", "203.0.113.7"); resp.StatusCode != 200 {
				t.Errorf("%s: status %d", name, resp.StatusCode)
			}
		}
		for range 20 {
			get()
		}
		if name == "slow" {
			<-arrived // the collector holds a request
		}
		for range 20 {
			get()
		}
		_, metrics := requestAs(t, "GET", "http://"+admin+"/metrics", "", "")
		if !strings.Contains(metrics, `fairshare_spans_total{result="exported"} 0`) ||
			!strings.Contains(metrics, `fairshare_spans_total{result="dropped"} 0`) {
			t.Errorf("%s: the metrics do not count spans", name)
		}
		if exit := s.stop(); exit != 0 {
			t.Errorf("%s: exit code %d", name, exit)
		}
		text := s.stderr.text.String()
		if !strings.Contains(text, "warning: opentelemetry: 40 spans lost: http://127") {
			t.Errorf("%s: it reported\n%s", name, text)
		}
	}
}

// A reload starts, changes and ends the export. A wrong file of headers changes nothing.
func TestReloadChangesTheCollector(t *testing.T) {
	t.Parallel()
	first, firstSpans := startCollector(t, "")
	second, secondSpans := startCollector(t, "Bearer secret")
	site, parents := startTracedSite(t)
	headers := writeFile(t, "headers", "secret\n")
	token := writeFile(t, "token", strings.Repeat("a", 32))
	text := func(settings string) string {
		return settings + "\nupstream: " + site + "\nrules: [{name: all, limit: {requests: 100, per: 1h}}]\n"
	}
	policy := writeFile(t, "site.yaml", text(""))
	s := runServe(t, nil, "-c", policy, "--state", t.TempDir(), "--admin", "127.0.0.1:0", "--admin-token-file", token)
	admin := s.stderr.wait(`admin: http://(\S+): /metrics`)
	reload := func(settings string, want int) string {
		t.Helper()
		if settings != "" {
			writeOver(t, policy, text(settings))
		}
		var out strings.Builder
		exit := run([]string{"reload", "--yes", "--admin", admin, "--admin-token-file", token},
			&cli.Environment{Context: t.Context(), Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out})
		if exit != want {
			t.Fatalf("exit code %d, want %d:\n%s", exit, want, &out)
		}
		return out.String()
	}
	get := func() (parent string) {
		t.Helper()
		requestAs(t, "GET", "http://"+s.addr+"/", "203.0.113.7", "browser/1", "Traceparent", clientParent)
		return <-parents
	}
	if got := get(); got != clientParent+" " {
		t.Errorf("without the setting the site gets %q", got)
	}
	out := reload(fmt.Sprintf("opentelemetry: {endpoint: %s, sample: 100%%}", first), cli.ExitOK)
	if !strings.Contains(out, "opentelemetry: spans of 100% of the requests go to "+first) {
		t.Error(out)
	}
	get()
	<-firstSpans
	changed := fmt.Sprintf("opentelemetry: {endpoint: %s, sample: 100%%, service: shop, headers_file: %s}", second, headers)
	if out := reload(changed, cli.ExitFailed); !strings.Contains(out, "headers_file: line 1 is not a header") ||
		strings.Contains(out, "secret") {
		t.Error(out)
	}
	get()
	<-firstSpans
	if err := os.WriteFile(headers, []byte("Authorization: Bearer secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	reload("", cli.ExitOK)
	get()
	if span := <-secondSpans; span.service != "shop" {
		t.Errorf("the service is %q", span.service)
	}
	if out := reload("contact: a@example.org", cli.ExitOK); !strings.Contains(out, "opentelemetry: none") {
		t.Error(out)
	}
	if got := get(); got != clientParent+" " {
		t.Errorf("after the end of the export the site gets %q", got)
	}
	if s.stop(); len(firstSpans)+len(secondSpans) > 0 {
		t.Error("there are more spans")
	}
}
