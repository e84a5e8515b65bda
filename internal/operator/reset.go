package operator

import (
	"errors"
	"fmt"

	"fairshare/internal/cli"
)

// Reset has limits count from zero for clients, and ends the bans that rules began. With force a prefix
// may be very wide. It goes on after a client that it could not reset.
func Reset(env *cli.Environment, state string, clients []string, force bool) error {
	o, err := openToChange(env, state, clients...)
	if err != nil {
		return err
	}
	defer o.close()
	var failed error
	for _, client := range clients {
		failed = errors.Join(failed, o.reset(client, force))
	}
	return failed
}

func (o *operation) reset(client string, force bool) error {
	id, err := o.knownClient(client)
	if err != nil {
		return err
	}
	if width := tooWide(id.ClientID); width != "" && !force {
		return cli.Hint(fmt.Errorf("%s is %s", id, width), "--force overrides this check")
	}
	at, err := o.latestBan(id.ClientID)
	if err != nil {
		return err
	}
	lifted, err := o.Registry.Reset(o.Context, id.ClientID, at)
	if err != nil {
		return o.failed(err)
	}
	o.Printf("reset: %s: limits count from zero; counts that it shares with others stay", id)
	o.printLifted(lifted)
	near, err := o.overridesNear(id.ClientID)
	if err != nil {
		return err
	}
	by, help, err := o.bannedBy(id.ClientID, near)
	if own := near.own; err == nil && own != nil && own.Action != 0 {
		o.Printf("it is still %s", o.overrideText(own))
	}
	for _, sentence := range by {
		o.Printf("still banned: %s; %s ends that", sentence, o.command("unban "+help))
	}
	return err
}
