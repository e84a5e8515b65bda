package proxy

import (
	"bytes"
	"log"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// If the policy expects reports of costs and the upstream sends none, one warning is
// logged. An occasional report is enough to prevent it.
func TestMissingReportsAreLogged(t *testing.T) {
	logOf := func(c Config, answers int, answer func(i int) *http.Response) string {
		var b bytes.Buffer
		c.Log = log.New(&b, "", 0)
		c.Upstream = &url.URL{Scheme: "http", Host: "127.0.0.1:3000"}
		s := New(c).setup.Load()
		for i := range answers {
			s.noteSilence(s.pools[0].ups[0], answer(i))
		}
		return b.String()
	}
	header := func(lines ...string) *http.Response {
		resp := &http.Response{ProtoMajor: 1, Header: http.Header{}}
		for i := 0; i < len(lines); i += 2 {
			resp.Header.Set(lines[i], lines[i+1])
		}
		return resp
	}
	both := Config{Timing: "cpu", CostHeader: "x-cost"}
	for _, c := range []struct {
		name    string
		config  Config
		answers int
		answer  func(i int) *http.Response
		want    []string // a line each
	}{
		{"too few", both, silentAnswers - 1, func(int) *http.Response { return header() }, nil},
		{"nothing", both, 3 * silentAnswers, func(int) *http.Response { return header() },
			[]string{"reported CPU time, such as Server-Timing: cpu;dur=12.5: requests are charged the time they take; hint: curl -i http://127.0.0.1:3000 shows", "reported a cost, such as X-Cost: 3: each request is charged 1"}},
		{"something else", both, silentAnswers, func(int) *http.Response {
			return header("Server-Timing", "db;dur=3",
				"X-Cost", "much")
		},
			[]string{"reported CPU time", "reported a cost"}},
		{"one alone", both, silentAnswers, func(int) *http.Response { return header("X-Cost", "3") },
			[]string{"reported CPU time"}},
		{"occasionally", both, 3 * silentAnswers, func(i int) *http.Response {
			if i == silentAnswers-1 {
				return header("Server-Timing", "cpu;dur=3", "X-Cost", "0")
			}
			return header()
		}, nil},
		{"in the trailer", both, silentAnswers, func(int) *http.Response {
			resp := header("X-Cost", "1")
			resp.Trailer = http.Header{"Server-Timing": nil}
			return resp
		}, nil},
		{"possibly in the trailer", both, silentAnswers,
			func(int) *http.Response { return &http.Response{ProtoMajor: 2, Header: http.Header{}} }, nil},
		{"not configured", Config{}, silentAnswers, func(int) *http.Response { return header() }, nil},
	} {
		logged := logOf(c.config, c.answers, c.answer)
		ok := strings.Count(logged, "\n") == len(c.want)
		for _, want := range c.want {
			ok = ok && strings.Contains(logged, want)
		}
		if !ok {
			t.Errorf("%s: logged %q, want %q", c.name, logged, c.want)
		}
	}
}
