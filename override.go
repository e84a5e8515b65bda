package fairshare

import "time"

// An Override is the decision of operators about a client, as it holds at the time
// of a request. The zero Override decides nothing.
type Override struct {
	// Action is Allow if no rule applies to the client, Refuse and Block if it is
	// banned for some time or forever, and Undecided without a decision.
	Action Action

	Wait   time.Duration // for Refuse: how much longer the ban lasts, above 0; otherwise 0
	Labels []string      // of the client; they must not be changed
}

// OperatorBan is the rule in verdicts about clients that an operator has banned. It
// must not be changed.
var OperatorBan = &Rule{Name: "ban by an operator", Action: Block}

// finding returns the guard's answer for an override that has an action.
func (w *Override) finding() Finding {
	switch w.Action {
	case Allow:
		return Finding{Action: Allow}
	case Refuse:
		return Finding{Action: Refuse, Rule: OperatorBan, Wait: max(w.Wait, 1), Ban: BanInForce}
	}
	return Finding{Action: Block, Rule: OperatorBan, Ban: BanInForce}
}
