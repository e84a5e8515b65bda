package main

import (
	"bufio"
	"cmp"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"fairshare"
	"fairshare/internal/lockfile"
	"fairshare/policyfile"
)

type whyCmd struct {
	registryFlag
	JSON bool   `name:"json" help:"Print one JSON object a line."`
	What string `arg:"" name:"ID|ADDR" help:"The reference on the page that a client was shown, or its address."`
}

func (c *whyCmd) Help() string {
	return "Tells which rule refused a client, what was counted, until when, whether that still holds, and how to let it in."
}

// storyWait is how long a reference that is not there is waited for: a server
// writes new stories within 200 ms.
const storyWait = 1500 * time.Millisecond

// Where a server runs, one who was refused just now has a new story soon: who
// asks with the address gets no older one alone.
const (
	newStoryWait = 400 * time.Millisecond
	newStory     = 5 * time.Second // at this age it is not waited for another
)

// fewStories of one client are told whole.
const fewStories = 5

func (c *whyCmd) Run(env *environment) error {
	o, err := c.read(env)
	if err != nil {
		return err
	}
	defer o.close()
	ref := reference(c.What)
	id, notClient := o.client(c.What)
	if ref != "" && (notClient != nil || id.Bot != "") {
		wait := storyWait
		if notClient == nil && id.err == nil {
			wait = 0 // it may as well be the name of a bot
		}
		stories, err := o.await(wait, func() ([]fairshare.Story, bool, error) {
			stories, err := o.Story(o.ctx, ref)
			return stories, len(stories) > 0, err
		})
		if err != nil {
			return err
		}
		if len(stories) > 0 {
			return o.tell(stories, c.JSON)
		}
		if wait > 0 {
			return &hintError{fmt.Errorf("no story has the reference %s", ref),
				"stories are kept for 90 days (registry: {age} in the policy), in a flood not all of them; look with the address: " + o.command("why 203.0.113.9")}
		}
	}
	if notClient == nil && id.err != nil || notClient != nil && !looksLikeAddress(c.What) {
		return &hintError{fmt.Errorf("%q is no reference, no address and no bot", c.What), "a reference is ten letters and digits, as 7k3m9x2abc; it stands at the end of the page that the client was shown"}
	}
	if notClient != nil {
		return notClient
	}
	stories, err := o.stories(id.ClientID)
	if err != nil {
		return err
	}
	if len(stories) == 0 {
		return o.noStory(id, c.JSON)
	}
	return o.tell(stories, c.JSON)
}

// reference reads a reference of httpguard: ten characters of Crockford's
// base32, in which letters that look like a digit mean it; also out of the whole
// that a client was shown. It returns "" for what is none.
func reference(s string) string {
	between := func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }
	s = strings.TrimFunc(strings.ToLower(s), between)
	if at := strings.LastIndex(s, "reference"); at >= 0 {
		if words := strings.FieldsFunc(s[at+len("reference"):], between); len(words) > 0 {
			s = words[0]
		}
	}
	s = strings.NewReplacer("o", "0", "i", "1", "l", "1", "-", "", " ", "").Replace(s)
	if len(s) != 10 || strings.Trim(s, "0123456789abcdefghjkmnpqrstvwxyz") != "" {
		return ""
	}
	return s
}

// stories returns those of a client, the latest first.
func (o *operator) stories(id fairshare.ClientID) ([]fairshare.Story, error) {
	wait := time.Duration(0)
	if lockfile.Held(filepath.Join(o.dir, lockFile)) {
		wait = newStoryWait
	}
	return o.await(wait, func() ([]fairshare.Story, bool, error) {
		stories, err := o.Stories(o.ctx, id, 0)
		return stories, len(stories) > 0 && o.now.Sub(stories[0].Last) < newStory, err
	})
}

// await reads stories until they are enough, or for so long.
func (o *operator) await(wait time.Duration, read func() (stories []fairshare.Story, enough bool, err error)) ([]fairshare.Story, error) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	end := time.After(wait)
	for {
		stories, enough, err := read()
		if err != nil || enough || wait == 0 {
			return stories, o.failed(err)
		}
		select {
		case <-tick.C:
		case <-end:
			wait = 0 // once more
		case <-o.ctx.Done():
			return nil, errSilent
		}
	}
}

// noStory tells of a client that no rule refused.
func (o *operator) noStory(id named, json bool) error {
	near, err := o.near(id.ClientID)
	if err != nil {
		return err
	}
	word := near.speaks()
	if word == nil {
		return &hintError{fmt.Errorf("no refusal of %s is remembered", id), o.command("client "+id.word) + " tells what is known of it"}
	}
	if json {
		return writeJSON(o.stdout, jsonWord(word))
	}
	o.printf("%s: %s is %s, by an operator", id, word.Client, o.word(word))
	switch {
	case word.Action == fairshare.Allow:
	case o.settings.DryRun:
		o.tellDryRun()
	case word.Client == id.ClientID:
		o.printf("let them in: %s", o.command("unban "+id.word))
	default: // the others within stay banned
		o.printf("let them in: %s", o.command("allow "+id.word+" --for 7d"))
	}
	return nil
}

// A told is a story as it stands now.
type told struct {
	*fairshare.Story
	word  *fairshare.Said   // that speaks of its client; nil: none
	ban   *fairshare.Banned // by its rule, in force; nil: none
	holds bool              // it would be refused again, as far as is known
	now   string            // whether that is so, and why
	letIn string            // a command; "" when nothing is needed
}

// told finds out how a story stands now.
func (o *operator) told(s *fairshare.Story) (*told, error) {
	t := &told{Story: s}
	var err error
	if t.word, err = o.wordOn(s); err != nil {
		return nil, err
	}
	found, err := o.Client(o.ctx, s.Client)
	if err != nil {
		return nil, o.failed(err)
	}
	if found != nil {
		for i := range found.Bans {
			b := &found.Bans[i]
			around := b.Client == s.Client || b.Client.Prefix.IsValid() && s.Client.Prefix.IsValid() && b.Client.Prefix.Bits() <= s.Client.Prefix.Bits()
			if b.Rule == s.Rule && !b.DryRun && around && o.holds(b.Until) {
				t.ban = b
			}
		}
	}
	busy := s.Rule == fairshare.BusyUpstream.Name // who is allowed waits for a turn too
	switch {
	case t.word != nil && t.word.Action == fairshare.Allow && !busy:
		t.now = fmt.Sprintf("no: an operator allows %s %s", t.word.Client, o.until(t.word.Until))
	case t.word != nil && t.word.Action != fairshare.Allow:
		t.holds, t.now = true, fmt.Sprintf("yes: %s is %s, by an operator", t.word.Client, o.word(t.word))
	case s.DryRun:
		t.now = "no: it was let through, the rule is in dry run"
	case s.Rule == fairshare.OperatorBan.Name:
		t.now = "no: the operator's ban is over"
	case busy:
		t.now = "no: it may ask again, and waits or is refused only while the upstream is busy"
	case t.ban != nil:
		t.holds, t.now = true, fmt.Sprintf("yes: %s is banned %s", t.ban.Client, o.ban(t.ban))
	case s.Action == fairshare.Block:
		t.holds, t.now = true, "yes: the rule blocks each request that it matches"
	case s.Ban != fairshare.NotBanned:
		t.now = "no: the ban is over"
	case o.holds(s.Until):
		t.holds, t.now = true, "yes, until "+moment(s.Until)+", if it asks as much"
	default:
		t.now = "no: the wait is over"
	}
	if t.holds && o.settings.DryRun {
		t.holds, t.now = false, "no: serve is in dry run; else "+t.now
	}
	if !s.DryRun && !busy && (t.word == nil || t.word.Action != fairshare.Allow) {
		t.letIn = o.command("allow " + o.argument(s.Client) + " --for 7d")
	}
	return t, nil
}

// wordOn returns the word that speaks of who a story is about, nil for none.
func (o *operator) wordOn(s *fairshare.Story) (*fairshare.Said, error) {
	id := s.Client
	if s.Addr.IsValid() {
		id = fairshare.PrefixID(netip.PrefixFrom(s.Addr, s.Addr.BitLen()))
	}
	near, err := o.near(id)
	if word := near.speaks(); err != nil || word != nil || s.Bot == "" {
		return word, err
	}
	of, err := o.near(fairshare.ClientID{Bot: s.Bot})
	if word := of.own; err != nil || word == nil || word.Action != fairshare.Allow || s.Client.Bot != "" {
		return word, err
	}
	return nil, nil // a good word is for those whose addresses prove it
}

// tell tells stories, the first few of them whole.
func (o *operator) tell(stories []fairshare.Story, json bool) error {
	out := bufio.NewWriter(o.stdout)
	for i := range stories {
		t, err := o.told(&stories[i])
		switch {
		case err != nil:
			return err
		case json:
			if err := writeJSON(out, jsonStory(t)); err != nil {
				return err
			}
			continue
		case i == fewStories:
			fmt.Fprintf(out, "\nand %s: --json tells all\n", counted(len(stories)-i, "older story", "older stories"))
			return out.Flush()
		case i > 0:
			fmt.Fprintln(out)
		}
		o.story(out, t)
	}
	return out.Flush()
}

// story tells one story.
func (o *operator) story(w *bufio.Writer, t *told) {
	s := t.Story
	line := func(head, format string, args ...any) {
		fmt.Fprintf(w, "  %-9s %s\n", head, fmt.Sprintf(format, args...))
	}
	did := "refused"
	if s.Action == fairshare.Block {
		did = "blocked"
	}
	if s.DryRun {
		did = "let through; it would have been " + did
	}
	by := fmt.Sprintf("the rule %q", printable(s.Rule))
	if s.Rule == fairshare.OperatorBan.Name {
		by = "an operator's ban"
	}
	who := s.Client.String()
	if s.Addr.IsValid() && s.Addr.String() != who {
		who += " (" + s.Addr.String() + ")"
	}
	by = " by " + by
	if s.Rule == fairshare.BusyUpstream.Name {
		by = ": the upstream was busy and had no turn for it"
	}
	fmt.Fprintf(w, "%s: %s was %s%s\n", s.ID, who, did, by)
	line("when", "%s, last %s (%s), first %s", times(s.Count), moment(s.Last), o.ago(s.Last), moment(s.First))
	if s.Window > 0 || s.Allowed > 0 {
		line("counted", "%s", countedOf(s))
	}
	switch s.Ban {
	case fairshare.BanStarted:
		line("ban", "that refusal began one, until %s", moment(s.Until))
	case fairshare.BanInForce:
		if s.Until.IsZero() {
			line("ban", "in force then, for ever")
		} else {
			line("ban", "in force then, until %s", moment(s.Until))
		}
	default:
		if s.Action == fairshare.Refuse && s.Until.After(s.Last) {
			line("wait", "until %s", moment(s.Until))
		}
	}
	line("answer", "%d", s.Status)
	line("request", "%s", printable(strings.TrimSpace(cmp.Or(s.Method, "–")+" "+s.Host+s.Path)))
	line("agent", "%s", cmp.Or(printable(s.UserAgent), "–"))
	if s.Bot != "" {
		line("taken for", "%s (%s)", printable(s.Bot), s.BotState)
	}
	line("still?", "%s", t.now)
	if advice := o.advice(s); advice != "" {
		line("to do", "%s", advice)
	}
	if t.letIn != "" {
		fmt.Fprintf(w, "let them in: %s\n", t.letIn)
	}
}

// advice says what can be done about a refusal for what requests cost; "" for
// others.
func (o *operator) advice(s *fairshare.Story) string {
	if s.Rule == fairshare.BusyUpstream.Name {
		return "no rule is at fault: the upstream needs room (more workers, faster pages), or a tighter limit on who takes most (" + o.command("clients --sort cpu") +
			"); share: {weights} in the policy gives a label a larger part, and who has one, or is known for long, goes before newcomers"
	}
	switch s.Resource {
	case "cpu", "time", "cost":
		return fmt.Sprintf("%s tells what it had in all, %s who costs most; if it should have more: raise %s in the rule, or give it a label that the rule leaves out (match: {not: {label: partner}})",
			o.command("client "+o.argument(s.Client)), o.command("clients --sort cpu"), s.Resource)
	}
	return ""
}

// countedOf tells what a limit had counted.
func countedOf(s *fairshare.Story) string {
	text := count(s.Used) + " of " + amount(s.Resource, s.Allowed)
	switch s.Resource {
	case "cpu", "time":
		text = "used " + amount(s.Resource, s.Used) + " of " + inSeconds(s.Allowed) + " allowed"
	case "bytes":
		text = amount(s.Resource, s.Used) + " of " + amount(s.Resource, s.Allowed)
	}
	if s.Window > 0 {
		text += " in " + policyfile.FormatDuration(s.Window)
	}
	if s.By != "" {
		text += ", by " + printable(s.By)
	}
	switch s.Resource {
	case "cpu", "time", "cost", "bytes", "errors":
		if s.Action == fairshare.Refuse && !s.Until.After(s.Last) { // else there would have been a wait
			text += "; some of it is what its requests in progress were expected to cost"
		}
	}
	return text
}
