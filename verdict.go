package fairshare

import (
	"fmt"
	"log/slog"
	"time"
)

// An Action is what a verdict says.
type Action uint8

const (
	Undecided Action = iota // the zero Action: nobody decided, never "let it in"
	Allow                   // pass it on
	Refuse                  // 429, the client may come back
	Block                   // 403, the client is not welcome
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

// A BanState tells what a ban had to do with a finding.
type BanState uint8

const (
	NotBanned  BanState = iota
	BanStarted          // this refusal was the one that started the ban
	BanInForce          // the ban spoke before the rules
)

// A Finding is what one rule had to say.
type Finding struct {
	Action Action
	Ban    BanState

	// Ceiling says that all provisional clients of Request.Via together have
	// spent 256 times the rule's limit. Tally is of that ceiling.
	Ceiling bool

	Rule *Rule // nil when no rule spoke
	// that was over: the rule's, or one for newcomers in its stead; nil for a block and a ban in
	// force
	Limit *Limit
	Tally Tally         // of the rule's limit; zero for a block and a ban in force
	Wait  time.Duration // until the same request would pass, exact; 0 for a block
}

// A Verdict is a guard's answer for one request. Hand it to [Guard.Settle]
// once, whatever it says.
type Verdict struct {
	Finding               // as enforced: Rule is the one that refused or blocked
	DryRun        bool    // the policy is dry: let the request through whatever Action says
	DryRunFinding Finding // what rules with dry_run would have done; Undecided when nothing

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

// Limits calls found for each enforced limit that was asked, in the order of
// the rules. Tallies are filled in only for a refusal by limits. It may be
// called until the verdict is settled.
func (v *Verdict) Limits(found func(*Rule, *Limit, Tally)) {
	if v.d == nil || v.d.gen.Load() != v.gen {
		return
	}
	for i := range v.d.takes {
		if t := &v.d.takes[i]; !t.DryRun && !v.d.guard.isCeiling(t.Limit) {
			found(v.d.guard.limitRule[t.Limit], &v.d.guard.limits[t.Limit], v.d.tallies[i])
		}
	}
}

// Matched calls found with the place in the policy of each rule whose match
// held, in order. It may be called until the verdict is settled.
func (v *Verdict) Matched(found func(rule int)) {
	if v.d == nil || v.d.gen.Load() != v.gen {
		return
	}
	for _, i := range v.d.matched {
		found(int(i))
	}
}

// LogValue lists what is safe to log: keys may hold credentials.
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
