package main

import (
	"fmt"

	"fairshare"
	"fairshare/bots"
)

type allowCmd struct {
	registryFlag
	For    period `placeholder:"TIME" help:"How long, as 7d; without it for ever."`
	Reason string `placeholder:"TEXT" help:"Why: for operators, no client is told."`
	Force  bool   `help:"Even if that lets in everybody, or more than a /16 (IPv6: a /32)."`
	Client string `arg:"" name:"ADDR|PREFIX|BOT" help:"Whom: an address, a prefix, or a bot (where its addresses prove that it is one)."`
}

func (c *allowCmd) Help() string {
	return "It is spared bans, limits and blocks, those of prefixes around it too. A running server follows within a second."
}

// Validate is asked by kong.
func (c *allowCmd) Validate() error { return ownText("--reason", c.Reason) }

func (c *allowCmd) Run(env *environment) error {
	o, err := c.say(env)
	if err != nil {
		return err
	}
	defer o.close()
	id, err := o.knownClient(c.Client)
	if err != nil {
		return err
	}
	if bot := bots.BuiltIn().Bot(id.Bot); bot != nil && (bot.Steered || len(bot.Ranges)+len(bot.Domains) == 0) {
		why := "its addresses are not known"
		if bot.Steered {
			why = "anybody can have it fetch a page"
		}
		return &hintError{fmt.Errorf("%s cannot be allowed by its name: %s", id, why), "an address or a prefix is needed, as 203.0.113.9"}
	}
	if whom := tooWideToAllow(id.ClientID); whom != "" && !c.Force {
		return &hintError{fmt.Errorf("%s is %s: nothing would be protected from them", id, whom), "--force does it all the same"}
	}
	return o.sayIt(id, fairshare.Said{Client: id.ClientID, Action: fairshare.Allow, Since: o.now, Until: c.For.until(o.now), Reason: c.Reason}, "allowed", "unallow")
}

// Prefixes that are shorter let in more than a client: nobody means that by
// mistake.
const (
	widestAllowed4 = 16
	widestAllowed6 = 32 // what a provider is given
)

// tooWideToAllow says how wide a prefix is; "" when it is not too wide.
func tooWideToAllow(id fairshare.ClientID) string {
	p, whom := id.Prefix, tooWide(id)
	switch {
	case whom != "" || !p.IsValid():
		return whom
	case p.Addr().Is4() && p.Bits() < widestAllowed4:
		return count(1<<(32-p.Bits())) + " addresses"
	case p.Addr().Is6() && p.Bits() < widestAllowed6:
		return count(1<<(48-p.Bits())) + " networks of /48"
	}
	return ""
}

type unallowCmd struct {
	registryFlag
	Client string `arg:"" name:"ADDR|PREFIX|BOT" help:"Whom."`
}

func (c *unallowCmd) Help() string {
	return "The rules hold for it again. A ban stays: unban takes that back."
}

func (c *unallowCmd) Run(env *environment) error {
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
	if own := near.own; own == nil || own.Action != fairshare.Allow {
		err, hint := fmt.Errorf("%s is not allowed", id), o.command("bans")+" lists whom operators ban and allow"
		switch {
		case own != nil:
			err, hint = fmt.Errorf("%s is not allowed: it is %s", id, o.word(own)), o.command("unban "+id.word)+" takes that back"
		case len(near.wider) > 0 && near.wider[0].Action == fairshare.Allow:
			err = fmt.Errorf("%s itself is not allowed: %s is, %s", id, near.wider[0].Client, o.until(near.wider[0].Until))
			hint = o.command("unallow "+o.argument(near.wider[0].Client)) + " takes that back"
		}
		return &hintError{err, hint}
	}
	was, err := o.Unsay(o.ctx, id.ClientID)
	if err != nil {
		return o.failed(err)
	}
	if was != nil && was.Action != fairshare.Allow { // said by somebody else meanwhile
		if err := o.Say(o.ctx, *was); err != nil {
			return o.failed(err)
		}
		return fmt.Errorf("%s is not allowed any more: it is %s", id, o.word(was))
	}
	o.printf("not allowed any more: %s, %s", id, o.word(near.own))
	if len(near.wider) > 0 {
		s := near.wider[0]
		o.printf("  %s is %s: that speaks now", s.Client, o.word(&s))
	}
	return nil
}
