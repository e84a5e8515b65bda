package replay

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fairshare"
)

// For each rule, the report lists the facts that it tests and the log lacks.
func TestUnmeasured(t *testing.T) {
	common := `192.0.2.1 - - [17/May/2015:10:00:00 +0000] "GET / HTTP/1.1" 200 100`
	var redirects fairshare.StatusSet
	redirects.Add(301, 301)
	rules := []fairshare.Rule{
		{Name: "plain", Match: fairshare.Match{Path: []string{"/x"}, Method: []string{"GET"}},
			Limit: requests(1, time.Minute), Refund: redirects},
		{Name: "match", Match: fairshare.Match{Cookie: []string{"any"}, UserAgent: []string{"x"}, Host: []string{"h"},
			Header: map[string][]string{"x-api": {""}, "referer": {"a"}}}, Action: fairshare.Block},
		{Name: "not",
			Match:  fairshare.Match{Not: []fairshare.Match{{Not: []fairshare.Match{{Cookie: []string{"none"}}}}}},
			Action: fairshare.Block},
		{Name: "keys", Limit: &fairshare.Limit{Resource: fairshare.Bytes, N: 9, Window: 200 * time.Millisecond,
			By: []fairshare.KeyPart{{Kind: fairshare.ByUserAgent}, {Kind: fairshare.ByCookie, Name: "sid"},
				{Kind: fairshare.ByHeader, Name: "Authorization"}, {Kind: fairshare.ByHost}}}},
		{Name: "forms", Match: fairshare.Match{Form: map[string][]string{"action": {"x"}}}, Action: fairshare.Block},
		{Name: "accounts", Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 9, Window: time.Minute,
			By: []fairshare.KeyPart{{Kind: fairshare.ByForm, Name: "log"}}}},
		{Name: "slots", Limit: &fairshare.Limit{Resource: fairshare.Concurrent, N: 9}},
		{Name: "ban", Limit: requests(1, time.Minute),
			Ban: &fairshare.BanTerms{After: 1, For: time.Second, Unless: &fairshare.Match{Cookie: []string{"any"}}}},
		{Name: "trap", Match: fairshare.Match{Path: []string{"/x"}}, Action: fairshare.Block,
			Ban: &fairshare.BanTerms{After: 1, For: time.Second, Unless: &fairshare.Match{Bot: []string{"verified"}}}},
	}
	report := replayAll(t, Options{Policy: &fairshare.Policy{Rules: rules}, Limiter: memory(1 << 20),
		Client: clientFunc(t), Logs: []string{writeLines(t, "log", common)}})
	var got []string
	for _, u := range report.Unmeasured {
		got = append(got, u.Rule+": "+u.Fact+": "+u.Why)
	}
	want := []string{
		"match: host: the log holds no host",
		"match: user_agent: the log holds no user agent",
		"match: cookie: the log holds no cookies",
		"match: header referer: the log holds no header referer",
		"match: header x-api: the log holds no header x-api",
		"not: cookie: the log holds no cookies",
		"keys: user_agent: the log holds no user agent",
		"keys: cookie: the log holds no cookies",
		"keys: header Authorization: the log holds no header Authorization",
		"keys: host: the log holds no host",
		"keys: window: the log tells time in steps of 1s, the window is 200ms",
		"forms: form: a log does not hold the bodies of requests",
		"accounts: form: a log does not hold the bodies of requests",
		"slots: concurrent: the log holds no durations",
		"ban: cookie: the log holds no cookies",
		"trap: bot: nobody was asked who is a bot",
		"trap: header Sec-Fetch-Site: the log holds no header Sec-Fetch-Site",
		"trap: header Referer: the log holds no header Referer",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The report lists the parts of the request line that the log lacks, for each rule that
// tests them: in match, not, unless of a ban, and by of a limit.
func TestUnmeasuredRequestLine(t *testing.T) {
	rules := []fairshare.Rule{
		{Name: "match", Match: fairshare.Match{Path: []string{"/x"}, Method: []string{"GET"},
			Query: map[string][]string{"q": {"*"}}}, Action: fairshare.Block},
		{Name: "not", Match: fairshare.Match{Not: []fairshare.Match{{Path: []string{"/x"},
			Query: map[string][]string{"q": {"*"}}}}}, Action: fairshare.Block},
		{Name: "key", Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 9, Window: time.Minute,
			By: []fairshare.KeyPart{{Kind: fairshare.ByAddr}, {Kind: fairshare.ByPath}}}},
		{Name: "ban", Limit: requests(1, time.Minute),
			Ban: &fairshare.BanTerms{After: 1, For: time.Second, Unless: &fairshare.Match{Method: []string{"GET"}}}},
		{Name: "paths", Limit: distinct(fairshare.DistinctPaths)},
		{Name: "queries", Limit: distinct(fairshare.DistinctQueries)},
		{Name: "none", Match: fairshare.Match{Addr: fairshare.Prefixes{}}, Limit: requests(1, time.Minute)},
	}
	for _, c := range []struct {
		name, format string
		lines        []string
		want         string
	}{
		{"nothing", `$remote_addr [$time_local] $status`, []string{`192.0.2.1 [17/May/2015:10:00:00 +0000] 200`},
			"match method, match path, match query, not path, not query, key path, ban method, paths path, " +
				"queries query, queries path"},
		{"path alone", `$remote_addr [$time_local] $uri`, []string{`192.0.2.1 [17/May/2015:10:00:00 +0000] /x`},
			"match method, match query, not query, ban method, queries query"},
		{"W3C without a query", "", []string{"#Fields: date time c-ip cs-method cs-uri-stem sc-status",
			"2015-05-17 10:00:00 192.0.2.1 GET /x 200"}, "match query, not query, queries query"},
		{"JSON without a URI", "",
			[]string{`{"msec":"1431856800.000","remote_addr":"192.0.2.1","request_method":"GET","status":200}`},
			"match path, match query, not path, not query, key path, paths path, queries query, queries path"},
		{"combined", "", []string{entryAt("192.0.2.1", "10:00:00", "")}, ""},
		{"combined, no request line was sent", "", []string{entryAt("192.0.2.1", "10:00:00", `"-" 408 0 "-" "-"`)}, ""},
	} {
		opts := Options{Policy: &fairshare.Policy{Rules: rules}, Limiter: memory(1 << 20), Client: clientFunc(t),
			Logs: []string{writeLines(t, "log", c.lines...)}}
		opts.Log.Format = c.format
		var got []string
		for _, u := range replayAll(t, opts).Unmeasured {
			if u.Why != "the log holds no "+u.Fact {
				t.Errorf("%s: %+v", c.name, u)
			}
			got = append(got, u.Rule+" "+u.Fact)
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%s: unmeasured %s; want %s", c.name, strings.Join(got, ", "), c.want)
		}
	}
}

func distinct(of fairshare.Distinct) *fairshare.Limit {
	return &fairshare.Limit{Resource: fairshare.Requests, N: 9, Window: time.Minute, Distinct: of}
}

// Without the facts that distinguish people's browsers, the report does not claim that no
// people were refused.
func TestPeopleAreUnknownWithoutPaths(t *testing.T) {
	for format, known := range map[string]bool{
		`$remote_addr [$time_local] $status "$http_referer" "$http_user_agent"`:            false,
		`$remote_addr [$time_local] $uri "$http_referer" "$http_user_agent"`:               false,
		`$remote_addr [$time_local] $status $uri "$http_user_agent"`:                       false,
		`$remote_addr [$time_local] $status $uri "$http_referer" "$http_user_agent"`:       true,
		`$remote_addr [$time_local] "$request" $status "$http_referer" "$http_user_agent"`: true,
	} {
		line := strings.NewReplacer("$remote_addr", "192.0.2.1", "$time_local", "17/May/2015:10:00:00 +0000",
			"$status", "200", "$uri", "/x",
			"$request", "GET /x HTTP/1.1", "$http_referer", "-", "$http_user_agent", "curl").Replace(format)
		opts := Options{Policy: &fairshare.Policy{}, Limiter: memory(1 << 20), Client: clientFunc(t),
			Logs: []string{writeLines(t, "log", line)}}
		opts.Log.Format = format
		if got := replayAll(t, opts).People.Known; got != known {
			t.Errorf("%s: known %v, want %v", format, got, known)
		}
	}
}

// Of several logs, the report names those that lack a fact. A log without lines lacks
// nothing.
func TestUnmeasuredOfSeveralLogs(t *testing.T) {
	a := writeLines(t, "a", entryAt("192.0.2.1", "10:00:00", ""))
	b := writeLines(t, "b", `192.0.2.1 - - [17/May/2015:10:00:00 +0000] "GET / HTTP/1.1" 200 100`)
	policy := &fairshare.Policy{Rules: []fairshare.Rule{{Name: "r",
		Match: fairshare.Match{UserAgent: []string{"x"}, Cookie: []string{"none"}}, Action: fairshare.Block}}}
	report := replayAll(t, Options{Policy: policy, Limiter: memory(1 << 20), Client: clientFunc(t),
		Logs: []string{a, b, writeLines(t, "empty")}})
	want := []Unmeasured{{"r", "user_agent", b + " holds no user agent"}, {"r", "cookie", "the logs hold no cookies"}}
	if diff := cmp.Diff(want, report.Unmeasured); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	report = replayAll(t, Options{Policy: policy, Limiter: memory(1 << 20), Client: clientFunc(t),
		Logs: []string{writeLines(t, "empty")}})
	if len(report.Unmeasured) != 0 || report.Lines != 0 || report.From != nil {
		t.Errorf("an empty log: %+v", report)
	}
}
