package serve

import (
	"net/http"
	goruntime "runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"fairshare"
	"fairshare/internal/cli"
	"fairshare/internal/livepolicy"
	"fairshare/internal/proxy"
	"fairshare/internal/reports"
)

// metrics counts what happens to requests. The values of labels come from the policy or are listed
// here: a client cannot add any. It is safe for concurrent use; Passed and Refused allocate nothing.
type metrics struct {
	registry *prometheus.Registry

	requests *prometheus.CounterVec
	bytes    *prometheus.CounterVec
	took     *prometheus.HistogramVec
	refusals *prometheus.CounterVec
	failed   *prometheus.CounterVec
	reloads  *prometheus.CounterVec
	loaded   prometheus.Gauge

	sites atomic.Pointer[sitesMetrics] // of the policy in force
}

// statusClasses are the values of the label status.
var statusClasses = [6]string{"none", "1xx", "2xx", "3xx", "4xx", "5xx"}

// seconds are the upper bounds of the durations of answers.
var seconds = []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}

// figures are read each time somebody asks for metrics.
type figures struct {
	livepolicy.Figures
	upstreams    []proxy.PoolState
	certificates []certificateState
	spans        *spanFigures // nil: no request becomes a span
}

// spanFigures count spans since the start.
type spanFigures struct{ exported, dropped int64 }

// A certificateState says until when a certificate is valid.
type certificateState struct {
	name  string    // a host of the policy for one by ACME, otherwise the file
	until time.Time // zero: there is none yet
}

// newMetrics returns metrics that call read each time somebody asks for them.
func newMetrics(read func() figures) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fairshare_requests_total",
			Help: "Requests that passed, by the first digit of the site's status."}, []string{"site", "status"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fairshare_answer_bytes_total",
			Help: "Bytes of the bodies of answers of the site."}, []string{"site"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "fairshare_upstream_duration_seconds",
			Help: "Time that the site took for a request, without the wait for a turn.", Buckets: seconds},
			[]string{"site"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fairshare_refusals_total",
			Help: "Requests that a rule refused (a limit) or blocked. With dry_run=\"true\" they passed."},
			[]string{"site", "rule", "action", "dry_run"}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fairshare_unjudged_requests_total",
			Help: "Requests that could not be judged because of an error."}, []string{"passed"}),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fairshare_policy_reloads_total",
			Help: "Reloads of the policy file."}, []string{"result"}),
		loaded: prometheus.NewGauge(prometheus.GaugeOpts{Name: "fairshare_policy_loaded_timestamp_seconds",
			Help: "When the policy in force was loaded, as Unix time."}),
	}
	for _, result := range []string{"success", "failure"} {
		m.reloads.WithLabelValues(result)
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: "fairshare_build_info", Help: "Always 1.",
		ConstLabels: prometheus.Labels{"version": cli.Version(), "goversion": goruntime.Version()}})
	build.Set(1)
	m.loaded.SetToCurrentTime()
	m.registry.MustRegister(m.requests, m.bytes, m.took, m.refusals, m.failed, m.reloads, m.loaded, build,
		reader(read), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// siteMetrics counts the requests of one site.
type siteMetrics struct {
	name    string
	answers [len(statusClasses)]prometheus.Counter // by the first digit of the status; 0: no answer
	bytes   prometheus.Counter
	took    prometheus.Observer
}

// site returns what counts the requests of a site, "" for requests without one.
func (m *metrics) site(name string) *siteMetrics {
	s := &siteMetrics{name: name, bytes: m.bytes.WithLabelValues(name), took: m.took.WithLabelValues(name)}
	for i, class := range statusClasses {
		s.answers[i] = m.requests.WithLabelValues(name, class)
	}
	return s
}

// forget removes what was counted for a site that the policy no longer has.
func (m *metrics) forget(name string) {
	label := prometheus.Labels{"site": name}
	m.requests.DeletePartialMatch(label)
	m.bytes.DeletePartialMatch(label)
	m.took.DeletePartialMatch(label)
	m.refusals.DeletePartialMatch(label)
}

// sitesMetrics counts the requests of the sites of one policy.
type sitesMetrics struct {
	table *fairshare.Sites
	other *siteMetrics // of requests without a site
	sites []*siteMetrics
}

// use counts requests for the sites of a runtime from now on.
func (m *metrics) use(rt *runtime) {
	s := &sitesMetrics{table: rt.table, other: m.site("")}
	for i := range rt.sites {
		s.sites = append(s.sites, m.site(rt.sites[i].Name))
	}
	m.sites.Store(s)
}

func (s *sitesMetrics) find(host string) *siteMetrics {
	if i := s.table.Find(host); i >= 0 {
		return s.sites[i]
	}
	return s.other
}

// Passed counts requests that have ended.
func (m *metrics) Passed(g *reports.Passages) {
	site, bytes := m.sites.Load().find(g.Host), int64(0)
	var answers [len(statusClasses)]int
	for _, p := range g.Requests {
		class := p.Status / 100
		if class < 0 || class >= len(answers) {
			class = 0
		}
		answers[class]++
		bytes += max(p.Bytes, 0)
		if p.Took > 0 {
			site.took.Observe(p.Took.Seconds())
		}
	}
	for class, n := range answers {
		if n > 0 {
			site.answers[class].Add(float64(n))
		}
	}
	site.bytes.Add(float64(bytes))
}

// Refused counts requests that a rule refused or blocked.
func (m *metrics) Refused(g *reports.Refusals) {
	m.refusals.WithLabelValues(m.sites.Load().find(g.Host).name, g.RuleName(), g.Action.String(),
		strconv.FormatBool(g.DryRun)).Add(float64(g.N))
}

// unjudged counts a request that could not be judged.
func (m *metrics) unjudged(passed bool) { m.failed.WithLabelValues(strconv.FormatBool(passed)).Inc() }

// reloaded notes a reload of the policy file.
func (m *metrics) reloaded(success bool) {
	if !success {
		m.reloads.WithLabelValues("failure").Inc()
		return
	}
	m.reloads.WithLabelValues("success").Inc()
	m.loaded.SetToCurrentTime()
}

// figures returns the present figures.
func (s *server) figures() figures {
	f := figures{Figures: s.policy.Figures()}
	if len(s.runtime.Load().upstreams()) > 0 {
		f.upstreams = s.proxy.Pools()
	}
	for _, certs := range s.allCertificates() {
		same := func(c certificateState) bool { return c.name == certs.certFile }
		if !slices.ContainsFunc(f.certificates, same) { // the admin listener or a site may have the same one
			f.certificates = append(f.certificates, certificateState{certs.certFile, certs.until()})
		}
	}
	if s.tracing.Load() != nil {
		f.spans = new(spanFigures)
		f.spans.exported, f.spans.dropped = s.spans.Counts()
	}
	if s.acme != nil {
		for host, until := range s.acme.Ends() {
			f.certificates = append(f.certificates, certificateState{host, until})
		}
	}
	return f
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{EnableOpenMetrics: true, MaxRequestsInFlight: 4})
}

// A reader turns figures into metrics.
type reader func() figures

// A description describes one metric.
type description struct {
	*prometheus.Desc
	kind prometheus.ValueType
}

func describe(kind prometheus.ValueType, name, help string, labels ...string) description {
	return description{prometheus.NewDesc(name, help, labels, nil), kind}
}

const counter, gauge = prometheus.CounterValue, prometheus.GaugeValue

var (
	capacityDesc = describe(gauge, "fairshare_upstream_capacity", "Requests that the site may process at once.",
		"site")
	inProgressDesc = describe(gauge, "fairshare_upstream_in_progress", "Requests that the site processes now.", "site")
	waitingDesc    = describe(gauge, "fairshare_upstream_waiting", "Requests that wait for a turn now.", "site")
	longestDesc    = describe(gauge, "fairshare_upstream_longest_wait_seconds",
		"Longest wait for a turn that ended in the last one or two minutes.", "site")
	turnsDesc = describe(counter, "fairshare_turns_total",
		"Requests by the age of their client, in seconds, and the result: turn, refused, expired or gone.",
		"site", "age", "result")
	waitedDesc = describe(counter, "fairshare_turns_waited_total", "Requests that waited for their turn.", "site",
		"age")
	upDesc = describe(gauge, "fairshare_upstream_up", "1 while the checks of an upstream pass, otherwise 0.", "site",
		"upstream")
	busyDesc = describe(gauge, "fairshare_upstream_requests", "Requests that an upstream processes now.", "site",
		"upstream")
	expiryDesc = describe(gauge, "fairshare_certificate_expiry_timestamp_seconds",
		"When a certificate ends, as Unix time; 0 while there is none.", "certificate")

	bansDesc   = describe(gauge, "fairshare_bans", "Automatic bans in memory.")
	attackDesc = describe(gauge, "fairshare_attack_mode", "1 while attack mode is on.")

	tableDesc  = describe(gauge, "fairshare_counters_memory_bytes", "Memory of the counters.")
	liveDesc   = describe(gauge, "fairshare_counters", "Counters in use, estimated.")
	lostDesc   = describe(counter, "fairshare_counters_lost_total", "Counters given up because the memory was full.")
	neededDesc = describe(gauge, "fairshare_counters_needed_bytes",
		"Memory with which almost no counter would be given up; 0 if none was.")
	slotsDesc = describe(gauge, "fairshare_concurrent_requests", "Slots of concurrent limits that are taken.")

	queuedDesc  = describe(gauge, "fairshare_registry_unwritten", "Records that are not written yet.", "what")
	droppedDesc = describe(counter, "fairshare_registry_dropped_total",
		"Records that were given up because of a bound.", "what")
	errorsDesc  = describe(counter, "fairshare_registry_errors_total", "Errors of the registry.", "operation")
	failingDesc = describe(gauge, "fairshare_registry_failing", "1 after a write that failed.")

	membersDesc = describe(gauge, "fairshare_store_members", "Programs that count together, with this one.")
	awayDesc    = describe(gauge, "fairshare_store_away", "1 while the store cannot be reached.")
	decidedDesc = describe(counter, "fairshare_store_decisions_total",
		"Decisions by how they were made: asked, credit, refused (both without asking) or away.", "how")
	lateDesc = describe(counter, "fairshare_store_late_total", "Questions that the store did not answer in time.")
	tripDesc = describe(gauge, "fairshare_store_round_trip_seconds",
		"How long requests waited for the store in the last minute: the median, and what 99 of 100 kept within.",
		"percentile")
	pendingDesc = describe(gauge, "fairshare_store_pending",
		"Counters with something that the store does not know yet.")
	handedDesc = describe(counter, "fairshare_store_handed_over_total",
		"Counts that were reported after the store was away.")
	unreadableDesc = describe(counter, "fairshare_store_unreadable_total",
		"States in the store that made no sense and were dropped.")

	sharedBansDesc = describe(gauge, "fairshare_store_bans", "Bans and lifts of bans in the store, of all members.")
	unsharedDesc   = describe(gauge, "fairshare_store_bans_away",
		"1 while bans are not exchanged with the other members.")

	togetherDesc = describe(gauge, "fairshare_store_upstream_capacity",
		"Requests that the site may process at once, for all members together.", "site")
	leasesDesc = describe(gauge, "fairshare_store_upstream_members",
		"Members that share the site, with this one.", "site")
	lapsedDesc = describe(gauge, "fairshare_store_upstream_away",
		"1 while this member has a fixed part of the site's capacity, because it does not hear the others.", "site")

	spansDesc = describe(counter, "fairshare_spans_total",
		"Spans that the OpenTelemetry collector has accepted, or that were dropped.", "result")
)

func (r reader) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []description{capacityDesc, inProgressDesc, waitingDesc, longestDesc, turnsDesc, waitedDesc,
		upDesc, busyDesc, expiryDesc, bansDesc, attackDesc, tableDesc, liveDesc, lostDesc, neededDesc, slotsDesc,
		queuedDesc, droppedDesc, errorsDesc, failingDesc, membersDesc, awayDesc, decidedDesc, lateDesc, tripDesc,
		pendingDesc, handedDesc, unreadableDesc, sharedBansDesc, unsharedDesc,
		togetherDesc, leasesDesc, lapsedDesc, spansDesc} {
		descs <- d.Desc
	}
}

func (r reader) Collect(metrics chan<- prometheus.Metric) {
	send := func(d description, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(d.Desc, d.kind, value, labels...)
	}
	f := r()
	sites := f.Queues()
	for i := range sites {
		site, s := sites[i].Name, &sites[i].Share
		send(capacityDesc, float64(s.Capacity), site)
		send(inProgressDesc, float64(s.Inside), site)
		send(waitingDesc, float64(s.Waiting), site)
		send(longestDesc, s.LongestWait.Seconds(), site)
		if g := s.Group; g.Members > 0 {
			send(togetherDesc, float64(g.Capacity), site)
			send(leasesDesc, float64(g.Members), site)
			send(lapsedDesc, number(g.Away), site)
		}
		for _, c := range s.Classes {
			age := strconv.Itoa(int(c.Age / time.Second))
			send(turnsDesc, float64(c.Turns), site, age, "turn")
			send(turnsDesc, float64(c.Refused), site, age, "refused")
			send(turnsDesc, float64(c.Expired), site, age, "expired")
			send(turnsDesc, float64(c.Gone), site, age, "gone")
			send(waitedDesc, float64(c.Waited), site, age)
		}
	}
	for _, pool := range f.upstreams {
		for _, up := range pool.Upstreams {
			if up.Checked {
				send(upDesc, number(up.Up), pool.Site, up.URL)
			}
			send(busyDesc, float64(up.InProgress), pool.Site, up.URL)
		}
	}
	for _, cert := range f.certificates {
		until := 0.0
		if !cert.until.IsZero() {
			until = float64(cert.until.Unix())
		}
		send(expiryDesc, until, cert.name)
	}
	send(bansDesc, float64(f.Bans))
	send(attackDesc, number(f.Attack))
	send(tableDesc, float64(f.Limiter.Memory))
	send(liveDesc, float64(f.Limiter.Live))
	send(lostDesc, float64(f.Limiter.Lost))
	send(neededDesc, float64(f.Limiter.Needed))
	send(slotsDesc, float64(f.Limiter.InProgress))
	if s := f.spans; s != nil {
		send(spansDesc, float64(s.exported), "exported")
		send(spansDesc, float64(s.dropped), "dropped")
	}
	if g := f.Registry; g != nil {
		send(queuedDesc, float64(g.DirtyClients), "clients")
		send(queuedDesc, float64(g.DirtyStories), "refusals")
		send(queuedDesc, float64(g.QueuedBans), "bans")
		send(droppedDesc, float64(g.DroppedRequests), "requests")
		send(droppedDesc, float64(g.DroppedRefusals), "refusals")
		send(droppedDesc, float64(g.DroppedBans), "bans")
		send(errorsDesc, float64(g.ReadErrors), "read")
		send(errorsDesc, float64(g.WriteErrors), "write")
		send(failingDesc, number(g.Failing))
	}
	if g := f.Group; g != nil {
		send(membersDesc, float64(len(g.Members)))
		send(awayDesc, number(g.Away))
		send(decidedDesc, float64(g.Questions), "asked")
		send(decidedDesc, float64(g.Credit), "credit")
		send(decidedDesc, float64(g.Refused), "refused")
		send(decidedDesc, float64(g.DecidedAway), "away")
		send(lateDesc, float64(g.Late))
		send(tripDesc, g.RTT50.Seconds(), "50")
		send(tripDesc, g.RTT99.Seconds(), "99")
		send(pendingDesc, float64(g.Pending))
		send(handedDesc, float64(g.HandedOver))
		send(unreadableDesc, float64(g.Unreadable))
		if b := f.Shared; b != nil {
			send(sharedBansDesc, float64(b.Stored))
			send(unsharedDesc, number(!b.Shared))
		}
	}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
