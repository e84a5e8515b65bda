package operator

import (
	"fmt"
	"strings"

	"fairshare/internal/cli"
)

// Unlabel removes a label of a client, or all of its labels if label is "".
func Unlabel(env *cli.Environment, state, client, label string) error {
	o, err := openToChange(env, state, client)
	if err != nil {
		return err
	}
	defer o.close()
	id, err := o.client(client)
	if err != nil {
		return err
	}
	removed, err := o.Unlabel(o.Context, id.ClientID, label)
	if err != nil {
		return o.failed(err)
	}
	if len(removed) == 0 {
		what := "no label"
		if label != "" {
			what = "no label " + label
		}
		return cli.Hint(fmt.Errorf("%s has %s", id, what),
			o.command("client "+id.argument)+" shows its labels; labels of wider prefixes belong to those")
	}
	o.Printf("labels removed from %s: %s", id, strings.Join(removed, ", "))
	return nil
}
