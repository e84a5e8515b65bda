package fairshare

import (
	"fmt"
	"log/slog"
	"time"
)

// An Action says what happens to a request.
type Action uint8

const (
	Undecided Action = iota // the zero Action: there is no decision; it never means "let it in"
	Allow                   // let it pass
	Refuse                  // the client may come back; status 429 unless Rule.Answer sets another
	Block                   // the client is not welcome; status 403 unless Rule.Answer sets another
)

// String returns the action as logs and reports spell it.
func (a Action) String() string {
	switch a {
	case Undecided:
		return "undecided"
	case Allow:
		return "allow"
	case Refuse:
		return "refuse"
	case Block:
		return "block"
	}
	return fmt.Sprintf("action %d", uint8(a))
}

// A BanState says whether a ban is the reason of a finding.
type BanState uint8

const (
	NotBanned  BanState = iota // no ban
	BanStarted                 // this refusal or block started a ban
	BanInForce                 // a ban that started earlier refused the request
)

// A Finding is the decision of one rule about a request.
type Finding struct {
	Action Action
	Ban    BanState

	// Ceiling says that the limit of all provisional clients of Request.Via
	// together is over: 256 times Limit, at most the resource's maximum. Tally is
	// of that limit.
	Ceiling bool

	Rule *Rule // that decided; nil if no rule did; it must not be changed

	// Limit is the limit that was over: the rule's, or one for newcomers in its
	// place. nil for a block and for a ban in force. It must not be changed.
	Limit *Limit

	Tally Tally // of Limit; zero for a block and a ban in force

	// Wait is how long it takes until the same request would pass, not rounded. It
	// is 0 for a block, for a concurrent limit, and if only requests in progress
	// refuse the request. For a ban it is the rest of the ban, for a block that started
	// a ban its length.
	Wait time.Duration
}

// A Verdict is a guard's decision about one request. Every verdict must be passed
// to [Guard.Settle], whatever its Action is.
type Verdict struct {
	Finding               // of the enforced rules; Rule is the one that refused or blocked
	DryRun        bool    // the policy is in dry run: the request passes, whatever Action is
	DryRunFinding Finding // of the rules in dry run; Undecided if they would have done nothing

	d   *decision
	gen uint64
}

// Enforced returns the action to carry out: Allow in a dry run, else Action.
func (v *Verdict) Enforced() Action {
	if v.DryRun && v.Action != Undecided {
		return Allow
	}
	return v.Action
}

// Limits calls found for each enforced limit that was tested, in the order of
// the rules. If the limits passed, only Held and Expected of the tallies are set.
// After the verdict is settled, Limits does nothing. Do not call it while the
// verdict is being settled.
func (v *Verdict) Limits(found func(*Rule, *Limit, Tally)) {
	if v.d == nil || v.d.gen.Load() != v.gen {
		return
	}
	v.d.fill()
	for i := range v.d.takes {
		if t := &v.d.takes[i]; !t.DryRun && !v.d.guard.isCeiling(t.Limit) {
			found(v.d.ruleOf(i), &v.d.guard.limits[t.Limit], v.d.tallies[i])
		}
	}
}

// Matched calls found with the index in Policy.Rules of each rule whose match
// held, in order. After the verdict is settled, Matched does nothing.
func (v *Verdict) Matched(found func(rule int)) {
	if v.d == nil || v.d.gen.Load() != v.gen {
		return
	}
	matched := v.d.matched
	if v.d.group != nil {
		matched = v.d.group.matched
	}
	for _, i := range matched {
		found(int(i))
	}
}

// LogValue returns the facts that are safe to log. It leaves out keys, which may
// contain credentials.
func (v Verdict) LogValue() slog.Value {
	attrs := []slog.Attr{slog.String("action", v.Action.String())}
	if v.Rule != nil {
		attrs = append(attrs, slog.String("rule", v.Rule.Name))
	}
	if v.Action == Refuse {
		attrs = append(attrs, slog.Duration("wait", v.Wait))
	}
	if v.DryRun {
		attrs = append(attrs, slog.Bool("dry_run", true))
	}
	return slog.GroupValue(attrs...)
}
