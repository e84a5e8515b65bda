package operator

import (
	"cmp"
	"fmt"
	"os"
	"os/user"
	"time"

	"fairshare/internal/cli"
	"fairshare/internal/prose"
	"fairshare/registry"
)

// Bounds of the attack mode.
const (
	DefaultAttack = time.Hour
	LongestAttack = 7 * 24 * time.Hour
)

// AttackOn turns the attack mode on for a while.
func AttackOn(env *cli.Environment, state string, length time.Duration, reason string) error {
	o, err := openOrPrepare(env, state)
	if err != nil {
		return err
	}
	defer o.close()
	if err := o.create(); err != nil {
		return err
	}
	length = cmp.Or(length, DefaultAttack)
	mode := registry.AttackMode{Since: o.now, Until: o.now.Add(length), By: userName(), Reason: reason}
	old, err := o.AttackMode(o.Context)
	if err == nil {
		if old.IsOn(o.now) {
			mode.Since = old.Since
		}
		err = o.SetAttackMode(o.Context, mode)
	}
	if err != nil {
		return o.failed(err)
	}
	o.Printf("attack mode: %s", o.attackText(&mode))
	o.Printf("newcomers wait first, and limits with when: busy hold; a running server follows within a second")
	if o.settings.DryRun {
		o.Printf("serve is in dry run: it reports this, and lets every request through")
	}
	o.printUndo("attack off")
	return nil
}

// AttackOff turns the attack mode off.
func AttackOff(env *cli.Environment, state, reason string) error {
	o, err := openToChange(env, state)
	if err != nil {
		return err
	}
	defer o.close()
	old, err := o.AttackMode(o.Context)
	if err != nil {
		return o.failed(err)
	}
	if !old.IsOn(o.now) {
		o.Printf("attack mode: it is off already")
		return nil
	}
	off := registry.AttackMode{Since: o.now, By: userName(), Reason: reason}
	if err := o.SetAttackMode(o.Context, off); err != nil {
		return o.failed(err)
	}
	o.Printf("attack mode: off; it was %s", o.attackText(&old))
	return nil
}

// Attack prints whether the attack mode is on.
func Attack(env *cli.Environment, state string) error {
	o, err := openToRead(env, state)
	if err != nil {
		return err
	}
	defer o.close()
	mode, err := o.AttackMode(o.Context)
	switch {
	case err != nil:
		return o.failed(err)
	case mode.IsOn(o.now):
		o.Printf("attack mode: %s", o.attackText(&mode))
	case mode.Since.IsZero():
		o.Printf("attack mode: off")
	case mode.Until.IsZero():
		o.Printf("attack mode: off since %s%s", prose.Moment(mode.Since), byText(mode.By, mode.Reason))
	default:
		o.Printf("attack mode: off; the last one ended by itself at %s", prose.Moment(mode.Until))
	}
	return nil
}

// printAttack prints that the attack mode is on, if it is.
func (o *operation) printAttack() error {
	mode, err := o.AttackMode(o.Context)
	if err != nil {
		return o.failed(err)
	}
	if mode.IsOn(o.now) {
		o.Printf("attack mode: %s", o.attackText(&mode))
	}
	return nil
}

// attackText describes an attack mode that is on.
func (o *operation) attackText(mode *registry.AttackMode) string {
	return fmt.Sprintf("on since %s, %s%s", prose.Moment(mode.Since), o.untilText(mode.Until),
		byText(mode.By, mode.Reason))
}

// byText returns who decided and why, as the end of a line.
func byText(by, reason string) string {
	if by != "" {
		by = ", by " + prose.Printable(by)
	}
	return by + reasonText(reason)
}

// userName returns the name of the user who runs the command; "" if it is not
// known. With sudo it is the user who called it.
func userName() string {
	name := os.Getenv("SUDO_USER")
	if name == "" {
		if u, err := user.Current(); err == nil {
			name = u.Username
		}
	}
	if CheckText("user", name) != nil {
		return ""
	}
	return name
}
