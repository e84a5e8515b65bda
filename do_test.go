package fairshare_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"fairshare"
	"fairshare/memlimit"
)

func newDoGuard(t *testing.T, p fairshare.Policy) *fairshare.Guard {
	t.Helper()
	g, err := memlimit.NewGuard(&p, memlimit.Options{Memory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

var (
	noon   = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	byUser = []fairshare.KeyPart{{Kind: fairshare.ByValue, Name: "user"}}
)

// login returns an attempt to log in, at some seconds after noon.
func login(user string, second int) *fairshare.Request {
	return &fairshare.Request{Time: noon.Add(time.Duration(second) * time.Second),
		Values: map[string]string{"user": user}}
}

func TestDoCountsByTheProgramsValue(t *testing.T) {
	guard := newDoGuard(t, fairshare.Policy{Rules: []fairshare.Rule{{Name: "failed logins",
		Limit: &fairshare.Limit{Resource: fairshare.Errors, N: 2, Window: time.Minute, By: byUser}}}})
	wrong := errors.New("wrong password")
	for i, step := range []struct {
		user   string
		second int
		status int
		passes bool
	}{
		{"alice", 0, 401, true},
		{"alice", 1, 401, true},
		{"alice", 2, 200, false}, // two failures
		{"bob", 2, 200, true},
		{"bob", 3, 200, true},
		{"bob", 4, 200, true}, // success is not an error
		{"alice", 120, 200, true},
	} {
		done := false
		err := guard.Do(t.Context(), login(step.user, step.second),
			func(context.Context) (fairshare.Outcome, error) {
				done = true
				if step.status == 401 {
					return fairshare.Outcome{Status: 401}, wrong
				}
				return fairshare.Outcome{Status: step.status}, nil
			})
		var refused *fairshare.RefusedError
		if done != step.passes || errors.As(err, &refused) == step.passes {
			t.Fatalf("step %d: work done %v, error %v, want it to pass: %v", i, done, err, step.passes)
		}
		if refused != nil && (refused.Rule.Name != "failed logins" || refused.Wait <= 0) {
			t.Errorf("step %d: %v", i, refused)
		}
		if step.passes && (step.status == 401) != errors.Is(err, wrong) {
			t.Errorf("step %d: error %v, want that of work", i, err)
		}
	}
}

func TestDoWithoutValueCountsByAddress(t *testing.T) {
	guard := newDoGuard(t, fairshare.Policy{Rules: []fairshare.Rule{{Name: "jobs",
		Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 1, Window: time.Minute, By: byUser}}}})
	work := func(context.Context) (fairshare.Outcome, error) { return fairshare.Outcome{}, nil }
	for i, step := range []struct {
		req    fairshare.Request
		passes bool
	}{
		{fairshare.Request{Addr: netip.MustParseAddr(alice)}, true},
		{fairshare.Request{Addr: netip.MustParseAddr(alice), Values: map[string]string{"tenant": "x"}}, false},
		{fairshare.Request{Addr: netip.MustParseAddr(bob)}, true},
		// a value is not an address
		{fairshare.Request{Addr: netip.MustParseAddr(bob), Values: map[string]string{"user": alice}}, true},
	} {
		step.req.Time = noon
		if err := guard.Do(t.Context(), &step.req, work); (err == nil) != step.passes {
			t.Errorf("step %d: %v, want it to pass: %v", i, err, step.passes)
		}
	}
}

func TestDoSettlesWorkThatPanics(t *testing.T) {
	guard := newDoGuard(t, fairshare.Policy{Rules: []fairshare.Rule{{Name: "one at once",
		Limit: &fairshare.Limit{Resource: fairshare.Concurrent, N: 1, By: byUser}}}})
	for range 3 {
		func() {
			defer func() { recover() }()
			err := guard.Do(t.Context(), login("alice", 0),
				func(context.Context) (fairshare.Outcome, error) { panic("work") })
			t.Errorf("Do returned %v, want the panic of work", err)
		}()
	}
	nested := error(nil)
	err := guard.Do(t.Context(), login("alice", 0), func(ctx context.Context) (fairshare.Outcome, error) {
		nested = guard.Do(ctx, login("alice", 0),
			func(context.Context) (fairshare.Outcome, error) { return fairshare.Outcome{}, nil })
		return fairshare.Outcome{}, nil
	})
	if refused := (*fairshare.RefusedError)(nil); err != nil || !errors.As(nested, &refused) {
		t.Errorf("outer: %v, inner: %v, want the inner one refused", err, nested)
	}
}

func TestDoReturnsTheErrorOfTheLimiter(t *testing.T) {
	for _, dry := range []bool{false, true} {
		policy := &fairshare.Policy{DryRun: dry, Rules: []fairshare.Rule{{Name: "jobs",
			Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 1, Window: time.Minute}}}}
		memory, err := memlimit.New(policy.Limits(), memlimit.Options{Memory: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		guard, err := fairshare.NewGuard(policy, brokenLimiter{memory}, nil)
		if err != nil {
			t.Fatal(err)
		}
		done := false
		err = guard.Do(t.Context(), login("alice", 0), func(context.Context) (fairshare.Outcome, error) {
			done = true
			return fairshare.Outcome{}, nil
		})
		if done != dry || (err == nil) != dry {
			t.Errorf("dry run %v: work done %v, error %v", dry, done, err)
		}
	}
}

func TestPeekReportsWhatIsLeft(t *testing.T) {
	policy := fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "requests", Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 5, Window: time.Hour}},
		{Name: "steady", Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 6, Window: time.Hour,
			Algorithm: fairshare.GCRA}},
		{Name: "at once", Limit: &fairshare.Limit{Resource: fairshare.Concurrent, N: 4}},
		{Name: "bytes", Limit: &fairshare.Limit{Resource: fairshare.Bytes, N: 1000, Window: time.Hour}},
		{Name: "dry", DryRun: true, Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 5, Window: time.Hour}},
	}}
	guard := newDoGuard(t, policy)
	for i := range int64(3) {
		v, err := guard.Decide(t.Context(), &fairshare.Request{Time: noon, Addr: netip.MustParseAddr(alice)})
		if err != nil || v.Action != fairshare.Allow {
			t.Fatal(v, err)
		}
		for range 2 { // it changes nothing
			var got []string
			err = guard.Peek(t.Context(), &v, noon, func(r *fairshare.Rule, l *fairshare.Limit, tally fairshare.Tally) {
				got = append(got, r.Name)
				want := i + 1
				switch r.Name {
				case "at once":
					want = 1
				case "bytes":
					want = 100 * i
					tally.Used = tally.Spent()
				}
				if tally.Used != want || tally.Over && r.Name != "bytes" {
					t.Errorf("request %d: %s: %+v, want %d used", i, r.Name, tally, want)
				}
			})
			if err != nil || len(got) != 4 {
				t.Errorf("request %d: limits %q, %v", i, got, err)
			}
		}
		if err := guard.Settle(t.Context(), &v, fairshare.Outcome{Time: noon, Bytes: 100}); err != nil {
			t.Fatal(err)
		}
		if err := guard.Peek(t.Context(), &v, noon, func(*fairshare.Rule, *fairshare.Limit, fairshare.Tally) {
			t.Error("figures of a settled verdict")
		}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDoChargesForUnknownCosts(t *testing.T) {
	for _, step := range []struct {
		resource fairshare.Resource
		out      fairshare.Outcome
		passes   bool // the second request
	}{
		{fairshare.Cost, fairshare.Outcome{}, false},
		{fairshare.Cost, fairshare.Outcome{Status: 200}, true}, // it is known to have cost nothing
		{fairshare.Cost, fairshare.Outcome{Cost: 1}, false},
		{fairshare.CPU, fairshare.Outcome{Took: time.Second}, false},
		{fairshare.CPU, fairshare.Outcome{Took: time.Second, CPU: time.Nanosecond}, true},
		{fairshare.Time, fairshare.Outcome{Took: time.Second}, false},
	} {
		guard := newDoGuard(t, fairshare.Policy{Rules: []fairshare.Rule{{Name: "work",
			Limit: &fairshare.Limit{Resource: step.resource, N: 1, Window: time.Minute, By: byUser}}}})
		work := func(context.Context) (fairshare.Outcome, error) { return step.out, nil }
		if err := guard.Do(t.Context(), login("alice", 0), work); err != nil {
			t.Fatal(err)
		}
		if err := guard.Do(t.Context(), login("alice", 1), work); (err == nil) != step.passes {
			t.Errorf("%s of %+v: %v, want the second request to pass: %v", step.resource, step.out, err, step.passes)
		}
	}
}
