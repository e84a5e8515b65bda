package httpguard_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/memlimit"
)

// newAuth returns a handler of questions that refuses the path /full with a status.
func newAuth(t *testing.T, status int, wrong func(error)) http.Handler {
	t.Helper()
	policy := fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "full", Match: fairshare.Match{Path: []string{"/full"}},
			Limit:  &fairshare.Limit{Resource: fairshare.Requests, N: 0, Window: time.Hour},
			Answer: &fairshare.Answer{Status: status}},
	}}
	guard, err := memlimit.NewGuard(&policy, memlimit.Options{Memory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	client := func(r *http.Request) httpguard.Client {
		addr, _ := netip.ParseAddr(r.Header.Get("X-Forwarded-For"))
		return httpguard.Client{Addr: addr}
	}
	return httpguard.ForwardAuth(httpguard.New(guard, httpguard.Options{Client: client}, nil),
		httpguard.ForwardAuthOptions{Wrong: wrong})
}

// question asks about a request and returns the answer.
func question(auth http.Handler, peer, path string, header ...string) *http.Response {
	r := httptest.NewRequest("GET", path, nil)
	r.RemoteAddr = peer
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	auth.ServeHTTP(w, r)
	return w.Result()
}

const local = "127.0.0.1:4711"

var about = map[string][]string{
	"/nginx":         {"X-Forwarded-For", "192.0.2.1", "X-Original-Method", "HEAD", "X-Original-Uri"},
	"/ingress-nginx": {"X-Forwarded-For", "192.0.2.1", "X-Original-Method", "HEAD", "X-Original-Url"},
	"/caddy": {"X-Forwarded-For", "192.0.2.1", "X-Forwarded-Host", "shop.example", "X-Forwarded-Method", "HEAD",
		"X-Forwarded-Uri"},
}

func TestForwardAuthAnswers(t *testing.T) {
	for path, header := range about {
		for _, status := range []int{0, 200, 503} {
			auth := newAuth(t, status, func(err error) { t.Error(err) })
			prefix := ""
			if path == "/ingress-nginx" {
				prefix = "https://shop.example"
			}
			if resp := question(auth, local, path, append(header, prefix+"/a?b")...); resp.StatusCode != 204 {
				t.Errorf("%s: a request that may pass: %s", path, resp.Status)
			}
			resp := question(auth, local, path, append(header, prefix+"/full")...)
			want := map[int]int{0: 429, 200: 200, 503: 503}[status]
			if path == "/caddy" {
				if status == 200 {
					want = 429 // or it would pass
				}
			} else {
				token := resp.Header.Get("Fairshare-Answer")
				if resp.StatusCode != 403 || token == "" {
					t.Fatalf("%s: %s, %v", path, resp.Status, resp.Header)
				}
				resp = question(auth, local, "/nginx/refused", "Fairshare-Answer", token)
				again := question(auth, local, "/nginx/refused", "Fairshare-Answer", token)
				if again.StatusCode != want || again.Header.Get("Retry-After") != resp.Header.Get("Retry-After") {
					t.Errorf("%s: an answer that is lost: %s, %v", path, again.Status, again.Header)
				}
			}
			body, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != want || !strings.Contains(string(body), "Rule: full") ||
				resp.Header.Get("Retry-After") == "" {
				t.Errorf("%s: a refused request: %s, %v, %s", path, resp.Status, resp.Header, body)
			}
		}
	}
}

// Options.Answered is called once for each question, whatever the answer is.
func TestForwardAuthReportsEachAnswer(t *testing.T) {
	policy := fairshare.Policy{Rules: []fairshare.Rule{{Name: "full", Match: fairshare.Match{Path: []string{"/full"}},
		Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 0, Window: time.Hour}}}}
	guard, err := memlimit.NewGuard(&policy, memlimit.Options{Memory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	var statuses []int
	auth := httpguard.ForwardAuth(httpguard.New(guard, httpguard.Options{
		Answered: func(a *httpguard.Access) { statuses = append(statuses, a.Status) },
	}, nil), httpguard.ForwardAuthOptions{})
	for _, target := range []string{"/a", "/full", "/b"} {
		question(auth, local, "/nginx", append(about["/nginx"], target)...)
	}
	if !slices.Equal(statuses, []int{204, 429, 204}) {
		t.Errorf("reported: %v", statuses)
	}
}

func TestForwardAuthRefusesWrongQuestions(t *testing.T) {
	good := append(about["/nginx"], "/a")
	without := func(name string) (header []string) {
		for i := 0; i < len(good); i += 2 {
			if good[i] != name {
				header = append(header, good[i], good[i+1])
			}
		}
		return header
	}
	for _, c := range []struct {
		name, peer, path string
		header           []string
		want             string
	}{
		{"untrusted peer", "192.0.2.9:1", "/nginx", good, "trusted_proxies"},
		{"untrusted peer collects", "192.0.2.9:1", "/nginx/refused", []string{"Fairshare-Answer", "200--0"},
			"trusted_proxies"},
		{"path", local, "/other", good, "/nginx"},
		{"no method", local, "/nginx", without("X-Original-Method"), "X-Original-Method is missing"},
		{"no target", local, "/nginx", without("X-Original-Uri"), "X-Original-Uri is missing"},
		{"no address", local, "/nginx", without("X-Forwarded-For"), "X-Forwarded-For is missing"},
		{"two targets", local, "/nginx", append(without(""), "X-Original-Uri", "/b"), "came 2 times"},
		{"two methods", local, "/nginx", append(without(""), "X-Original-Method", "GET"), "came 2 times"},
		{"method", local, "/nginx", append(without("X-Original-Method"), "X-Original-Method", "GET /"), "not a method"},
		{"target", local, "/nginx", append(without("X-Original-Uri"), "X-Original-Uri", "/a b"), "a space"},
		{"no URL", local, "/ingress-nginx", append(without(""), "X-Original-Url", "/a"), "not a URL"},
		{"headers of another server", local, "/caddy", good, "X-Forwarded-Method is missing"},
		{"no answer", local, "/nginx/refused", nil, "Fairshare-Answer is missing"},
		{"forged answer", local, "/nginx/refused", []string{"Fairshare-Answer", "99-1-2"},
			"not what fairshare has sent"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := errors.New("none")
			resp := question(newAuth(t, 0, func(e error) { err = e }), c.peer, c.path, c.header...)
			if resp.StatusCode != 400 || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s, error %v", resp.Status, err)
			}
		})
	}
}
