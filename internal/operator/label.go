package operator

import (
	"fmt"
	"strings"

	"fairshare/internal/cli"
	"fairshare/registry"
)

const maxLabel = 40

// ParseLabel checks the name of a label and returns it in lower case.
func ParseLabel(s string) (string, error) {
	name := strings.ToLower(s)
	if name == "" || len(name) > maxLabel || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") != "" {
		return "", fmt.Errorf("%q is not a label: a label is 1 to %d letters a-z, digits, . _ or -, such as good-partner", s,
			maxLabel)
	}
	return name, nil
}

// Label gives a client a label, which ParseLabel has returned.
func Label(env *cli.Environment, state, client, label string) error {
	o, err := openOrPrepare(env, state, client)
	if err != nil {
		return err
	}
	defer o.close()
	id, err := o.knownClient(client)
	if err != nil {
		return err
	}
	if err := o.create(); err != nil {
		return err
	}
	if err := o.Label(o.Context, registry.Label{Client: id.ClientID, Name: label}); err != nil {
		return o.failed(err)
	}
	o.Printf("labeled: %s %s", id, label)
	o.printUndo("unlabel " + id.argument + " " + label)
	return nil
}
