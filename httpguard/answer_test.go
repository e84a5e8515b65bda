package httpguard_test

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"

	"fairshare"
	"fairshare/httpguard"
)

// refused returns a handler that refuses every client from its second request
// on, with a wait of one hour, by the given rule.
func refused(t testing.TB, rule fairshare.Rule, opts httpguard.Options) http.Handler {
	t.Helper()
	if rule.Limit == nil {
		rule.Limit = &fairshare.Limit{Resource: fairshare.Requests, N: 1, Window: time.Hour, Algorithm: fairshare.Quiet}
	}
	if opts.Now == nil {
		opts.Now = func() time.Time { return noon }
	}
	h := httpguard.Middleware(newGuard(t, rule), opts)(welcome)
	if w := request(h, "GET", "/"); w.Code != 200 {
		t.Fatalf("the first request is answered %d", w.Code)
	}
	return h
}

func TestAnswerShowsRuleWaitAndContact(t *testing.T) {
	const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
	h := refused(t, fairshare.Rule{Name: `<b>"costly" pages</b>`}, httpguard.Options{Contact: "shop@example.org"})
	for _, test := range []struct {
		accept, contentType string
		holds               []string
	}{
		{"", "text/plain; charset=utf-8", []string{"429 Too many requests", `<b>"costly" pages</b>`, "wait 60 minutes",
			"shop@example.org"}},
		{browser, "text/html; charset=utf-8", []string{"Too many requests", "&lt;b&gt;&#34;costly&#34; pages&lt;/b&gt;",
			"<strong>60 minutes</strong>", `<a href="mailto:shop@example.org">`, `<html lang="en" dir="ltr">`,
			"viewport", "light dark"}},
		{"application/json", "application/problem+json",
			[]string{`"status":429`, `"wait":3600`, `"contact":"shop@example.org"`}},
	} {
		w := request(h, "GET", "/", "Accept", test.accept)
		body := w.Body.String()
		if w.Code != 429 || w.Header().Get("Content-Type") != test.contentType ||
			w.Header().Get("Retry-After") != "3600" || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("Accept %q: %d %v", test.accept, w.Code, w.Header())
		}
		for _, text := range test.holds {
			if !strings.Contains(body, text) {
				t.Errorf("Accept %q: no %q in %s", test.accept, text, body)
			}
		}
		if test.contentType == "text/html; charset=utf-8" &&
			(strings.Contains(body, "<b>") || strings.Contains(body, "<script")) {
			t.Errorf("not escaped: %s", body)
		}
		if !regexp.MustCompile(`\b[0-9a-hjkmnp-tv-z]{10}\b`).MatchString(body) {
			t.Errorf("Accept %q: no reference in %s", test.accept, body)
		}
		if test.accept == "" && strings.Count(body, "\n") != 1 {
			t.Errorf("more than a line: %q", body)
		}
	}
}

func TestProblemNamesWhatWasViolated(t *testing.T) {
	quiet := func(name string, per time.Duration) fairshare.Rule {
		return limit(name, fairshare.Limit{Resource: fairshare.Requests, N: 1, Window: per, Algorithm: fairshare.Quiet})
	}
	banned := quiet("hammering", time.Minute)
	banned.Ban = &fairshare.BanTerms{After: 1, For: time.Hour}
	slow := quiet("slow", time.Minute)
	slow.Answer = &fairshare.Answer{Status: 503}
	for _, test := range []struct {
		name   string
		rules  []fairshare.Rule
		status int
		kind   string
		title  string
		rule   []string
	}{
		{"limits", []fairshare.Rule{quiet("a", time.Minute), quiet("b", time.Hour),
			limit("c", requests(100, time.Hour))}, 429,
			"https://iana.org/assignments/http-problem-types#quota-exceeded", "Too many requests", []string{"b", "a"}},
		{"ban", []fairshare.Rule{banned}, 429,
			"https://iana.org/assignments/http-problem-types#abnormal-usage-detected", "Too many requests",
			[]string{"hammering"}},
		{"own status", []fairshare.Rule{slow}, 503,
			"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity", "Too many requests",
			[]string{"slow"}},
		{"block", []fairshare.Rule{block("no", "/")}, 403, "about:blank", "Forbidden", []string{"no"}},
	} {
		h := httpguard.Middleware(newGuard(t, test.rules...), atNoon(nil))(welcome)
		var w *httptest.ResponseRecorder
		for range 3 {
			w = request(h, "GET", "/", "Accept", "application/problem+json")
		}
		var got struct {
			Type, Title, Detail, Reference string
			Status                         int
			Violated                       []string `json:"violated-policies"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatalf("%s: %v in %s", test.name, err, w.Body)
		}
		if w.Code != test.status || got.Status != test.status || got.Type != test.kind || got.Title != test.title ||
			strings.Join(got.Violated, " ") != strings.Join(test.rule, " ") || got.Detail == "" || got.Reference == "" {
			t.Errorf("%s: %d %+v", test.name, w.Code, got)
		}
	}
}

func TestBlockNamesNoWait(t *testing.T) {
	h := httpguard.Middleware(newGuard(t, block("no", "/x")), atNoon(nil))(welcome)
	for _, accept := range []string{"*/*", "text/html", "application/json"} {
		w := request(h, "GET", "/x", "Accept", accept)
		if w.Code != 403 || w.Header().Get("Retry-After") != "" || w.Header().Get("RateLimit") != "" ||
			w.Header().Get("Cache-Control") != "no-store" ||
			strings.Contains(w.Body.String(), "wait") {
			t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
		}
	}
}

// The blocked request that starts a ban is answered as any blocked one; during the ban the
// answer names the wait, and does not mention too many requests.
func TestAnswersOfBanByBlock(t *testing.T) {
	trap := block("no", "/x")
	trap.Ban = &fairshare.BanTerms{After: 1, For: time.Hour, All: true}
	h := httpguard.Middleware(newGuard(t, trap), atNoon(nil))(welcome)
	w := request(h, "GET", "/x")
	if w.Code != 403 || w.Header().Get("Retry-After") != "" || strings.Contains(w.Body.String(), "wait") {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	const lead = "This site has blocked you for a while, after requests that it does not accept."
	w = request(h, "GET", "/")
	if w.Code != 429 || w.Header().Get("Retry-After") == "" || w.Header().Get("RateLimit") != "" ||
		!strings.Contains(w.Body.String(), lead) {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}

func TestEmptyBody(t *testing.T) {
	rule := fairshare.Rule{Name: "a", Answer: &fairshare.Answer{Empty: true}}
	server := httptest.NewUnstartedServer(refused(t, rule, httpguard.Options{Contact: "shop@example.org"}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	if resp, err := server.Client().Get(server.URL); err != nil || resp.StatusCode != 200 { // the only one that passes
		t.Fatal(resp, err)
	}
	for _, version := range []int{1, 2} {
		client := server.Client()
		if version == 1 {
			client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
		}
		for _, method := range []string{"GET", "HEAD", "POST", "OPTIONS"} {
			for _, accept := range []string{"", "*/*", "text/html", "application/problem+json",
				"application/json;q=0.1", "image/png", "nonsense"} {
				req, err := http.NewRequest(method, server.URL, nil)
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Accept", accept)
				resp, err := client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || resp.ProtoMajor != version || resp.StatusCode != 429 || len(body) > 0 ||
					resp.Header.Get("Content-Length") != "0" || resp.Header["Content-Type"] != nil ||
					resp.Header.Get("Retry-After") == "" {
					t.Errorf("HTTP/%d %s, Accept %q: %s %v %q, %v", version, method, accept, resp.Status, resp.Header,
						body, err)
				}
			}
		}
	}
}

func TestStatusWithoutBodyHasNoLength(t *testing.T) {
	for _, status := range []int{204, 304} {
		h := refused(t, fairshare.Rule{Name: "a", Answer: &fairshare.Answer{Status: status, Empty: true}},
			httpguard.Options{})
		if w := request(h, "GET", "/"); w.Code != status || w.Body.Len() > 0 || w.Header()["Content-Length"] != nil ||
			w.Header()["Content-Type"] != nil {
			t.Errorf("%d %v %q", w.Code, w.Header(), w.Body)
		}
	}
}

func TestHeadAndOptions(t *testing.T) {
	h := refused(t, fairshare.Rule{Name: "a"}, httpguard.Options{})
	get, head, options := request(h, "GET", "/"), request(h, "HEAD", "/"), request(h, "OPTIONS", "*")
	if head.Code != 429 || head.Body.Len() != 0 || head.Header().Get("Content-Length") != fmt.Sprint(get.Body.Len()) {
		t.Errorf("HEAD: %d %v %q, but GET: %v", head.Code, head.Header(), head.Body, get.Header())
	}
	if options.Code != 429 || options.Body.Len() == 0 {
		t.Errorf("OPTIONS *: %d", options.Code)
	}
}

func TestRuleChangesTheAnswer(t *testing.T) {
	for _, test := range []struct {
		name        string
		answer      fairshare.Answer
		status      int
		contentType string
		retryAfter  string
		body        string // ID stands for the reference
	}{
		{"text", fairshare.Answer{Body: "Wait {wait} seconds, until {until}, {client}. {rule} {nothing} {contact}",
			RetryAfter: 3 * time.Second},
			429, "text/plain; charset=utf-8", "3",
			"Wait 3 seconds, until 2026-11-20T12:00:03Z, 192.0.2.1. a<&b {nothing} me & you"},
		{"html", fairshare.Answer{Body: "<p title='{rule}'>{contact}", Status: 503}, 503, "text/html; charset=utf-8",
			"3600", "<p title='a&lt;&amp;b'>me &amp; you"},
		{"json", fairshare.Answer{Body: ` {"wait":{wait},"rule":"{rule}","id":"{id}"}`, RetryAfter: -1}, 429,
			"application/json", "", ` {"wait":3600,"rule":"a\u003c\u0026b","id":"ID"}`},
		{"brace", fairshare.Answer{Body: `{rule}: no`}, 429, "text/plain; charset=utf-8", "3600", "a<&b: no"},
		{"redirect", fairshare.Answer{Redirect: "https://example.org/busy?r={rule}&w={wait}#{id}"}, 303, "", "3600",
			""},
		{"temporary redirect", fairshare.Answer{Redirect: "/busy", Status: 307, RetryAfter: -1}, 307, "", "", ""},
		{"no content", fairshare.Answer{Status: 204}, 204, "", "3600", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			var reports []httpguard.Report
			opts := atNoon(&reports)
			opts.Contact = "me & you"
			h := refused(t, fairshare.Rule{Name: "a<&b", Answer: &test.answer}, opts)
			w := request(h, "GET", "/")
			if len(reports) != 1 {
				t.Fatalf("%d reports", len(reports))
			}
			r := reports[0]
			body := strings.ReplaceAll(w.Body.String(), r.ID, "ID")
			if w.Code != test.status || r.Status != test.status ||
				w.Header().Get("Content-Type") != test.contentType ||
				w.Header().Get("Retry-After") != test.retryAfter || body != test.body {
				t.Errorf("%d %v %q; want %d %s %s %q", w.Code, w.Header(), body, test.status, test.contentType,
					test.retryAfter, test.body)
			}
			if test.name == "redirect" {
				if got, want := w.Header().Get("Location"),
					"https://example.org/busy?r=a%3C%26b&w=3600#"+r.ID; got != want {
					t.Errorf("Location %s, want %s", got, want)
				}
			}
		})
	}
}

// The fields are lists (RFC 9651) with one member for each rule.
func TestRateLimitFields(t *testing.T) {
	bytes := limit("bytes", fairshare.Limit{Resource: fairshare.Bytes, N: 1 << 20, Window: 2 * time.Hour})
	odd := limit(`Käse "7%" \`, requests(7, time.Minute))
	plain := limit(`50% "off" \`, requests(9, time.Minute))
	short := limit("left out: not whole seconds", requests(1000, 1500*time.Millisecond))
	errors := limit("left out: errors", fairshare.Limit{Resource: fairshare.Errors, N: 10, Window: time.Minute})
	dry := limit("left out: dry", requests(1, time.Minute))
	dry.DryRun = true
	gcra := limit("gcra", fairshare.Limit{Resource: fairshare.Requests, N: 10, Window: 10 * time.Second,
		Algorithm: fairshare.GCRA, Burst: 1})
	slots := limit("slots", fairshare.Limit{Resource: fairshare.Concurrent, N: 5})
	h := httpguard.Middleware(newGuard(t, bytes, odd, plain, short, errors, dry, gcra, slots), atNoon(nil))(welcome)
	if w := request(h, "GET", "/"); w.Code != 200 || w.Header().Get("RateLimit") != "" {
		t.Fatalf("first: %d %v", w.Code, w.Header())
	}
	w := request(h, "GET", "/")
	policies, err := httpsfv.UnmarshalList(w.Header()["Ratelimit-Policy"])
	if err != nil {
		t.Fatal(err)
	}
	left, err := httpsfv.UnmarshalList(w.Header()["Ratelimit"])
	if err != nil {
		t.Fatal(err)
	}
	none := int64(-1)
	want := []struct {
		name       string
		q, w, r, t int64
		unit       string
	}{
		{"bytes", 1 << 20, 7200, 1<<20 - 7, 14400, "content-bytes"}, // 12:00 is the begin of a window of two hours
		{`K%C3%A4se "7%25" \`, 7, 60, 6, 120, ""},
		{`50% "off" \`, 9, 60, 8, 120, ""},
		{"gcra", 10, 10, 0, 1, ""},
		{"slots", 5, none, 5, none, "concurrent-requests"},
	}
	if len(policies) != len(want) || len(left) != len(want) {
		t.Fatalf("%d policies and %d states, want %d: %v", len(policies), len(left), len(want), w.Header())
	}
	number := func(item httpsfv.Item, key string) int64 {
		if v, ok := item.Params.Get(key); ok {
			return v.(int64)
		}
		return none
	}
	for i, want := range want {
		p, l := policies[i].(httpsfv.Item), left[i].(httpsfv.Item)
		unit, _ := p.Params.Get("qu")
		if unit == nil {
			unit = ""
		}
		if p.Value != want.name || l.Value != want.name || number(p, "q") != want.q || number(p, "w") != want.w ||
			unit != want.unit || number(l, "r") != want.r || number(l, "t") != want.t {
			t.Errorf("%v and %v, want %+v", w.Header()["Ratelimit-Policy"], w.Header()["Ratelimit"], want)
		}
	}
}

// Examples of draft-ietf-httpapi-ratelimit-headers-10, §3.1 and §4.1, that a
// policy can express.
func TestRateLimitPolicyExamples(t *testing.T) {
	for _, test := range []struct {
		want  string
		rules []fairshare.Rule
	}{
		{`"burst";q=100;w=60,"daily";q=1000;w=86400`, []fairshare.Rule{limit("burst", requests(100, time.Minute)),
			limit("daily", requests(1000, 24*time.Hour))}},
		{`"default";q=100;w=10`, []fairshare.Rule{limit("default", requests(100, 10*time.Second))}},
		{`"permin";q=50;w=60,"perhr";q=1000;w=3600`, []fairshare.Rule{limit("permin", requests(50, time.Minute)),
			limit("perhr", requests(1000, time.Hour))}},
		{`"peruser";q=65535;qu="content-bytes";w=10`, []fairshare.Rule{limit("peruser",
			fairshare.Limit{Resource: fairshare.Bytes, N: 65535, Window: 10 * time.Second})}},
	} {
		// refuses, and is left out
		stop := limit("stop", fairshare.Limit{Resource: fairshare.Requests, N: 1, Window: time.Millisecond,
			Algorithm: fairshare.Quiet})
		h := httpguard.Middleware(newGuard(t, append(test.rules, stop)...), atNoon(nil))(welcome)
		request(h, "GET", "/")
		w := request(h, "GET", "/")
		if got := strings.ReplaceAll(w.Header().Get("RateLimit-Policy"), ", ", ","); w.Code != 429 || got != test.want {
			t.Errorf("%d %s, want %s", w.Code, got, test.want)
		}
	}
}

// A rule may add headers to its answer, but not to a refused /robots.txt.
func TestAnswerHasTheHeadersOfItsRule(t *testing.T) {
	rule := fairshare.Rule{Name: "paid", Answer: &fairshare.Answer{Status: http.StatusPaymentRequired,
		Header: map[string][]string{"link": {`<https://example.org/l>; rel="license"`, "</b>; rel=b"}, "X-A": {"1"}}}}
	h := refused(t, rule, httpguard.Options{})
	for range 2 {
		w := request(h, "GET", "/")
		if w.Code != 402 || fmt.Sprint(w.Header()["Link"]) != `[<https://example.org/l>; rel="license" </b>; rel=b]` ||
			w.Header().Get("X-A") != "1" || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%d %v", w.Code, w.Header())
		}
		w.Header().Add("Link", "another") // of a program around the middleware
	}
	if w := request(h, "GET", "/robots.txt"); w.Header()["Link"] != nil || w.Code == 402 {
		t.Errorf("/robots.txt: %d %v", w.Code, w.Header())
	}
}
