package examples

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fairshare"
	"fairshare/bots"
	"fairshare/clientaddr"
	"fairshare/httpguard"
	"fairshare/internal/journal"
	"fairshare/membans"
	"fairshare/memlimit"
	"fairshare/policyfile"
	"fairshare/share"
)

// A story has the requests of some clients to a site, and the answers. It is a block in
// the page of an example, in cells with two or more spaces between them:
//
//	# a comment
//	script = 203.0.113.7   User-Agent: curl/8.14.1   Cookie: a=b
//	12:00:00.4   script   GET /a ×20 every 5ms takes 2s   429   Retry-After: 3   "rapid requests"
//	12:00:10.0   operator   fairshare label 203.0.113.9 good-partner
//	12:05:00.0   operator   restarts fairshare
//
// The line of a client has its name, the address of its connection, and its headers. The
// line of a step has the time, the client, the request and the answer. An operator's
// command has no answer.
//
//   - Without a rule in the answer, the request reached the site: the status is the site's.
//   - "would be 429" is the answer of a dry run.
//   - "×20 every 5ms" is for several requests with the same answer; {n} in a path or header
//     is the number of the request, in the address of a client, too.
//   - "takes" is how long the site works on a request, and "uses" is its CPU time, 0 if it
//     is missing.
//   - "sends" is the size of the site's answer in bytes.
//   - A Link header of a rule's answer is shown.
//   - "waited" is how long the request waited for its turn, or for earlier requests before
//     it was refused.
//   - A restart ends the process. The next one has the registry and the snapshot of the
//     counters.
type story struct {
	lines []string
	steps []*step
}

// A step is one line of a story.
type step struct {
	line     int           // its index in the story
	head     string        // the line without the answer
	at       time.Duration // since noon
	command  string        // of an operator; "" for requests
	client   *client
	method   string
	target   string
	times    int
	every    time.Duration
	takes    time.Duration
	uses     time.Duration // CPU time
	sends    int64         // bytes of the site's answer
	status   int           // of the site's answer
	requests []*request
}

type client struct {
	addr    string
	headers [][2]string
}

// A request is one request of a step and its result.
type request struct {
	*step
	n       int // from 1
	index   int // among all requests of the story
	answer  *httptest.ResponseRecorder
	sent    time.Time
	reached bool          // the site
	waited  time.Duration // for its turn, or for earlier requests before it was refused
	reports []httpguard.Report
	logged  []journal.Entry
}

// noon is when stories begin. It is also the begin of a window for all windows in the
// examples.
var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// cells splits a line at two or more spaces.
func cells(line string) []string {
	var list []string
	for cell := range strings.SplitSeq(line, "  ") {
		if cell = strings.TrimSpace(cell); cell != "" {
			list = append(list, cell)
		}
	}
	return list
}

func parseStory(t *testing.T, text string) *story {
	t.Helper()
	s := &story{lines: strings.Split(strings.TrimSuffix(text, "\n"), "\n")}
	clients := map[string]*client{}
	for i, line := range s.lines {
		fault := func(what string) { t.Fatalf("story: %s: %q", what, line) }
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		row := cells(line)
		if name, addr, found := strings.Cut(line, " = "); found && !strings.Contains(name, ":") {
			row = cells(addr)
			c := &client{addr: row[0]}
			for _, header := range row[1:] {
				key, value, ok := strings.Cut(header, ": ")
				if !ok {
					fault("missing header")
				}
				c.headers = append(c.headers, [2]string{key, value})
			}
			clients[strings.TrimSpace(name)] = c
			continue
		}
		if len(row) < 3 {
			fault("time, client, request and answer are needed")
		}
		clock, err := time.Parse("15:04:05", row[0])
		if err != nil {
			fault("missing time")
		}
		st := &step{line: i, client: clients[row[1]], at: clock.Sub(clock.Truncate(24*time.Hour)) - 12*time.Hour,
			times: 1}
		if row[1] == operatorName && len(row) == 3 {
			st.head, st.command, st.times = line, row[2], 0
			s.steps = append(s.steps, st)
			continue
		}
		if st.client == nil || len(row) < 4 {
			fault("an unknown client, or a missing answer")
		}
		st.parseRequest(t, row[2])
		st.head = line[:strings.Index(line, row[2])+len(row[2])]
		first, _, _ := strings.Cut(row[3], " ") // the first of several answers
		if st.status, err = strconv.Atoi(first); err != nil {
			fault("missing status")
		}
		if len(row) > 4 && !strings.HasPrefix(row[4], waited) {
			st.status = http.StatusOK // the answer that the site would give
		}
		s.steps = append(s.steps, st)
	}
	return s
}

// waited is the prefix of how long a request waited for its turn.
const waited = "waited "

// parseRequest reads "GET /a ×20 every 5ms takes 2s uses 300ms".
func (st *step) parseRequest(t *testing.T, cell string) {
	t.Helper()
	fields := strings.Fields(cell)
	if len(fields) < 2 {
		t.Fatalf("story: a method and a path are needed: %q", cell)
	}
	st.method, st.target = fields[0], fields[1]
	for i := 2; i < len(fields); i++ {
		var err error
		switch count, isCount := strings.CutPrefix(fields[i], "×"); {
		case isCount:
			st.times, err = strconv.Atoi(count)
		case fields[i] == "every" && i+1 < len(fields):
			i++
			st.every, err = time.ParseDuration(fields[i])
		case fields[i] == "takes" && i+1 < len(fields):
			i++
			st.takes, err = time.ParseDuration(fields[i])
		case fields[i] == "sends" && i+1 < len(fields):
			i++
			st.sends, err = strconv.ParseInt(fields[i], 10, 64)
		case fields[i] == "uses" && i+1 < len(fields):
			i++
			st.uses, err = time.ParseDuration(fields[i])
		default:
			t.Fatalf("story: %q is not understood: %q", fields[i], cell)
		}
		if err != nil {
			t.Fatalf("story: %q: %v", cell, err)
		}
	}
}

// play runs the story with the same middleware as serve, and returns the story with the
// actual answers.
func (s *story) play(t *testing.T, file *policyfile.File) string {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now() // the clock of synctest advances while all goroutines sleep
		var stored *state
		if slices.ContainsFunc(s.steps, func(st *step) bool { return st.command != "" }) {
			stored = newState(t)
		}
		var sent []*request
		var inProgress sync.WaitGroup
		start := func() *process {
			return newProcess(t, file, stored, begin, func(r *httpguard.Report) {
				i, err := strconv.Atoi(r.Request.Header.Values(indexHeader)[0])
				if err != nil {
					t.Error(err)
					return
				}
				sent[i].reports = append(sent[i].reports, *r)
				sent[i].logged = append(sent[i].logged, logEntry(r))
			})
		}
		p := start()
		wait := func(st *step, at time.Duration) {
			if late := time.Since(begin) - at; late > 0 {
				t.Fatalf("story: %q begins %v before the step above it ends", st.head, late)
			}
			time.Sleep(at - time.Since(begin))
			synctest.Wait() // answers to waiting requests
		}
		for _, st := range s.steps {
			if st.command != "" {
				wait(st, st.at)
				if st.command == restart {
					stored.save(p.limiter, p.now())
					p = start()
				} else {
					stored.execute(st.command, p, &file.Policy, p.now())
				}
				continue
			}
			for n := 1; n <= st.times; n++ {
				wait(st, st.at+time.Duration(n-1)*st.every)
				q := &request{step: st, n: n, index: len(sent), answer: httptest.NewRecorder()}
				st.requests, sent = append(st.requests, q), append(sent, q)
				inProgress.Go(func() { q.send(p.handler) })
				synctest.Wait() // it is answered, waits, or the site works on it
			}
		}
		inProgress.Wait()
	})
	return s.text()
}

// A process is the site behind the middleware.
type process struct {
	handler http.Handler
	guard   *fairshare.Guard
	limiter *memlimit.Limiter
	now     func() time.Time // noon when the story begins
}

// newProcess creates a process like serve, with the stored state, which may be nil.
func newProcess(t *testing.T, file *policyfile.File, stored *state, begin time.Time,
	refused func(*httpguard.Report)) *process {
	t.Helper()
	p := &process{now: func() time.Time { return noon.Add(time.Since(begin)) }}
	var err error
	if p.limiter, err = memlimit.New(file.Policy.Limits(), memlimit.Options{Memory: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	bans := membans.New(0)
	file.Provide(provided)
	if p.guard, err = fairshare.NewGuard(&file.Policy, p.limiter, bans); err != nil {
		t.Fatal(err)
	}
	clients, err := clientaddr.New(clientaddr.Config{TrustedProxies: file.TrustedProxies, Header: file.Header})
	if err != nil {
		t.Fatal(err)
	}
	opts := httpguard.Options{
		Client: func(r *http.Request) httpguard.Client {
			found := clients.Resolve(r.RemoteAddr, r.Header)
			return httpguard.Client{Addr: found.Addr, Proxy: found.Proxy}
		},
		Bot:               bots.NewVerifier(bots.Options{}).Look,
		Contact:           file.Contact,
		HandlerReportsCPU: true,
		Refused:           refused,
		Failed:            func(_ *http.Request, err error) { t.Error(err) },
		Now:               p.now,
	}
	if s := file.Share; s != nil {
		opts.Share = share.New(share.Options{
			Capacity: s.Capacity, By: s.By, Wait: s.Wait, Queue: s.Queue, Ages: s.Ages, Labels: s.Labels,
			Bots: s.Bots,
			Key:  p.guard.AppendKey, Client: file.Policy.Client,
		})
	}
	if stored != nil {
		stored.restore(p.limiter, bans, p.now())
		opts.Override, opts.ReferenceKey = stored.override, stored.key
		opts.Refused = func(r *httpguard.Report) {
			stored.refused(r)
			refused(r)
		}
	}
	p.handler = httpguard.Middleware(p.guard, opts)(http.HandlerFunc(site))
	return p
}

type requestKey struct{}

// indexHeader has the index of a request in the story.
const indexHeader = "X-Index"

// send sends the request like a client.
func (q *request) send(handler http.Handler) {
	count := strconv.Itoa(q.n)
	r := httptest.NewRequest(q.method, strings.ReplaceAll(q.target, "{n}", count), nil)
	r.Host = "shop.example"
	addr := netip.MustParseAddr(strings.ReplaceAll(q.client.addr, "{n}", count))
	r.RemoteAddr = netip.AddrPortFrom(addr, 40000).String()
	for _, h := range q.client.headers {
		if h[0] == "Host" {
			r.Host = h[1]
			continue
		}
		r.Header.Add(h[0], strings.ReplaceAll(h[1], "{n}", count))
	}
	r.Header.Set(indexHeader, strconv.Itoa(q.index))
	q.sent = time.Now()
	handler.ServeHTTP(q.answer, r.WithContext(context.WithValue(r.Context(), requestKey{}, q)))
}

// site is the upstream. Its answers are in the story.
func site(w http.ResponseWriter, r *http.Request) {
	q := r.Context().Value(requestKey{}).(*request)
	q.reached, q.waited = true, time.Since(q.sent)
	time.Sleep(q.takes)
	httpguard.ReportCPU(w, q.uses)
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(q.status)
	if r.URL.Path == "/robots.txt" {
		io.WriteString(w, "User-agent: *\nDisallow: /search\n")
	}
	w.Write(make([]byte, q.sends))
}

// text returns the story with the actual answers.
func (s *story) text() string {
	lines := slices.Clone(s.lines)
	for _, st := range s.steps {
		if st.command != "" {
			continue
		}
		var answers []string
		for _, q := range st.requests {
			if a := q.text(); !slices.Contains(answers, a) {
				answers = append(answers, a)
			}
		}
		lines[st.line] = st.head + strings.Repeat(" ", s.width()-len([]rune(st.head))) + strings.Join(answers, " | ")
	}
	return strings.Join(lines, "\n") + "\n"
}

// width is the column of the answers.
func (s *story) width() int {
	most := 0
	for _, st := range s.steps {
		if st.command == "" {
			most = max(most, len([]rune(st.head)))
		}
	}
	return most + 3
}

// arrival returns the time of the request in the story.
func (q *request) arrival() time.Time { return noon.Add(q.at + time.Duration(q.n-1)*q.every) }

func (q *request) text() string {
	text := strconv.Itoa(q.answer.Code)
	if !q.reached && len(q.logged) > 0 {
		q.waited = q.logged[0].Time.Sub(q.arrival())
	}
	if q.waited > 0 {
		text += "   " + waited + q.waited.String()
	}
	for i := range q.reports {
		r := &q.reports[i]
		retryAfter := q.answer.Header().Get("Retry-After")
		if r.DryRun {
			text += fmt.Sprintf("   would be %d", r.Status)
			if retryAfter = ""; r.RetryAfter > 0 {
				retryAfter = strconv.FormatInt(r.RetryAfter, 10)
			}
		}
		if busy(r) {
			retryAfter = sampleWait
		}
		if retryAfter != "" {
			text += "   Retry-After: " + retryAfter
		}
		if link := q.answer.Header().Get("Link"); link != "" && !r.DryRun {
			text += "   Link: " + link
		}
		text += fmt.Sprintf("   %q", r.Finding.Rule.Name)
	}
	return text
}

// check tests properties of an answer that the story does not show.
func (q *request) check(t *testing.T) {
	t.Helper()
	enforced := 0
	logged := q.arrival()
	if !q.reached {
		logged = logged.Add(q.waited)
	}
	for i, r := range q.reports {
		if !r.DryRun {
			enforced++
			header := q.answer.Header()
			if r.Status != q.answer.Code || header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s: answer %d, Cache-Control %q; want %d, no-store", q.head, q.answer.Code,
					header.Get("Cache-Control"), r.Status)
			}
			if got, want := header.Get("Retry-After"), strconv.FormatInt(r.RetryAfter, 10); got != want &&
				(got != "" || r.RetryAfter != 0) {
				t.Errorf("%s: Retry-After: %q, the report says %s", q.head, got, want)
			}
		}
		if e := q.logged[i]; e.Rule == "" || e.ID == "" || e.Status != r.Status || !e.Client.IsValid() ||
			!e.Time.Equal(logged) {
			t.Errorf("%s: log entry %+v has a wrong rule, id, status, client or time", q.head, e)
		}
	}
	for _, e := range q.logged { // keys may hold credentials
		text := fmt.Sprint(e) + q.answer.Body.String()
		for _, h := range q.client.headers {
			if value := strings.ReplaceAll(h[1], "{n}", strconv.Itoa(q.n)); (h[0] == "Cookie" ||
				h[0] == "X-Api-Key") && strings.Contains(text, value) {
				t.Errorf("%s: log or answer contains the %s %q: %s", q.head, h[0], value, text)
			}
		}
	}
	if q.reached && q.status == http.StatusTooManyRequests {
		t.Errorf("%s: no rule refused it, the site itself did", q.head)
	}
	if q.reached != (enforced == 0) {
		t.Errorf("%s: reached the site: %v, refused or blocked: %d times", q.head, q.reached, enforced)
	}
}

// sampleID replaces the random reference of an answer in a page.
const sampleID = "5w0k2n8qtr"

// sampleLoad replaces the load average in a page.
const sampleLoad = 0.42

// sampleWait replaces the random Retry-After of a busy upstream in a page.
const sampleWait = "3"

func busy(r *httpguard.Report) bool { return r.Finding.Rule == fairshare.BusyUpstream }

// http returns the answer in the format of HTTP/1.1.
func (q *request) http() string {
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\n", q.answer.Code, http.StatusText(q.answer.Code))
	header := q.answer.Header()
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range header {
			if !yield(name) {
				return
			}
		}
	}) {
		fmt.Fprintf(&b, "%s: %s\n", name, strings.Join(header[name], ", "))
	}
	body := strings.ReplaceAll(q.answer.Body.String(), q.reports[0].ID, sampleID)
	text := b.String() + "\n" + strings.TrimSuffix(body, "\n") + "\n"
	if busy(&q.reports[0]) {
		wait := header.Get("Retry-After")
		text = strings.NewReplacer("Retry-After: "+wait, "Retry-After: "+sampleWait, "wait 1 second.",
			"wait "+sampleWait+" seconds.", "wait "+wait+" s", "wait "+sampleWait+" s").Replace(text)
	}
	return text
}

// log returns the request's line in the limiter log.
func (q *request) log() string {
	var b bytes.Buffer
	j, err := journal.Open(journal.Options{Load: func() (float64, bool) { return sampleLoad, true }}, &b)
	if err != nil {
		panic(err) // cannot happen: it opens no file
	}
	e := q.logged[0]
	e.ID = sampleID
	if busy(&q.reports[0]) {
		e.RetryAfter, _ = strconv.ParseInt(sampleWait, 10, 64)
	}
	j.Add(&e)
	j.Close()
	return b.String()
}

// logEntry returns the entry that serve writes for a report.
func logEntry(r *httpguard.Report) journal.Entry {
	e := journal.Entry{
		Time: r.Request.Time, Client: r.Request.Addr,
		Method: r.Request.Method, Host: r.Request.Host, Path: r.Request.Path, UserAgent: r.Request.UserAgent,
		Bot: r.Request.Bot.Name, BotState: r.Request.Bot.State.String(),
		Cookies: fairshare.Cookies(r.Request.Header),
		Action:  r.Finding.Action.String(), DryRun: r.DryRun, Status: r.Status, RetryAfter: r.RetryAfter, ID: r.ID,
	}
	if rule := r.Finding.Rule; rule != nil {
		e.Rule = rule.Name
		if r.Finding.Action == fairshare.Refuse && r.Finding.Ban != fairshare.BanInForce && rule.Limit != nil {
			e.Resource, e.Used, e.Allowed = rule.Limit.Resource.String(), r.Finding.Tally.Used, rule.Limit.Allowed()
		}
	}
	switch r.Finding.Ban {
	case fairshare.BanStarted:
		e.Ban = journal.BanStarted
	case fairshare.BanInForce:
		e.Ban = journal.BanInForce
	}
	return e
}

// firstReported returns the first request with a report.
func (s *story) firstReported() *request {
	for _, st := range s.steps {
		for _, q := range st.requests {
			if len(q.reports) > 0 {
				return q
			}
		}
	}
	return nil
}
