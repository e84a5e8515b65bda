//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"fairshare/httpguard"
	"fairshare/internal/cli"
	"fairshare/internal/livepolicy"
	"fairshare/internal/setup"
	"fairshare/policyfile"
)

// runOperator runs an operator's command on a state folder and returns its
// output.
func runOperator(t *testing.T, state string, args ...string) string {
	t.Helper()
	code, stdout, stderr := operatorResult(t, state, args...)
	if code != cli.ExitOK {
		t.Fatalf("%q: exit code %d\n%s%s", args, code, stdout, stderr)
	}
	return stdout
}

// operatorResult is runOperator for a command that may fail.
func operatorResult(t *testing.T, state string, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	args = append([]string{args[0], "--state", state}, args[1:]...)
	code = run(args, &cli.Environment{Context: t.Context(), Stdout: &out, Stderr: &errs})
	return code, out.String(), errs.String()
}

// terminate stops serve with SIGTERM and waits for its end.
func (p *serving) terminate(t *testing.T) {
	t.Helper()
	p.Process.Signal(syscall.SIGTERM)
	go io.Copy(io.Discard, p.lines)
	if code := p.exitCode(t); code != cli.ExitOK {
		t.Errorf("exit code %d", code)
	}
}

const remembered = behindLoopback + `
rules:
  - name: partners
    match: {label: good-partner}
    allow: true
  - name: two
    match: {path: /two}
    limit: {requests: 2, per: 1h, by: addr}
  - name: three
    match: {path: /three}
    limit: {requests: 3, per: 1h, by: addr}
  - name: guess
    match: {path: /guess}
    limit: {requests: 1, per: 1m, by: addr}
    ban: {after: 2, for: 1h, growth: 2}
`

// Counters, bans with their history, and references survive a restart. A limit
// that was edited starts from zero; all others continue.
func TestCountersAndBansSurviveARestart(t *testing.T) {
	t.Parallel()
	state, site := filepath.Join(t.TempDir(), "state"), echoSite(t)
	start := func(policy string) *serving {
		return startProcess(t, policy, "--state", state, "--upstream", site.URL)
	}
	ask := func(p *serving, path, client string) *http.Response {
		return getFrom(t, "http://"+p.addr+path, client)
	}
	p := start(remembered)
	for range 3 {
		ask(p, "/two", "203.0.113.1")
		ask(p, "/three", "203.0.113.1")
		ask(p, "/guess", "203.0.113.2")
	}
	banned := ask(p, "/guess", "203.0.113.2")
	reference := p.reference(t, "/two", "203.0.113.1")
	p.terminate(t)
	if info, err := os.Stat(state); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the state folder: %v, %v", info, err)
	}
	for _, name := range []string{setup.RegistryFile, livepolicy.CountersFile} {
		if info, err := os.Stat(filepath.Join(state, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}

	p = start(remembered)
	for path, want := range map[string]int{"/two": 429, "/three": 429} {
		if got := ask(p, path, "203.0.113.1"); got.StatusCode != want {
			t.Errorf("%s after a restart: %d, want %d", path, got.StatusCode, want)
		}
	}
	if got := ask(p, "/guess", "203.0.113.2"); got.StatusCode != 429 || retrySeconds(t, got) < 3500 ||
		retrySeconds(t, got) > retrySeconds(t, banned) {
		t.Errorf("banned before the restart: %d, Retry-After %d; it was %d", got.StatusCode, retrySeconds(t, got),
			retrySeconds(t, banned))
	}
	if got := ask(p, "/two", "203.0.113.3"); got.StatusCode != 200 {
		t.Errorf("somebody else: %d", got.StatusCode)
	}
	if got := p.reference(t, "/two", "203.0.113.1"); got != reference {
		t.Errorf("the reference was %s and is %s", reference, got)
	}
	p.terminate(t)

	// Another N is the same limit; another window is another limit.
	p = start(strings.NewReplacer("requests: 2, per: 1h", "requests: 2, per: 2h", "requests: 3, per: 1h",
		"requests: 4, per: 1h").Replace(remembered))
	for _, c := range []struct {
		path, client string
		want         int
	}{{"/two", "203.0.113.1", 200}, {"/guess", "203.0.113.2", 429}} {
		if got := ask(p, c.path, c.client); got.StatusCode != c.want {
			t.Errorf("%s after an edit: %d, want %d", c.path, got.StatusCode, c.want)
		}
	}
	passed := 0
	for range 4 {
		if ask(p, "/three", "203.0.113.1").StatusCode == 200 {
			passed++
		}
	}
	if passed != 1 { // three of four were spent
		t.Errorf("of the limit that now allows four %d passed, want 1", passed)
	}

	// Bans do not depend on the counters.
	p.terminate(t)
	if err := os.Remove(filepath.Join(state, livepolicy.CountersFile)); err != nil {
		t.Fatal(err)
	}
	p = start(remembered)
	if got := ask(p, "/guess", "203.0.113.2"); got.StatusCode != 429 || retrySeconds(t, got) < 3400 {
		t.Errorf("banned, and the counters are gone: %d, Retry-After %d", got.StatusCode, retrySeconds(t, got))
	}

	// An operator ends a ban that an earlier process began.
	runOperator(t, state, "unban", "203.0.113.2")
	// of the limit alone
	eventually(t, true, func() bool { return retrySeconds(t, ask(p, "/guess", "203.0.113.2")) <= 120 })
}

// The message at the start counts the operators' decisions that are in force.
func TestStartMessageCountsOperatorsDecisions(t *testing.T) {
	t.Parallel()
	state := filepath.Join(t.TempDir(), "state")
	runOperator(t, state, "ban", "203.0.113.0/24")
	runOperator(t, state, "ban", "gptbot", "--for", "2h")
	runOperator(t, state, "ban", "203.0.113.9", "--for", "1h")
	runOperator(t, state, "allow", "198.51.100.7")
	file, err := policyfile.Parse("", []byte("rules: [{use: default}]"))
	if err != nil {
		t.Fatal(err)
	}
	for later, want := range map[time.Duration]string{
		0:             state + ", 3 bans in force, 1 allow of operators",
		3 * time.Hour: state + ", 1 ban in force, 1 allow of operators",
	} {
		p, err := livepolicy.New(t.Context(), file, livepolicy.Options{
			Folder: state,
			Clock:  httpguard.NewClockOf(func() time.Time { return time.Now().Add(later) }),
			Log:    func(line string) { t.Log(line) },
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.OpenState(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := p.DescribeState(); got != want {
			t.Errorf("%v later: %q, want %q", later, got, want)
		}
		p.Close()
	}
}

// A client that was unbanned while no server ran is not banned at its next
// refusal: the counters that led to the ban are reset.
func TestUnbanWithoutARunningServer(t *testing.T) {
	t.Parallel()
	state, site := filepath.Join(t.TempDir(), "state"), echoSite(t)
	ban := func(p *serving) (resp *http.Response) {
		for range 4 {
			resp = getFrom(t, "http://"+p.addr+"/guess", "203.0.113.2")
		}
		return resp
	}
	p := startProcess(t, remembered, "--state", state, "--upstream", site.URL)
	if got := ban(p); retrySeconds(t, got) < 3500 {
		t.Fatalf("Retry-After %d: not banned", retrySeconds(t, got))
	}
	p.terminate(t)
	runOperator(t, state, "unban", "203.0.113.2")
	p = startProcess(t, remembered, "--state", state, "--upstream", site.URL)
	if got := getFrom(t, "http://"+p.addr+"/guess", "203.0.113.2"); got.StatusCode == 429 &&
		retrySeconds(t, got) > 120 {
		t.Errorf("the first request after unban: %d, Retry-After %d", got.StatusCode, retrySeconds(t, got))
	}
	if got := ban(p); retrySeconds(t, got) < 3500 {
		t.Errorf("Retry-After %d: not banned for more of it", retrySeconds(t, got))
	}
}

// forget takes effect in a running server, survives restarts, and takes effect
// in a server that starts later.
func TestForgottenClientsAreNew(t *testing.T) {
	t.Parallel()
	state, site := filepath.Join(t.TempDir(), "state"), echoSite(t)
	start := func() *serving {
		return startProcess(t, remembered, "--state", state, "--upstream", site.URL)
	}
	status := func(p *serving, path string) int {
		t.Helper()
		return getFrom(t, "http://"+p.addr+path, "203.0.113.1").StatusCode
	}
	p := start()
	exhaust := func(p *serving) {
		t.Helper()
		for range 5 {
			status(p, "/two")
			status(p, "/guess")
		}
		if two, guess := status(p, "/two"), status(p, "/guess"); two != 429 || guess != 429 {
			t.Fatalf("/two %d, /guess %d, want both refused", two, guess)
		}
		p.reference(t, "/two", "203.0.113.1") // the registry gets its story later
	}
	exhaust(p)
	runOperator(t, state, "why", "203.0.113.1")
	runOperator(t, state, "forget", "203.0.113.1")
	eventually(t, 200, func() int { return status(p, "/guess") })
	if got := status(p, "/two"); got != 200 {
		t.Errorf("the first request of a forgotten client: %d", got)
	}
	p.terminate(t)

	// The snapshot still has the old counters, but no client uses them.
	p = start()
	if first, second := status(p, "/two"), status(p, "/two"); first != 200 || second != 429 {
		t.Errorf("after a restart: %d and %d, want one more of two a hour", first, second)
	}
	exhaust(p)
	p.terminate(t)
	runOperator(t, state, "forget", "203.0.113.1")
	p = start()
	if two, guess := status(p, "/two"), status(p, "/guess"); two != 200 || guess != 200 {
		t.Errorf("forgotten while nobody served: /two %d, /guess %d", two, guess)
	}
	p.terminate(t)
}

// reference makes a client refused and returns the reference in the answer.
func (p *serving) reference(t *testing.T, path, client string) string {
	t.Helper()
	req, err := http.NewRequest("GET", "http://"+p.addr+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Forwarded-For", client)
	req.Header.Set("Accept", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var problem struct{ Reference string }
	if err := json.NewDecoder(resp.Body).Decode(&problem); err != nil || problem.Reference == "" {
		t.Fatalf("%d, reference %q, %v", resp.StatusCode, problem.Reference, err)
	}
	return problem.Reference
}

func retrySeconds(t *testing.T, resp *http.Response) int {
	t.Helper()
	n, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err != nil && resp.Header.Get("Retry-After") != "" {
		t.Error(err)
	}
	return n
}

// Operators' decisions take effect in a running server and in those that start
// later.
func TestOperatorsDecisionsOverrideRules(t *testing.T) {
	t.Parallel()
	state, site := filepath.Join(t.TempDir(), "state"), echoSite(t)
	runOperator(t, state, "ban", "203.0.113.7", "--reason", "before the first start")
	p := startProcess(t, remembered, "--state", state, "--upstream", site.URL)
	status := func(path, client string) func() int {
		return func() int { return getFrom(t, "http://"+p.addr+path, client).StatusCode }
	}
	if got := status("/", "203.0.113.7")(); got != 403 {
		t.Errorf("banned before the first start: %d", got)
	}
	runOperator(t, state, "ban", "203.0.113.9", "--for", "2h", "--reason", "scrapes")
	eventually(t, 429, status("/", "203.0.113.9"))
	if got := retrySeconds(t, getFrom(t, "http://"+p.addr+"/", "203.0.113.9")); got < 7100 || got > 7200 {
		t.Errorf("Retry-After %d, want the rest of two hours", got)
	}
	runOperator(t, state, "ban", "198.51.100.0/24")
	eventually(t, 403, status("/", "198.51.100.200"))
	runOperator(t, state, "allow", "198.51.100.9", "--for", "7d")
	eventually(t, 200, status("/", "198.51.100.9"))
	runOperator(t, state, "unban", "198.51.100.0/24")
	eventually(t, 200, status("/", "198.51.100.200"))
	runOperator(t, state, "ban", "curl")
	eventually(t, 403, func() int {
		req, _ := http.NewRequest("GET", "http://"+p.addr+"/", nil)
		req.Header.Set("User-Agent", "curl/8.5.0")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	})

	// The last line of why lets the client in.
	for range 4 {
		status("/guess", "203.0.113.20")()
	}
	reference := p.reference(t, "/guess", "203.0.113.20")
	var story string
	eventually(t, cli.ExitOK, func() (code int) { // once the refusal is recorded
		code, story, _ = operatorResult(t, state, "why", reference)
		return code
	})
	const remedy = "fairshare allow 203.0.113.20 --for 7d"
	if !strings.Contains(story, "guess") || !strings.Contains(story, remedy) {
		t.Errorf("the story of %s:\n%s", reference, story)
	}
	runOperator(t, state, strings.Fields(remedy)[1:]...)
	eventually(t, 200, status("/guess", "203.0.113.20"))

	runOperator(t, state, "label", "203.0.113.30", "good-partner")
	for range 3 {
		status("/two", "203.0.113.30")()
	}
	eventually(t, 200, status("/two", "203.0.113.30"))
	runOperator(t, state, "unlabel", "203.0.113.30", "good-partner")
	eventually(t, 429, status("/two", "203.0.113.30"))

	// A proxy that the policy trusts is not banned by mistake.
	var stderr bytes.Buffer
	if code := run([]string{"ban", "--state", state, "127.0.0.1"},
		&cli.Environment{Context: t.Context(), Stdout: io.Discard, Stderr: &stderr}); code != cli.ExitFailed ||
		!strings.Contains(stderr.String(), "--force") {
		t.Errorf("ban of loopback: exit code %d, %s", code, &stderr)
	}

	// A reload keeps it all, and so does a restart.
	p.reload(t, `SIGHUP: \S+ (was loaded again)`)
	if got := status("/", "203.0.113.7")(); got != 403 {
		t.Errorf("after a reload: %d", got)
	}
	p.terminate(t)
	p = startProcess(t, remembered, "--state", state, "--upstream", site.URL)
	for client, want := range map[string]int{"203.0.113.7": 403, "203.0.113.9": 429, "198.51.100.200": 200} {
		if got := status("/", client)(); got != want {
			t.Errorf("%s after a restart: %d, want %d", client, got, want)
		}
	}
}

// In dry run nobody is banned, and the ban command prints this.
func TestBanReportsADryRun(t *testing.T) {
	t.Parallel()
	state, site := filepath.Join(t.TempDir(), "state"), echoSite(t)
	p := startProcess(t, remembered, "--dry-run", "--state", state, "--upstream", site.URL)
	answered := func(want int) {
		t.Helper()
		if got := getFrom(t, "http://"+p.addr+"/", "203.0.113.7").StatusCode; got != want {
			t.Errorf("answered %d, want %d", got, want)
		}
	}
	answered(200)
	const dry = "serve is in dry run: "
	if output := runOperator(t, state, "ban", "203.0.113.7"); !strings.Contains(output, dry) {
		t.Errorf("in dry run: %s", output)
	}
	answered(200)
	p.terminate(t)
	p = startProcess(t, remembered, "--state", state, "--upstream", site.URL)
	answered(403)
	if output := runOperator(t, state, "ban", "203.0.113.8"); strings.Contains(output, dry) {
		t.Errorf("when it enforces: %s", output)
	}
}

// Processes are killed at any moment under load. Each ban that was sent to a
// client, and each operator's decision, survives.
func TestBansAndDecisionsSurviveAKill(t *testing.T) {
	t.Parallel()
	state, site := filepath.Join(t.TempDir(), "state"), echoSite(t)
	rounds := 3
	if required() {
		rounds = 12
	}
	var mu sync.Mutex
	banned := map[string]bool{}  // clients that got the answer of a ban
	decided := map[string]bool{} // clients whose ban by an operator has returned
	for round := range rounds {
		p := startProcess(t, remembered, "--state", state, "--upstream", site.URL)
		mu.Lock()
		for client := range banned {
			if got := getFrom(t, "http://"+p.addr+"/guess", client); got.StatusCode != 429 ||
				retrySeconds(t, got) < 60 {
				t.Errorf("round %d: %s was banned: %d, Retry-After %d", round, client, got.StatusCode,
					retrySeconds(t, got))
			}
		}
		for client := range decided {
			if got := getFrom(t, "http://"+p.addr+"/", client); got.StatusCode != 403 {
				t.Errorf("round %d: an operator banned %s: %d", round, client, got.StatusCode)
			}
		}
		before := len(banned)
		mu.Unlock()
		var load sync.WaitGroup
		for worker := range 4 {
			load.Go(func() {
				for n := 0; ; n++ {
					client := fmt.Sprintf("10.%d.%d.%d", round, worker, n%250)
					for range 3 {
						ban, err := requestGuess(p.addr, client)
						if err != nil {
							return // it was killed
						}
						if ban {
							mu.Lock()
							banned[client] = true
							mu.Unlock()
						}
					}
				}
			})
		}
		load.Go(func() {
			for n := range 3 {
				client := fmt.Sprintf("198.51.100.%d", 10*round+n)
				runOperator(t, state, "ban", client)
				mu.Lock()
				decided[client] = true
				mu.Unlock()
			}
		})
		eventually(t, true, func() bool { // however slow the machine is
			mu.Lock()
			defer mu.Unlock()
			return len(banned) >= before+10
		})
		time.Sleep(time.Duration(rand.IntN(400)) * time.Millisecond) // the moment of the kill is random
		p.Process.Kill()
		load.Wait()
		p.Wait()
	}
	if len(decided) != 3*rounds {
		t.Errorf("only %d decisions were tested", len(decided))
	}
}

// requestGuess sends one request to /guess, and reports whether the answer has
// the wait of a ban.
func requestGuess(addr, client string) (ban bool, err error) {
	req, err := http.NewRequest("GET", "http://"+addr+"/guess", nil)
	if err != nil {
		return false, err
	}
	req.Header.Set("X-Forwarded-For", client)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	wait, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	return wait > 1800, err
}

// Two servers may share a state folder: both use the registry, and the first
// one keeps its counters.
func TestTwoServersInOneStateFolder(t *testing.T) {
	t.Parallel()
	state, site := filepath.Join(t.TempDir(), "state"), echoSite(t)
	startProcess(t, remembered, "--state", state, "--upstream", site.URL)
	second := startServe(t, remembered, "--state", state, "--upstream", site.URL)
	if !strings.Contains(second.stderr.String(), "warning: another fairshare process keeps its counters in "+state) {
		t.Errorf("the log of the second:\n%s", second.stderr)
	}
	runOperator(t, state, "ban", "203.0.113.9")
	eventually(t, 403, func() int { return getFrom(t, "http://"+second.addr+"/", "203.0.113.9").StatusCode })
}

// With damaged files serve still starts: it sets the counters aside, and
// --registry none runs without the registry.
func TestServeStartsWithDamagedState(t *testing.T) {
	t.Parallel()
	state, site := filepath.Join(t.TempDir(), "state"), echoSite(t)
	policy := writeFile(t, "site.yaml", remembered)
	args := []string{"-c", policy, "--state", state, "--upstream", site.URL}
	p := startServing(t, args...)
	getFrom(t, "http://"+p.addr+"/two", "203.0.113.1")
	p.terminate(t)
	damage := func(name string) {
		t.Helper()
		path := filepath.Join(state, name)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		copy(data[20:], bytes.Repeat([]byte("broken "), 20))
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	damage(livepolicy.CountersFile)
	s := startServe(t, "", args...)
	if !strings.Contains(s.stderr.String(), "warning: counters: ") ||
		!strings.Contains(s.stderr.String(), livepolicy.CountersFile+".bad") {
		t.Errorf("with damaged counters:\n%s", s.stderr)
	}
	s.stop()

	damage(setup.RegistryFile)
	var stderr bytes.Buffer
	if code := run(append([]string{"serve", "--listen", "127.0.0.1:0"}, args...),
		&cli.Environment{Context: t.Context(), Stdout: io.Discard, Stderr: &stderr}); code != cli.ExitFailed ||
		!strings.Contains(stderr.String(), setup.RegistryFile) || !strings.Contains(stderr.String(), "hint: ") ||
		!strings.Contains(stderr.String(), "--registry none") {
		t.Errorf("with a damaged registry: exit code %d\n%s", code, &stderr)
	}
	s = startServe(t, "", append(args, "--registry", "none")...)
	s.stderr.wait(`(warning: rules use labels, but without a registry no client has one)`)
	if got := getFrom(t, "http://"+s.addr+"/", "203.0.113.1").StatusCode; got != 200 ||
		!strings.Contains(s.stderr.String(), "no registry (bans end with the process, operators' commands have no effect)") {
		t.Errorf("with --registry none: %d\n%s", got, s.stderr)
	}
}

// If the default state folder cannot be written, serve warns. If --state names
// such a folder, it is an error.
func TestUnwritableStateFolder(t *testing.T) {
	site := httptest.NewServer(http.NotFoundHandler())
	defer site.Close()
	in := writeFile(t, "file", "no folder")
	locked := t.TempDir()
	// no file can have that name
	if err := os.MkdirAll(filepath.Join(locked, "fairshare", setup.ServeLock), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, home := range []string{in, locked} {
		t.Setenv("XDG_STATE_HOME", home)
		log := newWatched()
		ctx, stop := context.WithCancel(t.Context())
		exit := make(chan int, 1)
		go func() {
			exit <- run([]string{"serve", "--listen", "127.0.0.1:0", "--upstream", site.URL},
				&cli.Environment{Context: ctx, Stdout: io.Discard, Stderr: log})
		}()
		log.wait(`(protects)`)
		log.wait(`(warning: a restart will lose all bans and counters: )`)
		stop()
		if code := <-exit; code != cli.ExitOK {
			t.Errorf("in %s: exit code %d", home, code)
		}
	}
	var stderr bytes.Buffer
	code := run([]string{"serve", "--listen", "127.0.0.1:0", "--upstream", site.URL, "--state", in + "/state"},
		&cli.Environment{Context: t.Context(), Stdout: io.Discard, Stderr: &stderr})
	if code != cli.ExitFailed || !strings.Contains(stderr.String(), "fairshare: state folder: ") ||
		!strings.Contains(stderr.String(), "hint: name a folder") {
		t.Errorf("with --state: exit code %d, %s", code, &stderr)
	}
}
