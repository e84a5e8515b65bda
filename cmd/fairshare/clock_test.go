package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fairshare/internal/cli"
)

// A setClock is a system clock that the test can set.
type setClock struct{ offset atomic.Int64 }

func (c *setClock) now() time.Time        { return time.Now().Add(time.Duration(c.offset.Load())) }
func (c *setClock) step(by time.Duration) { c.offset.Add(int64(by)) }

// startServeAt runs serve with its own system clock.
func startServeAt(t *testing.T, clock *setClock, policy, state string, args ...string) *running {
	t.Helper()
	s := runServe(t, clock.now, append([]string{"--state", state, "-c", policy}, args...)...)
	s.stderr.wait(`(journal: refusals)`)
	return s
}

// operateAt runs an operator's command with the same clock.
func operateAt(t *testing.T, clock *setClock, state string, args ...string) {
	t.Helper()
	var out bytes.Buffer
	args = append([]string{args[0], "--state", state}, args[1:]...)
	if code := run(args, &cli.Environment{Context: t.Context(), Stdout: &out, Stderr: &out,
		Now: clock.now}); code != cli.ExitOK {
		t.Fatalf("%v: exit code %d: %s", args, code, out.String())
	}
}

// retryAfter returns the status of an answer and the seconds of its
// Retry-After.
func retryAfter(t *testing.T, s *running, client string) (status, seconds int) {
	t.Helper()
	resp := getFrom(t, "http://"+s.addr, client)
	seconds, _ = strconv.Atoi(resp.Header.Get("Retry-After"))
	return resp.StatusCode, seconds
}

// A ban takes an hour and up to a tenth more; a client refused by the limit alone
// waits two hours.
const clockPolicy = `
clients: {trusted_proxies: loopback}
rules:
  - name: three
    limit: {requests: 3, per: 2h, algorithm: quiet}
    ban: {after: 2, for: 1h}
`

const (
	bannedAddr, newAddr, spentAddr = "203.0.113.1", "203.0.113.2", "203.0.113.3"
	shortBan, longBan, limited     = 3500, 3960, 7200
)

// useUp makes one client banned and uses all requests of another.
func useUp(t *testing.T, s *running) {
	t.Helper()
	for range 5 {
		retryAfter(t, s, bannedAddr)
	}
	for range 3 {
		retryAfter(t, s, spentAddr)
	}
	if status, wait := retryAfter(t, s, bannedAddr); status != 429 || wait < shortBan || wait > longBan {
		t.Fatalf("before the step: %d, wait %d s, want a ban", status, wait)
	}
}

func clockSite(t *testing.T) string {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	t.Cleanup(site.Close)
	return site.URL
}

// Steps of the system's clock change nothing for clients while serve runs.
func TestClockStepWhileServing(t *testing.T) {
	t.Parallel()
	for _, step := range []time.Duration{-24 * time.Hour, -time.Hour, time.Hour, 24 * time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			t.Parallel()
			clock, state := new(setClock), filepath.Join(t.TempDir(), "state")
			policy, site := writeFile(t, "site.yaml", clockPolicy), clockSite(t)
			s := startServeAt(t, clock, policy, state, "--upstream", site)
			useUp(t, s)
			clock.step(step)
			if status, wait := retryAfter(t, s, bannedAddr); status != 429 || wait < shortBan || wait > longBan {
				t.Errorf("a banned client: %d, wait %d s", status, wait)
			}
			if status, wait := retryAfter(t, s, spentAddr); status != 429 || wait != limited {
				t.Errorf("a client without requests left: %d, wait %d s", status, wait)
			}
			if status, _ := retryAfter(t, s, newAddr); status != 200 {
				t.Errorf("a new client: %d", status)
			}

			// The journal has the system's time.
			line := s.stderr.wait(fmt.Sprintf(`(\{"time":[^\n]*"client":"%s"[^\n]*\})\n`, regexp.QuoteMeta(spentAddr)))
			var entry struct{ Time time.Time }
			if err := json.Unmarshal([]byte(line), &entry); err != nil {
				t.Fatal(err)
			}
			if off := clock.now().Sub(entry.Time); off < 0 || off > 10*time.Minute {
				t.Errorf("the journal has %v, the system %v", entry.Time, clock.now())
			}

			// Operators' commands go by the system's time.
			follow := func(what, client string, least, most int) {
				t.Helper()
				for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
					_, wait := retryAfter(t, s, client)
					if wait >= least && wait <= most {
						return
					}
					if time.Now().After(deadline) {
						t.Fatalf("%s: wait %d s, want %d to %d", what, wait, least, most)
					}
				}
			}
			operateAt(t, clock, state, "ban", newAddr, "--for", "30m")
			follow("ban for 30m", newAddr, 1700, 1800)
			operateAt(t, clock, state, "unban", bannedAddr)
			follow("unban", bannedAddr, limited, limited)
			operateAt(t, clock, state, "forget", newAddr)
			follow("forget", newAddr, 0, 0)

			// A ban that begins after these commands outlives a restart.
			for range 6 {
				retryAfter(t, s, newAddr)
			}
			s.stop()
			s = startServeAt(t, clock, policy, state, "--upstream", site)
			follow("ban after a restart", newAddr, shortBan, longBan)
		})
	}
}

// After the clock was set back, a restart forgets nothing and no ban is longer.
// After it was set forward, that time has passed.
func TestClockStepBetweenStopAndStart(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		step          time.Duration
		banned, spent int // seconds to wait at most; 0: it is served
	}{
		{-24 * time.Hour, longBan, limited},
		{-time.Hour, longBan, limited},
		{-10 * time.Second, longBan, limited},
		{0, longBan, limited},
		{30 * time.Minute, longBan - 1800, limited},
		{24 * time.Hour, 0, 0},
	} {
		t.Run(test.step.String(), func(t *testing.T) {
			t.Parallel()
			clock, state := new(setClock), filepath.Join(t.TempDir(), "state")
			policy, site := writeFile(t, "site.yaml", clockPolicy), clockSite(t)
			s := startServeAt(t, clock, policy, state, "--upstream", site)
			useUp(t, s)
			s.stop()
			clock.step(test.step)
			for start := range 3 { // further restarts add nothing
				s = startServeAt(t, clock, policy, state, "--upstream", site)
				for client, most := range map[string]int{bannedAddr: test.banned, spentAddr: test.spent} {
					if client == spentAddr && start > 0 {
						continue // another refusal would ban it
					}
					status, wait := retryAfter(t, s, client)
					if most == 0 {
						if status != 200 {
							t.Errorf("%s: %d, wait %d s, want 200", client, status, wait)
						}
					} else if status != 429 || wait > most || wait < most-460 {
						t.Errorf("%s: %d, wait %d s, want %d at most", client, status, wait, most)
					}
				}
				if status, _ := retryAfter(t, s, "203.0.113.200"); status != 200 {
					t.Errorf("a new client: %d", status)
				}
				s.stop()
				if text := s.stderr.String(); strings.Contains(text, "start from zero") {
					t.Errorf("counters were lost:\n%s", text)
				}
				if test.step > time.Hour || t.Failed() {
					break
				}
			}
		})
	}
}
