package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"fairshare"
	"fairshare/internal/prose"
)

var update = flag.Bool("update", false, "rewrite golden files")

// writeLines writes a log and returns its path.
func writeLines(t testing.TB, name string, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// entryAt returns a line in combined format, of a client at a time of one day.
func entryAt(client, clock, more string) string {
	if more == "" {
		more = `"GET / HTTP/1.1" 200 100 "-" "curl/8.1"`
	}
	return fmt.Sprintf("%s - - [17/May/2015:%s +0000] %s", client, clock, more)
}

func replayAll(t testing.TB, opts Options) *Report {
	t.Helper()
	r, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	report, err := r.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func requests(n int64, per time.Duration) *fairshare.Limit {
	return &fairshare.Limit{Resource: fairshare.Requests, N: n, Window: per}
}

// The file of verdicts has the results of the judge, with waits rounded up.
func TestVerdictsFile(t *testing.T) {
	path := filepath.Join("testdata", "airisdata-2016.log.gz")
	opts := Options{Policy: realPolicies()["windows"], Limiter: memory(16 << 20), Client: clientFunc(t),
		Logs: []string{path}}
	lines, _ := judgeAll(t, opts)
	var out bytes.Buffer
	opts.Verdicts = &out
	report := replayAll(t, opts)
	got := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if want := "line\ttime\tclient\taction\trule\tretry_after\tfile\tbot\tbot_state\tasn\tfleet\tmethod\tpath\tstatus\t" +
		"bytes\tseconds"; got[0] != want {
		t.Fatalf("the first line is %q, want %q", got[0], want)
	}
	got = got[1:]
	if len(got) != len(lines) || int64(len(got)) != report.Lines-report.Skipped {
		t.Fatalf("%d verdicts for %d lines, the report says %d", len(got), len(lines), report.Lines-report.Skipped)
	}
	for i, l := range lines {
		rule, wait := "", ""
		if l.enforced.rule != noRule {
			rule = opts.Policy.Rules[l.enforced.rule].Name
		}
		if l.enforced.action == fairshare.Refuse {
			wait = strconv.FormatInt(int64(max((l.enforced.wait+time.Second-1)/time.Second, 1)), 10)
		}
		var req fairshare.Request
		req.SetTarget(l.entry.Target)
		want := fmt.Sprintf("%d\t%s\t%s\t%s\t%s\t%s\t%s\t\t\t\t\t%s\t%s\t%d\t%d\t0", l.entry.Line,
			l.entry.Time.Format(time.RFC3339Nano),
			l.entry.Client, l.enforced.action, rule, wait, path, l.entry.Method, req.Path, l.entry.Status,
			l.entry.Bytes)
		if got[i] != want {
			t.Fatalf("verdict %d is\n%q, want\n%q", i, got[i], want)
		}
	}
}

func TestRetryAfterIsRoundedUp(t *testing.T) {
	for _, test := range []struct {
		wait time.Duration
		want int64
	}{{0, 1}, {1, 1}, {time.Second, 1}, {time.Second + 1, 2}, {90*time.Second - 1, 90}, {1<<63 - 1, 9223372037}} {
		if got := retryAfter(test.wait); got != test.want {
			t.Errorf("retryAfter(%v) = %d, want %d", test.wait, got, test.want)
		}
	}
}

// Fractions of times are written, and the client is written in its usual form.
func TestVerdictsOfFineTimes(t *testing.T) {
	path := writeLines(t, "caddy\t.json",
		`{"level":"info","ts":1431857103.25,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"::ffff:192.0.2.1","remote_port":"1","proto":"HTTP/1.1","method":"GET","host":"a.example","uri":"/","headers":{}},"duration":0.001,"size":5,"status":200}`)
	var out bytes.Buffer
	replayAll(t, Options{Policy: &fairshare.Policy{}, Limiter: memory(1 << 20), Client: clientFunc(t),
		Logs: []string{path}, Verdicts: &out})
	_, got, _ := strings.Cut(out.String(), "\n")
	want := "1\t2015-05-17T10:05:03.25Z\t192.0.2.1\tallow\t\t\t" + strings.ReplaceAll(path, "\t",
		`\t`) + "\t\t\t\t\tGET\t/\t200\t5\t0.001\n"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Several logs are merged by time; for equal times the order of the arguments decides.
// The lines of a log stay in order, even if its times go backwards.
func TestLogsAreMergedByTime(t *testing.T) {
	a := writeLines(t, "a", entryAt("192.0.2.1", "10:00:00", ""), entryAt("192.0.2.1", "10:00:05", ""),
		entryAt("192.0.2.1", "10:00:02", ""), entryAt("192.0.2.1", "10:00:09", ""))
	b := writeLines(t, "b", "garbage", entryAt("192.0.2.2", "10:00:00", ""), entryAt("192.0.2.2", "10:00:03", ""), "",
		entryAt("192.0.2.2", "10:00:05", ""))
	c := writeLines(t, "c", entryAt("192.0.2.3", "09:59:59", ""), entryAt("192.0.2.3", "10:00:05", ""),
		entryAt("192.0.2.3", "10:00:05", ""))
	empty := writeLines(t, "empty")
	lines, _ := judgeAll(t, Options{Policy: &fairshare.Policy{}, Limiter: memory(1 << 20), Client: clientFunc(t),
		Logs: []string{a, b, empty, c}})
	var got []string
	for _, l := range lines {
		got = append(got, fmt.Sprintf("%s%d", filepath.Base(l.file), l.entry.Line))
	}
	want := "c1 a1 b2 b3 a2 a3 b5 c2 c3 a4"
	if strings.Join(got, " ") != want {
		t.Errorf("judged in the order %v, want %s", got, want)
	}
}

// Many logs with small blocks have the same verdicts as one log of all lines.
func TestManyLogsGiveTheVerdictsOfOne(t *testing.T) {
	lines := make([][]string, 40)
	var all []string
	for i := range 4000 {
		at := fmt.Sprintf("%02d:%02d:%02d", 10+i/3600, i/60%60, i%60)
		l := entryAt(fmt.Sprintf("192.0.2.%d", i%7), at, "")
		lines[i*i%40] = append(lines[i*i%40], l)
		all = append(all, l)
	}
	var paths []string
	for i, l := range lines {
		if len(l) > 0 {
			paths = append(paths, writeLines(t, fmt.Sprintf("%02d", i), l...))
		}
	}
	slices.Reverse(paths) // the order matters only for equal times
	opts := Options{
		Policy: &fairshare.Policy{Rules: []fairshare.Rule{{Name: "slow", Limit: requests(3, time.Minute),
			Ban: &fairshare.BanTerms{After: 30, For: time.Minute}}}},
		Limiter: memory(1 << 20), Client: clientFunc(t), Logs: []string{writeLines(t, "all", all...)},
	}
	whole := replayAll(t, opts)
	opts.Logs = paths
	opts.Log.BlockSize = 600
	parts := replayAll(t, opts)
	parts.Files = whole.Files
	if diff := cmp.Diff(whole, parts, cmp.AllowUnexported(Taker{}, hourLoad{}, usage{})); diff != "" {
		t.Errorf("one log and many differ (-one +many):\n%s", diff)
	}
	if whole.Verdicts.Refuse < 1000 {
		t.Errorf("%+v: the test is not significant", whole.Verdicts)
	}
}

// A line that is more than an hour earlier starts a new guard without bans; one that is
// exactly an hour earlier does not.
func TestRestarts(t *testing.T) {
	path := writeLines(t, "access.log",
		entryAt("192.0.2.1", "12:00:00", ""), // 1
		entryAt("192.0.2.1", "12:00:01", ""), // refused, banned for a day
		entryAt("192.0.2.1", "12:00:02", ""), // banned
		entryAt("192.0.2.1", "11:00:02", ""), // an hour earlier: judged at the latest time, banned
		entryAt("192.0.2.1", "11:00:01", ""), // over an hour earlier: a new guard
		entryAt("192.0.2.1", "11:00:03", ""), // refused
		entryAt("192.0.2.1", "10:30:00", ""), // half an hour earlier: banned
	)
	policy := &fairshare.Policy{Rules: []fairshare.Rule{{Name: "one", Limit: requests(1, time.Hour),
		Ban: &fairshare.BanTerms{After: 1, For: 24 * time.Hour}}}}
	var out bytes.Buffer
	report := replayAll(t, Options{Policy: policy, Limiter: memory(1 << 20), Client: clientFunc(t),
		Logs: []string{path}, Verdicts: &out})
	var actions []string
	for _, l := range strings.Split(strings.TrimSpace(out.String()), "\n")[1:] {
		actions = append(actions, strings.Split(l, "\t")[3])
	}
	if got, want := strings.Join(actions, " "), "allow refuse refuse refuse allow refuse refuse"; got != want {
		t.Errorf("verdicts %s, want %s", got, want)
	}
	at := func(clock string) time.Time {
		at, err := time.Parse(time.DateTime, "2015-05-17 "+clock)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	want := Restarts{Count: 1, At: []Restart{{File: path, Line: 5, Time: at("11:00:01"), Latest: at("12:00:02")}}}
	if diff := cmp.Diff(want, report.Restarts); diff != "" {
		t.Errorf("restarts (-want +got):\n%s", diff)
	}
	if len(report.Warnings) == 0 || !strings.Contains(report.Warnings[0].Text, path+":5") {
		t.Errorf("warnings %+v do not show the line", report.Warnings)
	}
	if report.Rules[0].Banned != 2 || report.Rules[0].Clients != 1 {
		t.Errorf("%+v, want two bans of one client", report.Rules[0])
	}
}

// A slot is held for the line's duration. Then it is free before the next line is judged.
func TestSlotsAreHeldAsLongAsTheLogSays(t *testing.T) {
	line := func(clock, rt string) string {
		return entryAt("192.0.2.1", clock, `"GET / HTTP/1.1" 200 100 "-" "curl/8.1" rt=`+rt)
	}
	path := writeLines(t, "access.log",
		line("10:00:00", "5.000"), // to 10:00:05
		line("10:00:01", "2.000"), // to 10:00:03
		line("10:00:02", "1.000"), // two in progress: refused
		line("10:00:03", "0.000"), // one has ended; this one ends at once
		line("10:00:03", "9.000"), // to 10:00:12
		line("10:00:04", "1.000"), // refused
		line("10:00:05", "1.000"),
	)
	policy := &fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "two", Limit: &fairshare.Limit{Resource: fairshare.Concurrent, N: 2}},
		{Name: "bytes", Limit: &fairshare.Limit{Resource: fairshare.Bytes, N: 450, Window: time.Hour}},
	}}
	lines, j := judgeAll(t, Options{Policy: policy, Limiter: memory(1 << 20), Client: clientFunc(t),
		Logs: []string{path}})
	var got []string
	for _, l := range lines {
		got = append(got, l.enforced.action.String())
	}
	if got, want := strings.Join(got, " "), "allow allow refuse allow allow refuse allow"; got != want {
		t.Errorf("verdicts %s, want %s", got, want)
	}
	compare(t, Options{Policy: policy, Client: clientFunc(t)}, lines, j)
}

// The client is found as in serve: a header counts only from a trusted proxy, and NAT64
// and mapped addresses become IPv4 addresses.
func TestClients(t *testing.T) {
	tail := func(forwarded string) string { return `"GET / HTTP/1.1" 200 1 "-" "-" "` + forwarded + `"` }
	path := writeLines(t, "access.log",
		entryAt("10.0.0.1", "10:00:00", tail("203.0.113.9, 198.51.100.7")),
		entryAt("10.0.0.1", "10:00:00", tail("198.51.100.7, 10.0.0.2")),
		entryAt("192.0.2.1", "10:00:00", tail("198.51.100.7")), // not trusted
		entryAt("10.0.0.1", "10:00:00", tail("-")),
		entryAt("::ffff:192.0.2.1", "10:00:00", tail("-")),
		entryAt("64:ff9b::c000:207", "10:00:00", tail("-")),
		entryAt("2001:db8::1%eth0", "10:00:00", tail("-")),
		entryAt("0.0.0.0", "10:00:00", tail("-")),
		entryAt("www.example.org", "10:00:00", tail("-")), // skipped
	)
	var out bytes.Buffer
	report := replayAll(t, Options{Policy: &fairshare.Policy{}, Limiter: memory(1 << 20),
		Client: clientFunc(t, "10.0.0.0/8"), Logs: []string{path}, Verdicts: &out})
	var got []string
	for _, l := range strings.Split(strings.TrimSpace(out.String()), "\n")[1:] {
		got = append(got, strings.Split(l, "\t")[2])
	}
	want := []string{"198.51.100.7", "198.51.100.7", "192.0.2.1", "10.0.0.1", "192.0.2.1", "192.0.2.7", "2001:db8::1",
		"0.0.0.0"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("clients (-want +got):\n%s", diff)
	}
	if report.Clients != 6 || report.Lines != 9 || report.Skipped != 1 {
		t.Errorf("%d clients in %d lines, %d skipped; want 6, 9 and 1", report.Clients, report.Lines, report.Skipped)
	}
}

// storyLog is a small log with people, bots and malformed lines.
func storyLog(t testing.TB) string {
	person := `"Mozilla/5.0 (X11; Linux x86_64; rv:120.0) Gecko/20100101 Firefox/120.0"`
	bot := `"Mozilla/5.0 (compatible; Somebot/2.1; +http://bot.example/)"`
	lines := []string{"\x1b[31mred\x1b[0m \u202Egnp.exe", ""}
	for i := range 30 {
		clock := fmt.Sprintf("10:%02d:%02d", i/6, i%6)
		lines = append(lines,
			entryAt("192.0.2.1", clock, `"GET /page HTTP/1.1" 200 900 "http://www.example/" `+person),
			entryAt("198.51.100.7", clock, `"GET /item HTTP/1.1" 404 90 "-" `+bot))
		if i%10 == 0 {
			lines = append(lines, entryAt("192.0.2.1", clock,
				`"GET /style.css HTTP/1.1" 200 90 "http://www.example/page" `+person))
		}
	}
	lines = append(lines, entryAt("2001:db8::7", "10:09:00", `"GET / HTTP/1.1" 200 90 "-" "evilbot/1"`))
	return writeLines(t, "access.log", lines...)
}

func storyPolicy() *fairshare.Policy {
	return &fairshare.Policy{DryRun: true, Rules: []fairshare.Rule{
		{Name: "evil", Match: fairshare.Match{UserAgent: []string{"evilbot"}}, Action: fairshare.Block},
		{Name: "dry block", Match: fairshare.Match{UserAgent: []string{"somebot"}}, Action: fairshare.Block,
			DryRun: true},
		{Name: "rapid", Limit: requests(3, 10*time.Second), Ban: &fairshare.BanTerms{After: 12, For: time.Minute}},
		{Name: "errors", Limit: &fairshare.Limit{Resource: fairshare.Errors, N: 5, Window: time.Minute},
			DryRun: true},
	}}
}

// The JSON has the documented fields in their order, and its figures are consistent. The
// policy's own dry_run is ignored.
func TestReportJSON(t *testing.T) {
	path := storyLog(t)
	report := replayAll(t, Options{Policy: storyPolicy(), Limiter: memory(1 << 20), Client: clientFunc(t),
		Logs: []string{path}, Top: 2})
	report.Files = []string{"access.log"}
	var out bytes.Buffer
	if err := report.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(out.Bytes(), &fields); err != nil {
		t.Fatal(err)
	}
	last := 0
	for _, name := range []string{"files", "format", "lines", "skipped", "from", "to", "clients", "verdicts", "rules",
		"unmeasured", "top"} {
		at := strings.Index(out.String(), "\n  \""+name+"\":")
		if at < last {
			t.Errorf("field %s is missing or in another position", name)
		}
		last = at
	}
	if sum := report.Verdicts.Allow + report.Verdicts.Refuse +
		report.Verdicts.Block; sum != report.Lines-report.Skipped {
		t.Errorf("verdicts %+v are %d, lines − skipped is %d", report.Verdicts, sum, report.Lines-report.Skipped)
	}
	checkGolden(t, "story.json", strings.ReplaceAll(out.String(), path, "access.log"))
}

// A client's text cannot control the terminal at which somebody reads the report.
func TestReportJSONHasNoTerminalControls(t *testing.T) {
	const agent = "Evil\u009b31m\x7f\u202e\U000e0001/1.0"
	path := writeLines(t, "log", entryAt("192.0.2.1", "10:00:00", `"GET / HTTP/1.1" 200 100 "-" "`+agent+`"`))
	report := replayAll(t, Options{Policy: storyPolicy(), Limiter: memory(1 << 20), Client: clientFunc(t),
		Logs: []string{path}, Top: 2})
	var out bytes.Buffer
	if err := report.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	if at := strings.IndexFunc(out.String(), func(r rune) bool { return r != '\n' && !unicode.IsGraphic(r) }); at >= 0 {
		t.Errorf("the JSON has %q", out.String()[at:min(at+20, out.Len())])
	}
	var fields struct {
		UserAgents []struct {
			UserAgent string `json:"user_agent"`
		} `json:"user_agents"`
	}
	if err := json.Unmarshal(out.Bytes(), &fields); err != nil || len(fields.UserAgents) != 1 ||
		fields.UserAgents[0].UserAgent != agent {
		t.Errorf("error %v, user agents %q", err, fields.UserAgents)
	}
}

func TestReportText(t *testing.T) {
	report := replayAll(t, Options{Policy: storyPolicy(), Limiter: memory(1 << 20), Client: clientFunc(t),
		Logs: []string{storyLog(t)}, Top: 5})
	report.Files = []string{"access.log"}
	var out bytes.Buffer
	if err := report.WriteText(&out, Style{Policy: "site.yaml"}); err != nil {
		t.Fatal(err)
	}
	for i, l := range strings.Split(out.String(), "\n") {
		if len([]rune(l)) > 80 || strings.TrimRight(l, " ") != l || prose.Printable(l) != l {
			t.Errorf("line %d is too long, ends with a space, or is not printable: %q", i+1, l)
		}
	}
	checkGolden(t, "story.txt", out.String())
}

// checkGolden compares with a golden file, which must not contain paths of this machine.
func checkGolden(t *testing.T, name, got string) {
	t.Helper()
	if strings.Contains(got, os.TempDir()) {
		t.Fatalf("%s would hold a path below %s:\n%s", name, os.TempDir(), got)
	}
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got, -update rewrites it):\n%s", path, diff)
	}
}

// The log has more clients than are distinguished. The largest ones are found, the sums
// are exact, and estimates are marked.
func TestFloodOfClients(t *testing.T) {
	var lines []string
	const flood = 3000
	for i := range flood {
		lines = append(lines, entryAt(fmt.Sprintf("10.%d.%d.%d", i%3, i/200, i%200),
			fmt.Sprintf("10:%02d:%02d", i/60, i%60), ""))
		if i%4 == 0 {
			lines = append(lines, entryAt("192.0.2.1", fmt.Sprintf("10:%02d:%02d", i/60, i%60),
				`"GET / HTTP/1.1" 200 1 "-" "heavy"`))
		}
	}
	policy := &fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "all", Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 1, Window: time.Hour,
			By: []fairshare.KeyPart{{Kind: fairshare.ByEveryone}}}},
	}}
	r, err := New(Options{Policy: policy, Limiter: memory(1 << 20), Client: clientFunc(t),
		Logs: []string{writeLines(t, "log", lines...)}, Top: 1000})
	if err != nil {
		t.Fatal(err)
	}
	r.bounds = bounds{clients: 200, agents: 10, networks: 1000, effects: 150, paths: 10}
	report, err := r.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	near := func(what string, got, want int64) {
		if got < want*95/100 || got > want*105/100 {
			t.Errorf("%s is %d, want about %d", what, got, want)
		}
	}
	near("clients", report.Clients, flood+1)
	near("clients of the rule", report.Rules[0].Clients, flood+1)
	if !report.Approximate || !report.Rules[0].Approximate {
		t.Error("estimates are not marked")
	}
	if top := report.Top[0]; top.Client != "192.0.2.1" || top.Requests != flood/4 || top.UserAgent != "heavy" {
		t.Errorf("the largest clients are %+v, want 192.0.2.1 with %d requests", top, flood/4)
	}
	var sum int64
	for _, n := range report.Networks {
		sum += n.Requests
	}
	if sum != report.Lines {
		t.Errorf("the networks have %d requests, the log %d lines", sum, report.Lines)
	}
	if got, want := report.Rules[0].Refused, report.Verdicts.Refuse; got != want || want < flood {
		t.Errorf("the rule refused %d, the verdicts are %d", got, want)
	}
}

// If most lines are from addresses of proxies, the report warns with a hint.
func TestWarnings(t *testing.T) {
	known := []Network{{Name: "private addresses", Trust: "private",
		Addrs: fairshare.Prefixes{netip.MustParsePrefix("10.0.0.0/8")}}}
	warn := func(lines ...string) []Warning {
		return replayAll(t, Options{Policy: &fairshare.Policy{}, Limiter: memory(1 << 20), Client: clientFunc(t),
			Logs: []string{writeLines(t, "log", lines...)}, Known: known}).Warnings
	}
	got := warn(entryAt("10.0.0.1", "10:00:00", ""), entryAt("10.0.0.2", "10:00:00", ""),
		entryAt("192.0.2.1", "10:00:00", ""))
	if len(got) != 1 || !strings.Contains(got[0].Text, "67 % of the requests come from private addresses") ||
		!strings.Contains(got[0].Hint, "log the forwarded address") {
		t.Errorf("proxies: %+v", got)
	}
	forwarded := `"GET / HTTP/1.1" 200 1 "-" "-" "198.51.100.7"`
	got = warn(entryAt("10.0.0.1", "10:00:00", forwarded), entryAt("10.0.0.1", "10:00:00", forwarded))
	if len(got) != 1 || !strings.Contains(got[0].Hint, "trusted_proxies: [private]") {
		t.Errorf("proxies with a header: %+v", got)
	}
	if got = warn(`www.example.org - - [17/May/2015:10:00:00 +0000] "GET / HTTP/1.1" 200 1`,
		entryAt("192.0.2.1", "10:00:00", "")); len(got) != 1 || !strings.Contains(got[0].Hint, "HostnameLookups") {
		t.Errorf("host names: %+v", got)
	}
	got = warn(entryAt("192.0.2.9", "10:00:00", ""), entryAt("192.0.2.9", "10:00:00", ""),
		entryAt("192.0.2.1", "10:00:00", ""))
	if len(got) != 1 || !strings.Contains(got[0].Text, "One address, 192.0.2.9, sent 67 % of the requests") {
		t.Errorf("one address: %+v", got)
	}
}

// A full disk ends the run with an error.
func TestVerdictsThatCannotBeWritten(t *testing.T) {
	r, err := New(Options{
		Policy: &fairshare.Policy{}, Limiter: memory(1 << 20), Client: clientFunc(t),
		Logs: []string{"testdata/airisdata-2016.log.gz"}, Verdicts: brokenWriter{},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Run(context.Background()); !errors.Is(err, errFull) {
		t.Errorf("error %v, want %v", err, errFull)
	}
}

var errFull = errors.New("no space left")

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errFull }

// A run ends with its context, even if it waits for a pipe.
func TestRunEndsWithItsContext(t *testing.T) {
	for _, logs := range [][]string{{"testdata/airisdata-2016.log.gz"},
		{"testdata/airisdata-2016.log.gz", "testdata/semicomplete-2015.log.gz"}} {
		ctx, cancel := context.WithCancel(context.Background())
		r, err := New(Options{Policy: &fairshare.Policy{}, Limiter: memory(1 << 20), Client: clientFunc(t),
			Logs: logs, Verdicts: writerFunc(func([]byte) { cancel() })})
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if _, err := r.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want %v", err, context.Canceled)
		}
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(b []byte) (int, error) { f(b); return len(b), nil }

func TestRankingIsExactUntilItIsFull(t *testing.T) {
	r := newRanking[string](1000, func(*ranked[string]) { t.Fatal("an item was replaced") })
	want := map[uint64]uint32{}
	for i := range uint64(20_000) {
		hash := i * i % 997 * 0x9E3779B97F4A7C15
		want[hash]++
		r.count(hash)
	}
	if int(r.distinct()) != len(want) || r.full() {
		t.Errorf("%d different, want %d", r.distinct(), len(want))
	}
	for hash, n := range want {
		if it := r.find(hash); it == nil || it.count != n || it.over != 0 {
			t.Fatalf("%x counts %+v, want %d", hash, it, n)
		}
	}
}

// A full ranking finds all its items, and its counts are never too low.
func TestRankingBeyondItsSize(t *testing.T) {
	lost, seeds := 0, newSeeds()
	r := newRanking[struct{}](64, func(*ranked[struct{}]) { lost++ })
	want := map[uint64]uint32{}
	x := uint64(1)
	for range 50_000 {
		x = x*6364136223846793005 + 1442695040888963407
		hash := seeds.hashAddr(netip.AddrFrom4([4]byte{byte(x >> 33), byte(x >> 40 % (1 + x>>50%20))}))
		want[hash]++
		it, _ := r.count(hash)
		if it.hash != hash || r.find(hash) != it {
			t.Fatalf("%x was counted as %x", hash, it.hash)
		}
		if it.count < want[hash] || it.count-it.over > want[hash] {
			t.Fatalf("%x counts %d, at most %d too many, came %d times", hash, it.count, it.over, want[hash])
		}
	}
	if lost == 0 || r.n != 64 {
		t.Errorf("%d items were replaced, %d remain", lost, r.n)
	}
	if got := r.distinct(); got < int64(len(want))*97/100 || got > int64(len(want))*103/100 {
		t.Errorf("%d different, want about %d", got, len(want))
	}
}

func TestShortAgent(t *testing.T) {
	for _, test := range []struct{ in, want string }{
		{"curl/8.1", "curl/8.1"},
		{"Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; GPTBot/1.2; +https://openai.com/gptbot)",
			"GPTBot/1.2; +https://openai.com/gptbot"},
		{"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/109.0.0.0 Safari/537.36", "Chrome/109.0.0.0 (Windows NT 10.0; Win64; x64)"},
		{"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.4 Safari/605.1.15 (Applebot/0.1; +http://www.apple.com/go/applebot)", "Applebot/0.1; +http://www.apple.com/go/applebot"},
		{"something else that is long", "something else that is long"},
	} {
		if got := shortAgent(test.in, 20); got != test.want {
			t.Errorf("shortAgent(%q) = %q, want %q", test.in, got, test.want)
		}
	}
}

// The narrowest column of the report still distinguishes bots.
func TestUserAgentsInNarrowColumns(t *testing.T) {
	p := &printer{}
	for agent, want := range map[string]string{
		"Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; GPTBot/1.2; +https://openai.com/gptbot)":                                                              "GPTBot/1.2; +https…",
		"Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm) Chrome/116.0.1938.76 Safari/537.36":                    "bingbot/2.0; +http…",
		"Mozilla/5.0 (Linux; Android 6.0.1; Nexus 5X) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/99.0 Mobile Safari/537.36 (compatible; Googlebot/2.1; +http://g.example)": "Googlebot/2.1; +ht…",
		"": "(no user agent)",
	} {
		if got := p.agent(agent, 19); got != want {
			t.Errorf("%q is shown as %q, want %q", agent, got, want)
		}
	}
}

// Of many rules only those with an effect are shown, and no name is cut.
func TestOnlyActiveRulesOfManyAreShown(t *testing.T) {
	r := &Report{Lines: 100}
	for i := range fewRules + 1 {
		r.Rules = append(r.Rules, RuleReport{Name: fmt.Sprintf("rule %d", i), Matched: 7})
	}
	r.Rules[3].Refused, r.Rules[5].Banned = 1, 1
	r.Rules[5].Name = "a rule with a name that is longer than the column"
	var b strings.Builder
	if err := r.WriteText(&b, Style{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"  rule 3   ", "\n  a rule with a name that is longer than the column\n",
		"\n  15 more rules refused and blocked no request: --json shows them\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
	if strings.Contains(b.String(), "rule 4") {
		t.Errorf("a rule without an effect is shown:\n%s", &b)
	}
	r.Rules = r.Rules[:fewRules]
	b.Reset()
	if err := r.WriteText(&b, Style{}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "rule 4") || strings.Contains(b.String(), "more rules") {
		t.Errorf("not all of a few rules are shown:\n%s", &b)
	}
}
