package serve

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"fairshare/internal/cli"
)

// A second signal ends what the first one began: afterwards nothing uses the state folder any more.
func TestStopNowWaitsForTheHandOver(t *testing.T) {
	t.Parallel()
	arrived, leave := make(chan struct{}), make(chan struct{})
	site := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(arrived)
		<-leave
	}))
	t.Cleanup(site.Close)
	t.Cleanup(func() { close(leave) })
	opts := Options{Flags: Flags{Listen: "127.0.0.1:0", Upstream: site.URL,
		Policy: writeFile(t, "site.yaml", "rules: [{name: all, limit: {requests: 100, per: 1h}}]")},
		State: t.TempDir(), Now: time.Now, Stderr: io.Discard}
	stopNow := make(chan struct{})
	close(stopNow)
	opts.StopNow = stopNow
	file, err := opts.load(opts.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s, err := newServer(ctx, file, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	ended := make(chan error, 1)
	go func() { ended <- s.http.Serve(s.listener) }()
	go http.Get("http://" + s.listener.Addr().String() + "/slow")
	<-arrived
	if err := s.drain(); err != cli.ErrReported {
		t.Errorf("the end of requests in progress: %v", err)
	}
	if s.policy.OwnsState() {
		t.Error("the counters are still to be handed over")
	}
	<-ended
}
