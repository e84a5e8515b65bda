package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// A slowSite answers a request when it receives from let.
type slowSite struct {
	*httptest.Server
	let     chan struct{}
	arrived chan string // paths

	mu    sync.Mutex
	order []string
}

func newSlowSite(t *testing.T) *slowSite {
	s := &slowSite{let: make(chan struct{}), arrived: make(chan string, 100)}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.order = append(s.order, r.URL.Path)
		s.mu.Unlock()
		s.arrived <- r.URL.Path
		if r.URL.Path == "/events" {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "data: 1\n\n")
			w.(http.Flusher).Flush()
		}
		select {
		case <-s.let:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// A busy upstream makes one request wait and refuses the next. A reload may add
// capacity, and event streams need none.
func TestBusyUpstreamRefusesBeyondItsQueue(t *testing.T) {
	site := newSlowSite(t)
	p, path := serveFile(t, behindLoopback+"share: {capacity: 1, queue: 1, wait: 1m, known_after: 0s}\nrules: []\n",
		"--upstream", site.URL)
	codes := make(chan string, 10)
	ask := func(client, path string) {
		go func() {
			resp := getFrom(t, "http://"+p.addr+path, client)
			codes <- fmt.Sprint(path, " ", resp.StatusCode, " ", resp.Header.Get("Retry-After") != "")
		}()
	}
	ask("192.0.2.1", "/works")
	<-site.arrived
	ask("192.0.2.1", "/second")
	ask("192.0.2.1", "/third")
	refused := <-codes // the other one waits
	if !strings.HasSuffix(refused, " 503 true") {
		t.Errorf("answered %s", refused)
	}
	line := p.read(t, `(\{.*"client":"192\.0\.2\.1".*\})`)
	if !strings.Contains(line, `"rule":"share of a busy upstream","action":"refuse","dry_run":false,"status":503`) {
		t.Errorf("the journal says %s", line)
	}
	// A reload doubles the capacity: the queued request gets a turn.
	writeOver(t, path, behindLoopback+"share: {capacity: 2, queue: 5, wait: 1m, known_after: 0s}\nrules: []\n")
	p.reload(t, `share: (the upstream works on 2 requests at once.*)`)
	<-site.arrived
	site.let <- struct{}{}
	site.let <- struct{}{}
	got := []string{<-codes, <-codes}
	slices.Sort(got)
	if !strings.HasSuffix(got[0], " 200 false") || got[1] != "/works 200 false" {
		t.Errorf("answered %q", got)
	}

	// An event stream that has begun uses no capacity.
	for range 3 {
		resp, err := http.Get("http://" + p.addr + "/events")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		<-site.arrived
	}

	writeOver(t, path, behindLoopback+"rules: []\n")
	p.reload(t, `share: (auto \(the default\).*)`)
	writeOver(t, path, behindLoopback+"share: none\nrules: []\n")
	p.reload(t, `share: (none: requests do not wait for the upstream)`)
}

// A queued request is answered 503 shortly before the grace period ends.
func TestQueuedRequestsAreRefusedBeforeTheGraceEnds(t *testing.T) {
	t.Parallel()
	site := newSlowSite(t)
	p, _ := serveFile(t,
		behindLoopback+"grace: 10s\nshare: {capacity: 1, queue: 1, wait: 1m, known_after: 0s}\nrules: []\n",
		"--upstream", site.URL)
	codes := make(chan int, 3)
	ask := func() {
		req, err := http.NewRequest("GET", "http://"+p.addr+"/works", nil)
		if err != nil {
			t.Error(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil { // cut off
			codes <- 0
			return
		}
		resp.Body.Close()
		codes <- resp.StatusCode
	}
	go ask()
	<-site.arrived
	go ask()
	go ask()
	if code := <-codes; code != http.StatusServiceUnavailable { // so the other one waits
		t.Errorf("beyond the queue: %d", code)
	}
	p.Process.Signal(syscall.SIGTERM)
	if code := <-codes; code != http.StatusServiceUnavailable {
		t.Errorf("the queued request is answered %d", code)
	}
}
