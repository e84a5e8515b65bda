package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"fairshare"
	"fairshare/bots"
)

type banCmd struct {
	registryFlag
	For    period `placeholder:"TIME" help:"How long, as 2h or 7d (429 until then); without it for ever (403)."`
	Reason string `placeholder:"TEXT" help:"Why: for operators, no client is told."`
	Force  bool   `help:"Even if it hits oneself, a proxy in front, or everybody."`
	Client string `arg:"" name:"ADDR|PREFIX|BOT" help:"Whom: an address, a prefix, or the name of a bot (whoever says to be it)."`
}

func (c *banCmd) Help() string {
	return "It speaks before all rules, and stays until it ends or unban takes it back. A running server follows within a second."
}

// Validate is asked by kong.
func (c *banCmd) Validate() error { return ownText("--reason", c.Reason) }

func (c *banCmd) Run(env *environment) error {
	o, err := c.say(env)
	if err != nil {
		return err
	}
	defer o.close()
	id, err := o.knownClient(c.Client)
	if err != nil {
		return err
	}
	if whom := o.hitsSelf(id.ClientID); whom != "" && !c.Force {
		return &hintError{fmt.Errorf("a ban of %s would hit %s", id, whom), "--force does it all the same"}
	}
	said := fairshare.Said{Client: id.ClientID, Action: fairshare.Block, Since: o.now, Until: c.For.until(o.now), Reason: c.Reason}
	if c.For != 0 {
		said.Action = fairshare.Refuse
	}
	if err := o.sayIt(id, said, "banned", "unban"); err != nil {
		return err
	}
	o.tellDryRun()
	if bot := bots.BuiltIn().Bot(id.Bot); bot != nil && c.For == 0 && bot.Main() == "search" {
		o.printf("what it is refused for ever (403) drops out of that search engine; --for would have it come back later (429)")
	}
	return nil
}

// sayIt puts a word into the registry, and tells what that changes.
func (o *operator) sayIt(id named, said fairshare.Said, done, undo string) error {
	if err := o.make(); err != nil {
		return err
	}
	near, err := o.near(id.ClientID)
	if err != nil {
		return err
	}
	if err := o.Say(o.ctx, said); err != nil {
		return o.failed(err)
	}
	o.printf("%s: %s %s%s", done, id, o.until(said.Until), because(said.Reason))
	if near.own != nil {
		o.printf("  in place of: %s", o.word(near.own))
	}
	for _, s := range near.wider {
		o.printf("  %s is %s; for %s this word speaks", s.Client, o.word(&s), said.Client)
	}
	if other := near.against(said.Action); len(other) > 0 {
		o.printf("  not for %s", o.list(other))
	}
	o.takeBack(undo + " " + id.word)
	return nil
}

// nearWords are operators' words that have to do with those about a client.
// All of them hold.
type nearWords struct {
	own    *fairshare.Said
	wider  []fairshare.Said // on prefixes around it, the longest first
	within []fairshare.Said // on longer ones, sorted
}

func (o *operator) near(id fairshare.ClientID) (near nearWords, err error) {
	if o.said == nil {
		if o.said, _, err = o.Words(o.ctx); err != nil {
			return near, o.failed(err)
		}
	}
	for _, s := range o.said {
		switch p := s.Client.Prefix; {
		case !o.holds(s.Until):
		case s.Client == id:
			near.own = &s
		case !p.IsValid() || !p.Overlaps(id.Prefix):
		case p.Bits() < id.Prefix.Bits():
			near.wider = append(near.wider, s)
		default:
			near.within = append(near.within, s)
		}
	}
	slices.SortFunc(near.wider, func(a, b fairshare.Said) int { return b.Client.Prefix.Bits() - a.Client.Prefix.Bits() })
	slices.SortFunc(near.within, func(a, b fairshare.Said) int { return a.Client.Prefix.Compare(b.Client.Prefix) })
	return near, nil
}

// speaks returns the word that holds for the client.
func (n *nearWords) speaks() *fairshare.Said {
	switch {
	case n.own != nil:
		return n.own
	case len(n.wider) > 0:
		return &n.wider[0]
	}
	return nil
}

// against returns the words within that say the contrary of an action.
func (n *nearWords) against(action fairshare.Action) (other []fairshare.Said) {
	for _, s := range n.within {
		if (s.Action == fairshare.Allow) != (action == fairshare.Allow) {
			other = append(other, s)
		}
	}
	return other
}

// fewWords are told one by one.
const fewWords = 3

// list tells of words within a prefix.
func (o *operator) list(words []fairshare.Said) (text string) {
	for i, s := range words {
		switch {
		case i == fewWords:
			return text + fmt.Sprintf(" and %s more", count(int64(len(words)-i)))
		case i > 0:
			text += ", "
		}
		text += fmt.Sprintf("%s (%s)", s.Client, o.word(&s))
	}
	return text
}

// tellDryRun says that bans do nothing yet where serve is in dry run.
func (o *operator) tellDryRun() {
	if o.settings.DryRun {
		o.printf("serve is in dry run: it lets through even whom operators ban, until the policy enforces")
	}
}

type unbanCmd struct {
	registryFlag
	Client string `arg:"" name:"ADDR|PREFIX|BOT" help:"Whom."`
}

func (c *unbanCmd) Help() string {
	return "Takes an operator's ban back, and ends the rules' bans of the client and of all within a prefix; they are forgotten, so that the next one is a first one. A word of allow stays."
}

func (c *unbanCmd) Run(env *environment) error {
	o, err := c.change(env)
	if err != nil {
		return err
	}
	defer o.close()
	id, err := o.client(c.Client)
	if err != nil {
		return err
	}
	near, err := o.near(id.ClientID)
	if err != nil {
		return err
	}
	did := false
	if own := near.own; own == nil || own.Action != fairshare.Allow {
		was, err := o.Unsay(o.ctx, id.ClientID)
		if err != nil {
			return o.failed(err)
		}
		switch {
		case was == nil:
		case was.Action == fairshare.Allow && o.holds(was.Until): // said by somebody else meanwhile
			if err := o.Say(o.ctx, *was); err != nil {
				return o.failed(err)
			}
		case was.Action != fairshare.Allow:
			did = true
			o.printf("unbanned: %s, %s by an operator", id, o.word(was))
		}
	}
	at, err := o.latestBan(id.ClientID)
	if err != nil {
		return err
	}
	lifted, err := o.Lift(o.ctx, id.ClientID, at)
	if err != nil {
		return o.failed(err)
	}
	o.tellLifted(lifted)
	return o.stillBanned(id, near, did || len(lifted) > 0)
}

// latestBan returns when the latest ban within a client began, at least now:
// a server that was started before its machine's clock was right has begun it
// in times to come.
func (o *operator) latestBan(id fairshare.ClientID) (time.Time, error) {
	at := o.now
	found, err := o.Client(o.ctx, id)
	if err != nil || found == nil {
		return at, o.failed(err)
	}
	for _, b := range found.Bans {
		if (b.Client == id || b.Client.Prefix.Bits() >= id.Prefix.Bits()) && b.Began.After(at) {
			at = b.Began
		}
	}
	return at, nil
}

// fewBans are told one by one.
const fewBans = 10

func (o *operator) tellLifted(lifted []fairshare.Banned) {
	slices.SortStableFunc(lifted, func(a, b fairshare.Banned) int { return b.Until.Compare(a.Until) })
	for i, b := range lifted {
		if i == fewBans {
			o.printf("and %s more", counted(len(lifted)-i, "ban", "bans"))
			break
		}
		if o.holds(b.Until) {
			o.printf("unbanned: %s, banned %s", b.Client, o.ban(&b))
		} else {
			o.printf("forgotten: a former ban of %s %s", b.Client, o.ban(&b))
		}
	}
}

// stillBanned tells by what a client is banned yet, and what would help.
func (o *operator) stillBanned(id named, near nearWords, did bool) error {
	if near.own != nil && near.own.Action == fairshare.Allow {
		if !did {
			return &hintError{fmt.Errorf("%s is not banned: it is %s", id, o.word(near.own)), o.command("unallow "+id.word) + " takes that back"}
		}
		o.printf("it stays %s", o.word(near.own))
		return nil
	}
	by, help, err := o.bannedBy(id.ClientID, near)
	if err != nil {
		return err
	}
	hint := ""
	if help != "" {
		hint = o.command("unban " + help)
		hint += ", or for it alone: " + o.command("allow "+id.word)
	}
	switch {
	case !did && len(by) > 0:
		return &hintError{fmt.Errorf("%s itself is not banned, but %s", id, by[0]), hint}
	case !did:
		if id.err != nil {
			return id.err
		}
		if within := near.against(fairshare.Allow); len(within) > 0 {
			return &hintError{fmt.Errorf("%s itself is not banned, but within it %s", id, o.list(within)), o.command("unban " + o.argument(within[0].Client))}
		}
		return &hintError{fmt.Errorf("%s is not banned", id), o.command("why "+id.word) + " tells what refuses it"}
	}
	for _, sentence := range by {
		o.printf("still banned: %s", sentence)
	}
	if len(by) > 0 {
		o.printf("to let it in: %s", hint)
	}
	if other := near.against(fairshare.Allow); len(other) > 0 {
		o.printf("within it stay: %s", o.list(other))
	}
	return nil
}

// bannedBy tells, in sentences, by what a client is banned that has no word of
// its own, and whose ban would have to end first.
func (o *operator) bannedBy(id fairshare.ClientID, near nearWords) (by []string, help string, err error) {
	if !id.Prefix.IsValid() {
		return nil, "", nil
	}
	if len(near.wider) > 0 {
		s := &near.wider[0]
		if s.Action == fairshare.Allow { // it spares rules' bans too
			return nil, "", nil
		}
		by, help = append(by, fmt.Sprintf("%s is %s", s.Client, o.word(s))), o.argument(s.Client)
	}
	found, err := o.Client(o.ctx, id)
	if err != nil || found == nil {
		return by, help, o.failed(err)
	}
	for i := range found.Bans {
		b := &found.Bans[i]
		if p := b.Client.Prefix; p.IsValid() && !b.DryRun && o.holds(b.Until) && p.Bits() < id.Prefix.Bits() {
			by, help = append(by, fmt.Sprintf("%s is banned %s", b.Client, o.ban(b))), cmp.Or(help, o.argument(b.Client))
		}
	}
	if bot := found.Record.Bot; bot != "" && len(near.wider) == 0 {
		of, err := o.near(fairshare.ClientID{Bot: bot})
		if err != nil {
			return nil, "", err
		}
		if s := of.own; s != nil && s.Action != fairshare.Allow {
			by, help = append(by, fmt.Sprintf("it is taken for %s, which is %s", bot, o.word(s))), cmp.Or(help, bot)
		}
	}
	return by, help, nil
}
