package proxy

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"
)

var h2cUpstream = url.URL{Scheme: "h2c", Host: "upstream"}

func TestUpstreamSpeaksHTTP2ByPriorKnowledge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
			n, err := io.Copy(io.Discard, r.Body)
			fmt.Fprintf(w, "%s %s %s %s %d %v %v", r.Proto, r.Host, r.RequestURI, r.Header["X-Forwarded-Proto"], n,
				err, r.Header["Upgrade"])
		}, Config{Upstream: &h2cUpstream})
		for _, test := range []struct{ sent, want string }{
			{"GET /a%2fb?c=d HTTP/1.1\nHost: site.example\n\n", "HTTP/2.0 site.example /a%2fb?c=d [http] 0 <nil> []"},
			{"POST /a HTTP/1.1\nHost: site.example\nContent-Length: 3\n\nabc",
				"HTTP/2.0 site.example /a [http] 3 <nil> []"},
			// HTTP/2 by prior knowledge has no websockets.
			{"GET / HTTP/1.1\nHost: a\nConnection: Upgrade\nUpgrade: websocket\n\n", "HTTP/2.0 a / [http] 0 <nil> []"},
		} {
			v := s.visitor()
			v.send(test.sent)
			resp := v.head()
			if body, err := io.ReadAll(resp.Body); string(body) != test.want || err != nil {
				t.Errorf("%q: %s %q %v, want %q", test.sent, resp.Status, body, err, test.want)
			}
		}
	})
}

func TestResetReachesAnHTTP2UpstreamInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cancelled := make(chan time.Time, 1)
		s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			cancelled <- time.Now()
		}, Config{Upstream: &h2cUpstream, Timeout: time.Hour})
		v := s.visitor()
		v.send("GET / HTTP/1.1\nHost: a\n\n")
		synctest.Wait()
		began := time.Now()
		v.Close()
		if at := <-cancelled; at.Sub(began) != DefaultAbandon {
			t.Errorf("cancelled after %v, want %v", at.Sub(began), DefaultAbandon)
		}
	})
}

// In gRPC both sides may send at the same time. So the body is not read ahead, and a
// client may pause as long as it likes.
func TestGRPCBodiesAreNotReadAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
			w.Header().Set("Trailer", "Grpc-Status")
			w.(http.Flusher).Flush()
			word := make([]byte, 4)
			for {
				if _, err := io.ReadFull(r.Body, word); err != nil {
					break
				}
				fmt.Fprintf(w, "re: %s", word)
				w.(http.Flusher).Flush()
			}
			w.Header().Set("Grpc-Status", r.Header.Get("Te")+" 0")
		}, Config{Upstream: &h2cUpstream, Timeout: time.Hour})
		pr, pw := io.Pipe()
		req, _ := http.NewRequest("POST", "http://a/service/method", pr)
		req.Header.Set("Content-Type", "application/grpc+proto")
		req.Header.Set("Te", "trailers")
		resp, err := s.http2().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		answer := make([]byte, 8)
		for _, word := range []string{"one.", "two.", "tre."} {
			time.Sleep(5 * time.Minute)
			io.WriteString(pw, word)
			if _, err := io.ReadFull(resp.Body, answer); err != nil || string(answer) != "re: "+word {
				t.Fatalf("%q: %q, %v", word, answer, err)
			}
		}
		pw.Close()
		rest, err := io.ReadAll(resp.Body)
		if len(rest) > 0 || err != nil || resp.Trailer.Get("Grpc-Status") != "trailers 0" {
			t.Errorf("%q, %v, trailer %v", rest, err, resp.Trailer)
		}
	})
}

// Only gRPC over HTTP/2 is exempt: its content type alone is not enough.
func TestBothAtOnce(t *testing.T) {
	for _, test := range []struct {
		scheme string
		major  int
		kind   string
		want   bool
	}{
		{"h2c", 2, "application/grpc", true},
		{"h2c", 2, "Application/gRPC+json", true},
		{"h2c", 2, "application/grpc; x=y", true},
		{"h2c", 2, "application/grpc-web", false},
		{"h2c", 2, "application/json", false},
		{"h2c", 2, "", false},
		{"h2c", 1, "application/grpc", false},
		{"http", 2, "application/grpc", false},
	} {
		s := &pool{scheme: test.scheme}
		r := &http.Request{ProtoMajor: test.major, Header: http.Header{"Content-Type": {test.kind}}}
		if got := s.bothAtOnce(r); got != test.want {
			t.Errorf("%+v: %v", test, got)
		}
	}
}

func TestSlowHTTP2Upstream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			Config{Upstream: &h2cUpstream})
		began := time.Now()
		if status, _ := s.get("/"); status != 504 || time.Since(began) != DefaultTimeout {
			t.Errorf("%d after %v, want 504 after %v", status, time.Since(began), DefaultTimeout)
		}
	})
}
