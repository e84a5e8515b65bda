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
	near, err := o.near(id.ClientID)
	if err != nil {
		return err
	}
	did := false
	if own := near.own; own == nil || own.Action != fairshare.Allow {
		was, err := o.RemoveOverride(o.Context, id.ClientID)
		if err != nil {
			return o.failed(err)
		}
		switch {
		case was == nil:
		case was.Action == fairshare.Allow && o.holds(was.Until): // said by somebody else meanwhile
			if err := o.SetOverride(o.Context, *was); err != nil {
				return o.failed(err)
			}
		case was.Action != fairshare.Allow:
			did = true
			o.Printf("unbanned: %s, %s by an operator", id, o.word(was))
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
	o.tellLifted(lifted)
	return o.stillBanned(id, near, did || len(lifted) > 0)
}

// latestBan returns when the latest ban within a client began, at least now:
// a server that was started before its machine's clock was right has begun it
// in times to come.
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

// fewBans are told one by one.
const fewBans = 10

func (o *operation) tellLifted(lifted []fairshare.Banned) {
	slices.SortStableFunc(lifted, func(a, b fairshare.Banned) int { return b.Until.Compare(a.Until) })
	for i, b := range lifted {
		if i == fewBans {
			o.Printf("and %s more", prose.Counted(len(lifted)-i, "ban", "bans"))
			break
		}
		if o.holds(b.Until) {
			o.Printf("unbanned: %s, banned %s", b.Client, o.ban(&b))
		} else {
			o.Printf("forgotten: a former ban of %s %s", b.Client, o.ban(&b))
		}
	}
}

// stillBanned tells by what a client is banned yet, and what would help.
func (o *operation) stillBanned(id named, near nearWords, did bool) error {
	if near.own != nil && near.own.Action == fairshare.Allow {
		if !did {
			return cli.Hint(fmt.Errorf("%s is not banned: it is %s", id, o.word(near.own)),
				o.command("unallow "+id.word)+" removes that")
		}
		o.Printf("it is still %s", o.word(near.own))
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
		return cli.Hint(fmt.Errorf("%s itself is not banned, but %s", id, by[0]), hint)
	case !did:
		if id.err != nil {
			return id.err
		}
		if within := near.against(fairshare.Allow); len(within) > 0 {
			return cli.Hint(fmt.Errorf("%s itself is not banned; within it %s", id, o.list(within)),
				o.command("unban "+o.argument(within[0].Client)))
		}
		return cli.Hint(fmt.Errorf("%s is not banned", id), o.command("why "+id.word)+" shows what refuses it")
	}
	for _, sentence := range by {
		o.Printf("still banned: %s", sentence)
	}
	if len(by) > 0 {
		o.Printf("to let it in: %s", hint)
	}
	if other := near.against(fairshare.Allow); len(other) > 0 {
		o.Printf("still banned within it: %s", o.list(other))
	}
	return nil
}

// bannedBy tells, in sentences, by what a client is banned that has no word of
// its own, and whose ban would have to end first.
func (o *operation) bannedBy(id fairshare.ClientID, near nearWords) (by []string, help string, err error) {
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
	found, err := o.Client(o.Context, id)
	if err != nil || found == nil {
		return by, help, o.failed(err)
	}
	for i := range found.Bans {
		b := &found.Bans[i]
		if p := b.Client.Prefix; p.IsValid() && !b.DryRun && o.holds(b.Until) && p.Bits() < id.Prefix.Bits() {
			by, help = append(by, fmt.Sprintf("%s is banned %s", b.Client, o.ban(b))),
				cmp.Or(help, o.argument(b.Client))
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
