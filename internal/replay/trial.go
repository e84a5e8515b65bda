package replay

import (
	"context"
	"math"
	"net/netip"
	"slices"
	"time"

	"fairshare"
	"fairshare/internal/accesslog"
	"fairshare/internal/census"
	"fairshare/membans"
)

// Trials test rules that a policy does not have, on the requests that it lets pass. Each trial
// has a guard of its own, so that trials do not influence each other or the verdicts.
type Trials struct {
	All []*Trial

	// Protected reports whether a request must not be refused: of a person, or of a search engine.
	Protected func(req *fairshare.Request, client netip.Addr) bool

	// Measure finds out how much of each limit the protected clients need, and refuses nothing.
	Measure bool

	Passed Tested // by the policy

	// Harm counts the protected requests that each rule of the policy refused or blocked; nil means
	// that they are not counted.
	Harm map[string]int64

	// Profiles has what each client did, if it is not nil; up to mostProfiles.
	Profiles map[netip.Addr]*Profile
}

// A Trial is the test of one rule.
type Trial struct {
	Rules []fairshare.Rule // one rule, with a limit or a block
	// Least is what protected clients need of the limit, in its unit, with Measure; 0: they never match.
	Least   int64
	Refused Tested                  // of requests that are not protected
	Harmed  map[netip.Addr]struct{} // clients with protected requests that were refused, at least some
	// clients that were refused and are not protected, exactly up to mostTried
	Clients map[netip.Addr]struct{}

	guard *fairshare.Guard
	meter *meter
}

// Tested has the figures of tested requests.
type Tested struct {
	Usage
	Errors   int64 // answers 4xx
	Failures int64 // attempts to log in or to send a form that failed

	time int64 // ns
}

const (
	mostTried    = 1 << 12 // clients of a trial that are remembered
	mostProfiles = 1 << 18
	triedMetered = 1 << 16 // keys that a trial counts to measure
)

func (t *Tested) add(it *item, out *fairshare.Outcome) {
	u := usageOf(it.entry)
	t.Requests++
	t.Bytes, t.time = addBytes(t.Bytes, u.bytes), addBytes(t.time, u.time)
	t.Seconds = time.Duration(t.time).Seconds()
	if out.Status >= 400 && out.Status < 500 {
		t.Errors++
	}
	if out.Failed {
		t.Failures++
	}
}

// reset starts new guards without counts.
func (t *Trials) reset(opts *Options) error {
	for _, trial := range t.All {
		policy := *opts.Policy
		policy.Rules = trial.Rules
		limits := policy.Limits()
		var limiter fairshare.Limiter
		if t.Measure {
			if trial.meter == nil {
				trial.meter = newMeter(limits)
				trial.meter.keys = triedMetered
			}
			trial.meter.Reset()
			limiter = trial.meter
		} else {
			var err error
			if limiter, err = opts.TrialLimiter(limits); err != nil {
				return err
			}
		}
		var err error
		if trial.guard, err = fairshare.NewGuard(&policy, limiter, membans.New(1)); err != nil {
			return err
		}
		if trial.Clients == nil {
			trial.Clients, trial.Harmed = map[netip.Addr]struct{}{}, map[netip.Addr]struct{}{}
		}
	}
	return nil
}

// try looks at a request and, if it passes the policy, tests the rules on it at time now, Unix ns.
func (t *Trials) try(ctx context.Context, it *item, whole *fairshare.Outcome, v *fairshare.Verdict, now int64) error {
	at := it.req.Time
	it.req.Time = time.Unix(0, now)
	defer func() { it.req.Time = at }()
	settled := *whole
	settled.Part = 0
	out := &settled
	if t.Profiles != nil {
		t.profile(it, out)
	}
	if v.Action != fairshare.Allow {
		if t.Harm != nil && v.Rule != nil && t.Protected(&it.req, it.clientOf()) {
			t.Harm[v.Rule.Name]++
		}
		return nil
	}
	t.Passed.add(it, out)
	if len(t.All) == 0 {
		return nil
	}
	client := it.clientOf()
	protected := t.Protected(&it.req, client)
	for _, trial := range t.All {
		if trial.meter != nil {
			trial.meter.person = protected
		}
		v, err := trial.guard.Decide(ctx, &it.req)
		if err != nil {
			return err
		}
		if v.Action == fairshare.Allow {
			if err := trial.guard.Settle(ctx, &v, *out); err != nil {
				return err
			}
			continue
		}
		if err := trial.guard.Settle(ctx, &v, fairshare.Outcome{Time: out.Time}); err != nil {
			return err
		}
		if protected {
			if len(trial.Harmed) < mostTried {
				trial.Harmed[client] = struct{}{}
			}
			continue
		}
		trial.Refused.add(it, out)
		if len(trial.Clients) < mostTried {
			trial.Clients[client] = struct{}{}
		}
	}
	return nil
}

// finish reads what the meters found.
func (t *Trials) finish() {
	for _, trial := range t.All {
		if trial.meter == nil {
			continue
		}
		trial.Least = slices.Max(append(trial.meter.most, 0))
		if trial.meter.full {
			trial.Least = math.MaxInt64
		}
		trial.meter, trial.guard = nil, nil
	}
}

// A Profile says what a client did.
type Profile struct {
	Requests int64
	Pages    int64 // answers 200 to GET of pages, not of their assets
	Assets   int64 // that were got
	Referers int64 // requests with one
	Posts    int64
	Failures int64  // attempts to log in or to send a form that failed
	Errors   int64  // answers 4xx
	Browser  bool   // it sent a browser's user agent, or the log has none
	Bot      string // of a request, "" if none was of a known bot
	Fleet    bool   // it was in a fleet

	agent    uint64 // hash of the user agent that Browser knows
	behavior behavior
}

// profile notes a request.
func (t *Trials) profile(it *item, out *fairshare.Outcome) {
	p := t.Profiles[it.clientOf()]
	if p == nil {
		if len(t.Profiles) >= mostProfiles {
			return
		}
		p = &Profile{Browser: it.entry.Has&accesslog.HasUserAgent == 0}
		t.Profiles[it.clientOf()] = p
	}
	p.Requests++
	p.behavior.add(it, it.req.Time.UnixNano(), p.Assets > 0 && p.Referers > 0)
	if it.page {
		p.Pages++
	}
	if it.asset {
		p.Assets++
	}
	if it.entry.Referer != "" {
		p.Referers++
	}
	if it.req.Method == "POST" {
		p.Posts++
	}
	if out.Failed {
		p.Failures++
	}
	if out.Status >= 400 && out.Status < 500 {
		p.Errors++
	}
	p.Fleet = p.Fleet || it.req.Fleet != ""
	switch {
	case it.req.Bot.Name != "":
		p.Bot = it.req.Bot.Name
	case p.agent != it.agent:
		p.agent = it.agent
		p.Browser = p.Browser || census.Browser(it.req.UserAgent)
	}
}

// IsProgram reports whether a client behaves as only a program does, see behavior.isProgram.
func (p *Profile) IsProgram() bool { return p.behavior.isProgram(p.Requests, p.Errors) }
