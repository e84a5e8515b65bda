package bots

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"fairshare"
	"fairshare/botauth"
)

// signers says which bots the agents that sign requests are.
type signers struct {
	verifier *botauth.Verifier
	bots     map[string][]*Bot // by agent; the first is the bot of requests whose user agent names none
	signs    map[string]bool   // names of all these bots
}

// newSigners binds agents to bots: those of the table, and those of a policy, by the name
// of the bot. A name that the table lacks becomes a bot of its own.
func newSigners(table *Table, verifier *botauth.Verifier, agents map[string]string) signers {
	s := signers{verifier: verifier, bots: map[string][]*Bot{}, signs: map[string]bool{}}
	if verifier == nil {
		return s
	}
	for agent, name := range agents {
		b := table.Bot(name)
		if b == nil {
			b = &Bot{Name: name, Categories: []string{"other"}}
		}
		s.bots[agent], s.signs[name] = []*Bot{b}, true
	}
	for b := range table.Bots {
		for _, agent := range b.Signers {
			if _, named := agents[agent]; !named {
				s.bots[agent], s.signs[b.Name] = append(s.bots[agent], b), true
			}
		}
	}
	return s
}

// of returns the agents of a bot.
func (s *signers) of(name string) (agents []string) {
	for agent, bots := range s.bots {
		if slices.ContainsFunc(bots, func(b *Bot) bool { return b.Name == name }) {
			agents = append(agents, agent)
		}
	}
	slices.Sort(agents)
	return agents
}

// Agents returns the agents whose signatures prove a bot of a table, without duplicates.
func (t *Table) Agents() []string {
	var agents []string
	for i := range t.bots {
		agents = append(agents, t.bots[i].Signers...)
	}
	slices.Sort(agents)
	return slices.Compact(agents)
}

// Signs reports whether a bot can prove itself by a signature.
func (v *Verifier) Signs(name string) bool { return v.signers.signs[name] }

// LookSigned returns the bot of a request with a signature. claimed is the result of
// Look for it. Options.Signatures must be set. It never waits.
//
// A signature of an agent proves a bot that is bound to it: the one that the user agent
// names, or, if that names none or only a kind of bots, the agent's own. A wrong
// signature is a forged claim, unless the address proves the bot. Every other signature
// leaves the state as the address has it.
func (v *Verifier) LookSigned(r *botauth.Request, addr netip.Addr, claimed fairshare.Bot,
	now time.Time) fairshare.Bot {
	return v.signed(v.signers.verifier.Verify(r, plain(addr), now), claimed)
}

// ExplainSigned does the same as LookSigned and adds the steps to those of an
// Explanation. It waits for keys until ctx ends, and does not use the signature up.
func (v *Verifier) ExplainSigned(ctx context.Context, e *Explanation, r *botauth.Request, addr netip.Addr,
	now time.Time) {
	result := v.signers.verifier.Explain(ctx, r, plain(addr), now)
	before := e.Bot
	e.Bot = v.signed(result, before)
	if result.Agent == "" {
		e.addStep("%s", result.Reason)
		return
	}
	e.addStep("it names the agent %s: %s", result.Agent, result.Reason)
	switch {
	case e.Bot.Name == "":
		e.addStep("so it stays a client that is not a known bot")
	case result.State == botauth.Verified && e.Bot.State != fairshare.Verified:
		e.addStep("but signatures of %s do not prove %s", result.Agent, e.Bot.Name)
	case e.Bot.Name == before.Name && e.Bot.State == before.State:
		e.addStep("so it stays %s: %s", e.Bot.Name, e.Bot.State)
	default:
		e.addStep("with its signature it is %s: %s", e.Bot.Name, e.Bot.State)
	}
}

func (v *Verifier) signed(result botauth.Result, claimed fairshare.Bot) fairshare.Bot {
	bots := v.signers.bots[result.Agent]
	if result.State == botauth.Unsigned || len(bots) == 0 {
		return claimed
	}
	b := bots[0]
	proven := result.State == botauth.Verified
	switch i := slices.IndexFunc(bots, func(b *Bot) bool { return b.Name == claimed.Name }); {
	case i >= 0:
		b = bots[i]
	case claimed.State == fairshare.NoBot:
		claimed = b.withState(fairshare.Pending)
	case proven && v.table.isKind(claimed.Name):
		claimed = fairshare.Bot{}
	default: // two names: that of the user agent counts, as without a signature
		return claimed
	}
	switch {
	case proven:
		return b.withState(fairshare.Verified)
	case claimed.State == fairshare.Verified:
	case result.State == botauth.Forged:
		claimed.State = fairshare.Forged
	case result.State == botauth.Pending:
		claimed.State = fairshare.Pending
	}
	return claimed
}

// isKind reports whether a bot is a kind of clients without a name of its own: a
// library, a headless browser, a tool, or a general sign of a bot.
func (t *Table) isKind(name string) bool {
	b := t.Bot(name)
	if b == nil {
		return false
	}
	switch {
	case b.Name == emptyName, b.Name == noBrowserName, b.general:
		return true
	}
	return slices.Contains([]string{"library", "headless", "tool"}, b.Main())
}
