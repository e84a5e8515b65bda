package proxy

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestRequestsInProgressKeepTheirConfig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cancelled atomic.Int64
		s := newSite(t, slow(time.Hour, &cancelled), Config{Abandon: 10 * time.Second, Timeout: 2 * time.Hour})
		v := s.visitor()
		v.send("GET / HTTP/1.1\nHost: a\n\n")
		synctest.Wait()
		before := s.proxy.setup.Load().pools[0].ups[0].transport
		s.proxy.Replace(Config{Upstream: &url.URL{Scheme: "http", Host: "upstream"}, Timeout: 2 * time.Hour,
			Hosts: []string{"b"}, Abandon: time.Hour})
		if s.proxy.setup.Load().pools[0].ups[0].transport != before {
			t.Error("the connections to the upstream were closed")
		}
		if status, _ := s.get("/"); status != 421 {
			t.Errorf("after the change: %d, want 421", status)
		}
		v.Close()
		time.Sleep(time.Minute)
		if at := cancelled.Load(); at != 10 {
			t.Errorf("cancelled after %d s, want 10", at)
		}
	})
}

// No request is lost while the upstream changes many times.
func TestReplaceUnderLoad(t *testing.T) {
	var both [2]*url.URL
	for i := range both {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			w.Write(body)
		}))
		defer srv.Close()
		both[i], _ = url.Parse(srv.URL)
	}
	p := New(Config{Upstream: both[0]})
	defer p.Close()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 200 {
				w := httptest.NewRecorder()
				if p.ServeHTTP(w, httptest.NewRequest("POST", "/", http.NoBody)); w.Code != 200 {
					t.Errorf("status %d", w.Code)
				}
			}
		})
	}
	for i := range 100 {
		p.Replace(Config{Upstream: both[i%2], Header: "X-Client", Timeout: time.Duration(1+i%3) * time.Minute})
	}
	all.Wait()
	if n := p.inside.Load(); n != 0 {
		t.Errorf("%d requests are in progress", n)
	}
}
