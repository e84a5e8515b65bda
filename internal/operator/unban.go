package operator

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"fairshare"
	"fairshare/internal/cli"
	"fairshare/internal/prose"
)

// Unban removes an operator's ban of a client and ends the rules' bans of it and
// of all clients within.
func Unban(env *cli.Environment, state, client string) error {
	o, err := openToChange(env, state, client)
	if err != nil {
		return err
	}
	defer o.close()
	id, err := o.client(client)
	if err != nil {
		return err
	}
	near, err := o.overridesNear(id.ClientID)
	if err != nil {
		return err
	}
	unbanned := false
	if own := near.own; own == nil || own.Action != fairshare.Allow {
		was, err := o.RemoveOverride(o.Context, id.ClientID)
		if err != nil {
			return o.failed(err)
		}
		switch {
		case was == nil:
		case was.Action == fairshare.Allow && o.inForce(was.Until): // another operator has allowed it in the meantime
			if err := o.SetOverride(o.Context, *was); err != nil {
				return o.failed(err)
			}
		case was.Action != fairshare.Allow:
			unbanned = true
			o.Printf("unbanned: %s, %s by an operator", id, o.overrideText(was))
		}
	}
	at, err := o.latestBan(id.ClientID)
	if err != nil {
		return err
	}
	lifted, err := o.Lift(o.Context, id.ClientID, at)
	if err != nil {
		return o.failed(err)
	}
	o.printLifted(lifted)
	return o.stillBanned(id, near, unbanned || len(lifted) > 0)
}

// latestBan returns when the latest ban within a client began, at least now. If
// the clock of the machine was wrong, a ban may have begun in the future.
func (o *operation) latestBan(id fairshare.ClientID) (time.Time, error) {
	at := o.now
	found, err := o.Client(o.Context, id)
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

// mostBansListed bounds how many bans are listed one by one.
const mostBansListed = 10

// printLifted prints the bans that were ended.
func (o *operation) printLifted(lifted []fairshare.BanRecord) {
	slices.SortStableFunc(lifted, func(a, b fairshare.BanRecord) int { return b.Until.Compare(a.Until) })
	for i, b := range lifted {
		if i == mostBansListed {
			o.Printf("and %s more", prose.Counted(len(lifted)-i, "ban", "bans"))
			break
		}
		if o.inForce(b.Until) {
			o.Printf("unbanned: %s, banned %s", b.Client, o.banText(&b))
		} else {
			o.Printf("forgotten: a former ban of %s %s", b.Client, o.banText(&b))
		}
	}
}

// stillBanned prints the bans that still apply to a client, and how to end them.
// changed says that the command has ended a ban.
func (o *operation) stillBanned(id named, near nearbyOverrides, changed bool) error {
	if near.own != nil && near.own.Action == fairshare.Allow {
		if !changed {
			return cli.Hint(fmt.Errorf("%s is not banned: it is %s", id, o.overrideText(near.own)),
				o.command("unallow "+id.argument)+" removes that")
		}
		o.Printf("it is still %s", o.overrideText(near.own))
		return nil
	}
	by, help, err := o.bannedBy(id.ClientID, near)
	if err != nil {
		return err
	}
	hint := ""
	if help != "" {
		hint = o.command("unban " + help)
		hint += ", or for it alone: " + o.command("allow "+id.argument)
	}
	switch {
	case !changed && len(by) > 0:
		return cli.Hint(fmt.Errorf("%s itself is not banned, but %s", id, by[0]), hint)
	case !changed:
		if id.err != nil {
			return id.err
		}
		if within := near.exceptionsTo(fairshare.Allow); len(within) > 0 {
			return cli.Hint(fmt.Errorf("%s itself is not banned; within it %s", id, o.overrideList(within)),
				o.command("unban "+o.argument(within[0].Client)))
		}
		return cli.Hint(fmt.Errorf("%s is not banned", id), o.command("why "+id.argument)+" shows what refuses it")
	}
	for _, sentence := range by {
		o.Printf("still banned: %s", sentence)
	}
	if len(by) > 0 {
		o.Printf("to let it in: %s", hint)
	}
	if other := near.exceptionsTo(fairshare.Allow); len(other) > 0 {
		o.Printf("still banned within it: %s", o.overrideList(other))
	}
	return nil
}

// bannedBy returns, as sentences, the bans that apply to a client without an
// override of its own, and the argument of unban that ends the first of them.
func (o *operation) bannedBy(id fairshare.ClientID, near nearbyOverrides) (by []string, help string, err error) {
	if !id.Prefix.IsValid() {
		return nil, "", nil
	}
	if len(near.wider) > 0 {
		s := &near.wider[0]
		if s.Action == fairshare.Allow { // it exempts from rules' bans too
			return nil, "", nil
		}
		by, help = append(by, fmt.Sprintf("%s is %s", s.Client, o.overrideText(s))), o.argument(s.Client)
	}
	found, err := o.Client(o.Context, id)
	if err != nil || found == nil {
		return by, help, o.failed(err)
	}
	for i := range found.Bans {
		b := &found.Bans[i]
		if p := b.Client.Prefix; p.IsValid() && !b.DryRun && o.inForce(b.Until) && p.Bits() < id.Prefix.Bits() {
			by, help = append(by, fmt.Sprintf("%s is banned %s", b.Client, o.banText(b))),
				cmp.Or(help, o.argument(b.Client))
		}
	}
	if bot := found.Record.Bot; bot != "" && len(near.wider) == 0 {
		ofBot, err := o.overridesNear(fairshare.ClientID{Bot: bot})
		if err != nil {
			return nil, "", err
		}
		if s := ofBot.own; s != nil && s.Action != fairshare.Allow {
			by = append(by, fmt.Sprintf("it is recognized as %s, which is %s", bot, o.overrideText(s)))
			help = cmp.Or(help, bot)
		}
	}
	return by, help, nil
}
