package operator

import (
	"fmt"

	"fairshare"
	"fairshare/internal/cli"
)

// Unallow removes what Allow has set.
func Unallow(env *cli.Environment, state, client string) error {
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
	if own := near.own; own == nil || own.Action != fairshare.Allow {
		err, hint := fmt.Errorf("%s is not allowed", id), o.command("bans")+" lists what operators ban and allow"
		switch {
		case own != nil:
			err, hint = fmt.Errorf("%s is not allowed: it is %s", id, o.overrideText(own)),
				o.command("unban "+id.argument)+" removes that"
		case len(near.wider) > 0 && near.wider[0].Action == fairshare.Allow:
			err = fmt.Errorf("%s itself is not allowed: %s is, %s", id, near.wider[0].Client,
				o.untilText(near.wider[0].Until))
			hint = o.command("unallow "+o.argument(near.wider[0].Client)) + " removes that"
		}
		return cli.Hint(err, hint)
	}
	was, err := o.RemoveOverride(o.Context, id.ClientID)
	if err != nil {
		return o.failed(err)
	}
	if was != nil && was.Action != fairshare.Allow { // another operator has banned it in the meantime
		if err := o.SetOverride(o.Context, *was); err != nil {
			return o.failed(err)
		}
		return fmt.Errorf("%s is no longer allowed: it is %s", id, o.overrideText(was))
	}
	o.Printf("no longer allowed: %s, %s", id, o.overrideText(near.own))
	if len(near.wider) > 0 {
		s := near.wider[0]
		o.Printf("  %s is %s: that applies now", s.Client, o.overrideText(&s))
	}
	return nil
}
