package operator

import (
	"bufio"
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairshare"
	"fairshare/internal/amount"
	"fairshare/internal/network"
	"fairshare/internal/prose"
	"fairshare/policyfile"
	"fairshare/registry"
)

// A storyStatus is a record of a refusal and what applies to its client now.
type storyStatus struct {
	*registry.Story
	override *registry.OverrideRecord // of its client, in force; nil: none
	ban      *fairshare.BanRecord     // by its rule, in force; nil: none
	refused  bool                     // the client would be refused now, as far as the registry knows
	answer   string                   // refused as yes or no, and the reason
	letIn    string                   // the command that lets the client in; "" if none is needed
}

// statusOf returns what applies now to the client of a story.
func (o *operation) statusOf(s *registry.Story) (*storyStatus, error) {
	t := &storyStatus{Story: s}
	var err error
	if t.override, err = o.overrideOf(s); err != nil {
		return nil, err
	}
	found, err := o.Client(o.Context, s.Client)
	if err != nil {
		return nil, o.failed(err)
	}
	if found != nil {
		for i := range found.Bans {
			b := &found.Bans[i]
			around := b.Client == s.Client || !b.Client.Via.IsValid() && b.Client.Prefix.IsValid() &&
				s.Client.Prefix.IsValid() && b.Client.Prefix.Bits() <= s.Client.Prefix.Bits()
			if b.Rule == s.Rule && !b.DryRun && around && o.inForce(b.Until) {
				t.ban = b
			}
		}
	}
	busy := s.Rule == fairshare.BusyUpstream.Name // allowed clients wait for a turn too
	switch {
	case t.override != nil && t.override.Action == fairshare.Allow && !busy:
		t.answer = fmt.Sprintf("no: an operator allows %s %s", t.override.Client, o.untilText(t.override.Until))
	case t.override != nil && t.override.Action != fairshare.Allow:
		t.refused = true
		t.answer = fmt.Sprintf("yes: %s is %s, by an operator", t.override.Client, o.overrideText(t.override))
	case s.DryRun:
		t.answer = "no: it was let through, the rule is in dry run"
	case s.Rule == fairshare.OperatorBan.Name:
		t.answer = "no: the operator's ban is over"
	case busy:
		t.answer = "no: it may try again; it waits or is refused only while the upstream is busy"
	case t.ban != nil:
		t.refused, t.answer = true, fmt.Sprintf("yes: %s is banned %s", t.ban.Client, o.banText(t.ban))
	case s.Action == fairshare.Block:
		t.refused, t.answer = true, "yes: the rule blocks each request that it matches"
	case s.Ban != fairshare.NotBanned:
		t.answer = "no: the ban is over"
	case o.inForce(s.Until):
		t.refused, t.answer = true, "yes, until "+prose.Moment(s.Until)+", if it sends as many requests"
	default:
		t.answer = "no: the wait is over"
	}
	if t.refused && o.settings.DryRun {
		t.refused, t.answer = false, "no: serve is in dry run; otherwise "+t.answer
	}
	if !s.DryRun && !busy && !s.Client.Via.IsValid() && (t.override == nil || t.override.Action != fairshare.Allow) {
		t.letIn = o.command("allow " + o.argument(s.Client) + " --for 7d")
	}
	return t, nil
}

// overrideOf returns the override that applies to the client of a story, nil for
// none.
func (o *operation) overrideOf(s *registry.Story) (*registry.OverrideRecord, error) {
	id := s.Client
	if s.Addr.IsValid() {
		id = fairshare.PrefixID(netip.PrefixFrom(s.Addr, s.Addr.BitLen()))
	}
	near, err := o.overridesNear(id)
	override := near.effective()
	if s.Client.Via.IsValid() && override != nil && override.Action == fairshare.Allow {
		override = nil // the address is not proven
	}
	if err != nil || override != nil || s.Bot == "" {
		return override, err
	}
	ofBot, err := o.overridesNear(fairshare.ClientID{Bot: s.Bot})
	override = ofBot.own
	if err != nil || override == nil || override.Action != fairshare.Allow || s.Client.Bot != "" {
		return override, err
	}
	return nil, nil // a bot is allowed only at addresses that prove it
}

// printStories prints stories: the first mostStoriesPrinted of them, or all as
// JSON.
func (o *operation) printStories(stories []registry.Story, json bool) error {
	out := bufio.NewWriter(o.Stdout)
	for i := range stories {
		t, err := o.statusOf(&stories[i])
		switch {
		case err != nil:
			return err
		case json:
			if err := writeJSON(out, jsonStory(t)); err != nil {
				return err
			}
			continue
		case i == mostStoriesPrinted:
			fmt.Fprintf(out, "\nand %s: --json shows all\n",
				prose.Counted(len(stories)-i, "older refusal", "older refusals"))
			return out.Flush()
		case i > 0:
			fmt.Fprintln(out)
		}
		o.writeStory(out, t)
	}
	return out.Flush()
}

// writeStory writes one story as text.
func (o *operation) writeStory(w *bufio.Writer, t *storyStatus) {
	s := t.Story
	line := func(head, format string, args ...any) {
		fmt.Fprintf(w, "  %-9s %s\n", head, fmt.Sprintf(format, args...))
	}
	done := "refused"
	if s.Action == fairshare.Block {
		done = "blocked"
	}
	if s.DryRun {
		done = "let through; it would have been " + done
	}
	by := fmt.Sprintf("the rule %q", prose.Printable(s.Rule))
	if s.Rule == fairshare.OperatorBan.Name {
		by = "an operator's ban"
	}
	client := s.Client.String()
	if s.Addr.IsValid() && s.Addr.String() != client && !s.Client.Via.IsValid() {
		client += " (" + s.Addr.String() + ")"
	}
	by = " by " + by
	if s.Rule == fairshare.BusyUpstream.Name {
		by = ": the upstream was busy and had no capacity for it"
	} else if s.Rule == fairshare.AttackMode.Name {
		by = ": the attack mode was on, and newcomers had to wait first"
	}
	fmt.Fprintf(w, "%s: %s was %s%s\n", s.ID, client, done, by)
	line("when", "%s, last %s (%s), first %s", prose.Times(s.Count), prose.Moment(s.Last), o.ago(s.Last),
		prose.Moment(s.First))
	reasonKnown := s.Ban == fairshare.BanInForce && !s.BanBegan.IsZero()
	counts := s.Window > 0 || s.Allowed > 0
	if counts && !reasonKnown {
		counted := countedOf(s)
		if s.Ban == fairshare.BanInForce {
			counted += "; this refusal was the last before the ban"
		}
		line("counted", "%s", counted)
	}
	if s.Robots != "" {
		line("robots", "%s", prose.Printable(s.Robots))
	}
	switch s.Ban {
	case fairshare.BanStarted:
		line("ban", "this refusal started a ban until %s", prose.Moment(s.Until))
	case fairshare.BanInForce:
		if s.Until.IsZero() {
			line("ban", "the client was banned permanently")
		} else {
			line("ban", "the client was banned until %s", prose.Moment(s.Until))
		}
	default:
		if s.Action == fairshare.Refuse && s.Until.After(s.Last) {
			line("wait", "until %s", prose.Moment(s.Until))
		}
	}
	if reasonKnown {
		reason := fmt.Sprintf("%s at %s started the ban: rule %q",
			prose.Printable(strings.TrimSpace(s.BanMethod+" "+s.BanPath)), prose.Moment(s.BanBegan),
			prose.Printable(s.Rule))
		if counts {
			reason += ", " + countedOf(s)
		}
		line("reason", "%s", reason)
	}
	line("answer", "%d", s.Status)
	request := prose.Printable(strings.TrimSpace(cmp.Or(s.Method, "–") + " " + s.Host + s.Path))
	switch s.Ban {
	case fairshare.BanStarted:
		request += " (it started the ban)"
	case fairshare.BanInForce:
		request += " (the latest during the ban, not its reason)"
	}
	line("request", "%s", request)
	line("agent", "%s", cmp.Or(prose.Printable(s.UserAgent), "–"))
	if s.Bot != "" {
		line("bot", "%s (%s)", prose.Printable(s.Bot), s.BotState)
	}
	line("in force", "%s", t.answer)
	if advice := o.advice(s); advice != "" {
		line("to do", "%s", advice)
	}
	if t.letIn != "" {
		if sharedKey(s.By) {
			fmt.Fprintf(w, "to let in this client only: %s\n", t.letIn)
		} else {
			fmt.Fprintf(w, "to let it in: %s\n", t.letIn)
		}
	}
}

// advice returns what the operator can do about a refusal, other than to let the
// client in; "" if nothing.
func (o *operation) advice(s *registry.Story) string {
	if s.Rule == fairshare.BusyUpstream.Name {
		return "no rule refused it: the upstream needs capacity (more workers, faster pages), or a tighter limit on its heaviest clients (" + o.command("clients --sort time") +
			"); if it is an attack: " + o.command("attack on") + "; share: {weights} in the policy gives a label a larger share; clients with a label or a long history come before newcomers"
	}
	if s.Rule == fairshare.AttackMode.Name {
		return "no rule refused it: it gets in when it comes back with its cookie; " + o.command("attack off") +
			" ends the mode"
	}
	if s.Client.Via.IsValid() {
		return provisionalAdvice(s)
	}
	if sharedKey(s.By) {
		return o.sharedAdvice(s)
	}
	if s.Method == "HEAD" && s.Resource == "errors" {
		return "link checkers typically send HEAD requests for missing pages; if the checker is your own, allow its address: " +
			o.command("allow "+o.argument(s.Client)) +
			", or add a rule above: {name: link checker, match: {addr: ADDRESS}, allow: true}"
	}
	switch s.Resource {
	case "cpu", "time", "cost":
		return fmt.Sprintf(
			"%s shows what it used in all, %s the most expensive clients; to give it more, raise %s in the rule, or give it a label that the rule exempts (match: {not: {label: partner}})",
			o.command("client "+o.argument(s.Client)), o.command("clients --sort cpu"), s.Resource)
	}
	return ""
}

// sharedKey reports whether a limit by that key counts several clients
// together. With an address or a bot in the key, each client has its own count:
// a client that is not a bot is counted by its address.
func sharedKey(by string) bool {
	parts := strings.Split(by, " and ")
	return by != "" && !slices.Contains(parts, "addr") && !slices.Contains(parts, "bot")
}

// sharedAdvice returns what the operator can do about a count that clients share.
func (o *operation) sharedAdvice(s *registry.Story) string {
	text := "all clients with the same " + prose.Printable(s.By) + " share this count"
	if s.By == "everyone" {
		text = "all clients share this count"
	}
	if p := s.Addr; s.By == "network" && p.IsValid() {
		id := fairshare.PrefixID(network.Of(p))
		text = "all clients of " + id.String() + " share this count"
		if found, err := o.Client(o.Context, id); err == nil && found != nil && found.Inside > 0 {
			text += fmt.Sprintf(" (%s known)", prose.Counted(found.Inside, "client is", "clients are"))
		}
		text += o.heaviestOf(id)
	}
	return text + "; " + o.command("clients --sort requests") + " shows which client sends most: ban or limit it, " +
		"raise the number in the rule, or count by addr as well (by: [" +
		strings.ReplaceAll(prose.Printable(s.By), " and ", ", ") + ", addr])"
}

// mostHeavy bounds how many clients of a network are named.
const mostHeavy = 3

// heaviestOf names the known clients of a network that have sent most requests,
// "" if none is known.
func (o *operation) heaviestOf(network fairshare.ClientID) string {
	clients, err := o.Heaviest(o.Context, network, mostHeavy)
	if err != nil || len(clients) == 0 {
		return ""
	}
	var names []string
	for i := range clients {
		names = append(names, fmt.Sprintf("%s (%s)", clients[i].Client,
			prose.Counted(clients[i].Spent.Requests, "request", "requests")))
	}
	return "; most recorded requests: " + strings.Join(names, ", ")
}

// provisionalAdvice returns how the operator can make a provisional client
// known.
func provisionalAdvice(s *registry.Story) string {
	peer := fairshare.PeerName(s.Client.Via)
	return fmt.Sprintf("%s named this client and no policy names %[1]s: allowing the address has no effect. "+
		"If %[1]s is your proxy, name it under clients: trusted_proxies; if it only translates addresses, write trusted_proxies: []", peer)
}

// countedOf returns the count of the limit that refused, as text.
func countedOf(s *registry.Story) string {
	text := prose.Number(s.Used) + " of " + amount.Of(s.Resource, s.Allowed)
	switch s.Resource {
	case "cpu", "time":
		text = "used " + amount.Of(s.Resource, s.Used) + " of " + amount.Seconds(s.Allowed) + " allowed"
	case "bytes":
		text = amount.Of(s.Resource, s.Used) + " of " + amount.Of(s.Resource, s.Allowed)
	}
	if s.Window > 0 {
		text += " in " + policyfile.FormatDuration(s.Window)
	}
	if s.By != "" {
		text += ", by " + prose.Printable(s.By)
	}
	switch s.Resource {
	case "cpu", "time", "cost", "bytes", "errors":
		if s.Action == fairshare.Refuse && !s.Until.After(s.Last) { // otherwise the client would have had to wait
			text += "; the rest was reserved for its requests in progress"
		}
	}
	return text
}
