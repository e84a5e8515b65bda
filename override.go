package fairshare

import "time"

// An Override is what operators have decided about the client that sends a
// request, as it holds at the time of the request. The zero Override decides
// nothing.
type Override struct {
	Action Action        // Allow: no rule applies; Refuse and Block: banned; Undecided: no decision
	Wait   time.Duration // of a Refuse: how much longer it holds, above 0
	Labels []string      // of the client; shared, not to be changed
}

// OperatorBan is the rule in verdicts for clients that an operator has banned. It must not be changed.
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
