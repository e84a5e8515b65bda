package proxy

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"fairshare"
)

// measured are limits that no test reaches. They show what is charged.
var measured = []fairshare.Rule{
	{Name: "cpu", Limit: &fairshare.Limit{Resource: fairshare.CPU, N: 1 << 40, Window: time.Hour}},
	{Name: "time", Limit: &fairshare.Limit{Resource: fairshare.Time, N: 1 << 40, Window: time.Hour}},
	{Name: "cost", Limit: &fairshare.Limit{Resource: fairshare.Cost, N: 1 << 40, Window: time.Hour}},
}

// An upstream reports the cost of a request in the header, the trailer or both. The
// client gets these without the reports.
func TestCostsInHeaderOrTrailer(t *testing.T) {
	const unreported = 3000 // ms: the time that the upstream takes
	type fields map[string]string
	for _, test := range []struct {
		name            string
		c               Config
		header, trailer fields
		ms, cost        int64
		get, inTrailer  fields // that the client gets
	}{
		{"nothing", Config{Timing: "cpu", CostHeader: "X-Cost"}, nil, nil, unreported, 1, nil, nil},
		{"not configured", Config{}, fields{"Server-Timing": "cpu;dur=7", "X-Cost": "5"},
			fields{"Server-Timing": "cpu;dur=8"}, unreported, 1,
			fields{"Server-Timing": "cpu;dur=7", "X-Cost": "5"}, fields{"Server-Timing": "cpu;dur=8"}},
		{"in the header", Config{Timing: "cpu", CostHeader: "x-cost", MaxCost: 100},
			fields{"Server-Timing": "db;dur=1, cpu;dur=7", "X-Cost": "5", "X-Other": "o"}, nil, 7, 5,
			fields{"Server-Timing": "db;dur=1", "X-Other": "o"}, nil},
		{"in the trailer", Config{Timing: "cpu", CostHeader: "X-Cost", MaxCost: 100},
			nil, fields{"Server-Timing": "cpu;dur=7", "X-Cost": "500"}, 7, 100, nil, nil},
		{"in both", Config{Timing: "cpu", CostHeader: "X-Cost"},
			fields{"Server-Timing": "cpu;dur=7", "X-Cost": "5"},
			fields{"Server-Timing": "cpu;dur=9,total;dur=20", "X-Cost": "4", "X-Sum": "s"}, 9, 4,
			nil, fields{"Server-Timing": "total;dur=20", "X-Sum": "s"}},
		{"malformed in the trailer", Config{Timing: "cpu", CostHeader: "X-Cost"},
			fields{"Server-Timing": "cpu;dur=7", "X-Cost": "5"}, fields{"Server-Timing": "cpu;dur=x", "X-Cost": "x"},
			7, 5, nil, nil},
		{"with KeepTiming", Config{Timing: "cpu", KeepTiming: true},
			fields{"Server-Timing": "cpu;dur=7"}, fields{"Server-Timing": "cpu;dur=9"}, 9, 1,
			fields{"Server-Timing": "cpu;dur=7"}, fields{"Server-Timing": "cpu;dur=9"}},
		{"another metric", Config{Timing: "app-cpu"}, fields{"Server-Timing": "cpu;dur=7, app-cpu;dur=2"}, nil, 2, 1,
			fields{"Server-Timing": "cpu;dur=7"}, nil},
		{"another header", Config{CostHeader: "X_Score"}, fields{"X_Score": "6", "X-Cost": "5"}, nil, unreported, 6,
			fields{"X-Cost": "5"}, nil},
		{"in fractions", Config{Timing: "cpu", CostHeader: "X-Cost"},
			fields{"Server-Timing": "cpu;dur=3.9996, cpu;dur=2.9999", "X-Cost": "0.25"}, nil, 7, 1, nil, nil},
		{"free", Config{Timing: "cpu", CostHeader: "X-Cost"}, fields{"Server-Timing": "cpu;dur=0", "X-Cost": "0"},
			nil, 0, 0, nil, nil},
		{"as headers of the connection", Config{Timing: "cpu", CostHeader: "X-Cost"},
			fields{"Connection": "X-Cost, Server-Timing", "Server-Timing": "cpu;dur=7", "X-Cost": "5"}, nil, 7, 5,
			nil, nil},
	} {
		for _, upstream := range []string{"http", "h2c"} {
			synctest.Test(t, func(t *testing.T) {
				test.c.Upstream = &url.URL{Scheme: upstream, Host: "upstream"}
				s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
					time.Sleep(unreported * time.Millisecond)
					query := r.URL.Query()
					for name, value := range test.header {
						w.Header().Set(name, value)
					}
					var n int
					fmt.Sscan(query.Get("n"), &n)
					prefix := http.TrailerPrefix
					if query.Has("declared") {
						prefix = ""
						for name := range test.trailer {
							w.Header().Add("Trailer", name)
						}
					}
					if query.Has("length") {
						w.Header().Set("Content-Length", fmt.Sprint(n))
					}
					io.WriteString(w, strings.Repeat("x", n))
					if !query.Has("length") {
						w.(http.Flusher).Flush()
					}
					for name, value := range test.trailer {
						w.Header().Set(prefix+name, value)
					}
				}, test.c, measured...)
				for _, client := range []*http.Client{{Transport: &http.Transport{DialContext: s.clients.dial,
					DisableKeepAlives: true}}, s.http2()} {
					for _, n := range []int{0, 10, 5_000, 200_000} {
						for _, how := range []string{"", "&declared", "&length&declared"} {
							if how == "&length&declared" && upstream == "http" && len(test.trailer) > 0 {
								continue // HTTP/1.0 has no trailers
							}
							resp, err := client.Get(fmt.Sprintf("http://a/?n=%d%s", n, how))
							if err != nil {
								t.Fatal(err)
							}
							body, err := io.ReadAll(resp.Body)
							resp.Body.Close()
							synctest.Wait()
							if err != nil || len(body) != n {
								t.Errorf("%d bytes, %v", len(body), err)
							}
							id := fmt.Sprintf("%s, %s from %s, %d bytes%s", test.name, resp.Proto, upstream, n, how)
							cpu, cost := s.charged.total(fairshare.CPU), s.charged.total(fairshare.Cost)
							if took := s.charged.total(fairshare.Time); cpu != test.ms*1000 || cost != test.cost ||
								took != unreported*1000 {
								t.Errorf("%s: %d µs of CPU, %d units, %d µs; want %d, %d, %d", id, cpu, cost, took,
									test.ms*1000, test.cost, unreported*1000)
							}
							for _, name := range []string{"Server-Timing", "X-Cost", "X_score", "X-Other", "X-Sum"} {
								if got := strings.Join(resp.Header[name], "|"); got != test.get[name] {
									t.Errorf("%s: %s is %q, want %q", id, name, got, test.get[name])
								}
								inTrailer := test.inTrailer[name]
								if resp.ProtoMajor == 1 && how == "&length&declared" {
									inTrailer = "" // HTTP/1.0 has no trailers
								}
								if got := strings.Join(resp.Trailer[name], "|"); got != inTrailer {
									t.Errorf("%s: the trailer's %s is %q, want %q", id, name, got, inTrailer)
								}
								if _, announced := resp.Trailer[name]; announced && test.inTrailer[name] == "" {
									t.Errorf("%s: the announced trailer has %s", id, name)
								}
							}
						}
					}
				}
			})
		}
	}
}

// The costs in the header of a broken answer count; the costs in its missing trailer
// do not.
func TestBrokenAnswersReportCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Server-Timing", "cpu;dur=7")
			w.Header().Set("X-Cost", "5")
			w.Header().Set("Trailer", "X-Cost")
			w.Write(make([]byte, len(r.URL.Path)))
			w.(http.Flusher).Flush()
			w.Header().Set("X-Cost", "9")
			panic(http.ErrAbortHandler)
		}, Config{Timing: "cpu", CostHeader: "X-Cost"}, measured...)
		for _, n := range []int{1, 5_000, 60_000} {
			v := s.visitor()
			v.send("GET /" + strings.Repeat("x", n-1) + " HTTP/1.1\nHost: a\n\n")
			all, _ := io.ReadAll(v.r)
			if strings.HasSuffix(string(all), "\r\n0\r\n\r\n") {
				t.Errorf("%d bytes: a broken answer looks complete", n)
			}
			if cpu, cost := s.charged.total(fairshare.CPU), s.charged.total(fairshare.Cost); cpu != 7000 || cost != 5 {
				t.Errorf("%d bytes: %d µs of CPU and %d units, want 7000 and 5", n, cpu, cost)
			}
		}
	})
}

// Reported costs are removed from all parts of an answer, including interim
// answers. An answer without other trailers announces none.
func TestCostsAreRemovedFromAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
			conn, rw, _ := w.(http.Hijacker).Hijack()
			defer conn.Close()
			rw.WriteString(
				"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nX-Cost: 70\r\nServer-Timing: cpu;dur=70\r\n\r\n" +
					"HTTP/1.1 200 OK\r\nTrailer: x-cost, SERVER-TIMING\r\nTransfer-Encoding: chunked\r\nserver-timing: cpu;dur=1,a\r\nServer-timing: cpu;dur=2\r\nx-cost: 3\r\n\r\n" +
					"2\r\nhi\r\n0\r\nX-COST: 4\r\nServer-Timing: cpu;dur=5\r\n\r\n")
			rw.Flush()
		}, Config{Timing: "cpu", CostHeader: "X-Cost"}, measured...)
		v := s.visitor()
		v.send("GET / HTTP/1.1\nHost: a\nConnection: close\n\n")
		all, err := io.ReadAll(v.r)
		if got := strings.ToLower(string(all)); err != nil || strings.Contains(got, "cost") ||
			strings.Contains(got, "cpu") || strings.Contains(got, "trailer") ||
			strings.Count(got, "server-timing: a\r\n") != 1 || !strings.Contains(got, "link: </a.css>\r\n") {
			t.Errorf("the client got %q, %v", all, err)
		}
		if cpu, cost := s.charged.total(fairshare.CPU), s.charged.total(fairshare.Cost); cpu != 5000 || cost != 4 {
			t.Errorf("%d µs of CPU and %d units, want 5000 and 4, of the last report", cpu, cost)
		}
	})
}

// A client cannot set its own costs, even if the upstream copies all request headers
// to its answer: in no spelling, and not in a trailer.
func TestClientsCannotReportCosts(t *testing.T) {
	for _, c := range []Config{{CostHeader: "X-Cost", Timing: "cpu"}, {CostHeader: "X_Cost", Timing: "cpu"},
		{CostHeader: "x-cost", Timing: "cpu", KeepUnderscores: true, Trusts: func(string) bool { return true }}} {
		synctest.Test(t, func(t *testing.T) {
			var got http.Header
			s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				got = r.Header.Clone()
				maps.Copy(got, r.Trailer)
				for name, values := range got {
					if name == "Content-Length" {
						continue
					}
					for _, v := range values {
						w.Header().Add(strings.ReplaceAll(name, "_", "-"), v)
						w.Header().Add(http.TrailerPrefix+strings.ReplaceAll(name, "_", "-"), v)
					}
				}
			}, c, measured...)
			v := s.visitor()
			const all = "X-Cost: 0\nx-cost: 0\nX_COST: 0\nx_cost: 0\nX.Cost: 0\nServer-Timing: cpu;dur=0\nServer_Timing: cpu;dur=0\n"
			v.send("POST / HTTP/1.1\nHost: a\n" + all +
				"Connection: X-Cost\nTrailer: X-Cost, X_Cost, Server-Timing\nTransfer-Encoding: chunked\n\n2\nhi\n0\n" + all + "\n")
			resp := v.head()
			io.Copy(io.Discard, resp.Body)
			synctest.Wait()
			for _, name := range slices.Sorted(maps.Keys(got)) {
				if low := strings.ToLower(name); strings.Contains(low, "cost") || strings.Contains(low, "timing") {
					t.Errorf("%+v: the upstream gets %s", c, name)
				}
			}
			if got == nil || s.charged.total(fairshare.Cost) != 1 {
				t.Errorf("%+v: the client set its own costs, %v", c, got)
			}
		})
	}
}

// Some upstreams report costs in trailers only if the request accepts trailers. So
// requests do.
func TestTrailersAreRequested(t *testing.T) {
	for _, test := range []struct {
		c    Config
		want string
	}{{Config{}, ""}, {Config{Timing: "cpu"}, "trailers"}, {Config{CostHeader: "X-Cost"}, "trailers"}} {
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Header.Get("Te")) },
				test.c)
			if _, te := s.get("/"); te != test.want {
				t.Errorf("%+v: TE is %q, want %q", test.c, te, test.want)
			}
		})
	}
}

// Answers without a body can report costs, and so can the answer that starts a websocket.
func TestAnswersWithoutBodiesReportCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Server-Timing", "cpu;dur=7")
			w.Header().Set("X-Cost", "5")
			switch r.URL.Path {
			case "/head":
				w.Header().Set("Content-Length", "100")
			case "/204":
				w.WriteHeader(204)
			case "/304":
				w.WriteHeader(304)
			case "/chat":
				conn, rw, _ := w.(http.Hijacker).Hijack()
				rw.WriteString(
					"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\nServer-Timing: cpu;dur=7\r\nX-Cost: 5\r\n\r\n")
				rw.Flush()
				conn.Close()
			}
		}, Config{Timing: "cpu", CostHeader: "X-Cost"}, measured...)
		for _, request := range []string{"HEAD /head", "GET /204", "GET /304", "GET /empty", "GET /chat"} {
			v := s.visitor()
			v.send(request + " HTTP/1.1\nHost: a\nConnection: Upgrade\nUpgrade: websocket\n\n")
			method, _, _ := strings.Cut(request, " ")
			resp, err := http.ReadResponse(bufio.NewReader(v), &http.Request{Method: method})
			if err != nil {
				t.Fatal(err)
			}
			v.Close()
			synctest.Wait()
			if resp.Header.Get("Server-Timing")+resp.Header.Get("X-Cost") != "" {
				t.Errorf("%s: the client gets %v", request, resp.Header)
			}
			if cpu, cost := s.charged.total(fairshare.CPU), s.charged.total(fairshare.Cost); cpu != 7000 || cost != 5 {
				t.Errorf("%s: %d µs of CPU and %d units, want 7000 and 5", request, cpu, cost)
			}
		}
	})
}
