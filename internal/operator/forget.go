package operator

import (
	"fmt"
	"strings"

	"fairshare/internal/cli"
	"fairshare/internal/prose"
	"fairshare/registry"
)

// Forget deletes everything that is recorded about a client, and about all
// clients within a prefix. With force the prefix may be very wide.
func Forget(env *cli.Environment, state, client string, force bool) error {
	o, err := openToChange(env, state, client)
	if err != nil {
		return err
	}
	defer o.close()
	id, err := o.client(client)
	if err != nil {
		return err
	}
	if width := tooWide(id.ClientID); width != "" && !force {
		return cli.Hint(fmt.Errorf("%s is %s, with all decisions, labels and notes about them", id, width),
			"--force overrides this check")
	}
	forgotten, err := o.Forget(o.Context, id.ClientID, o.now)
	if err != nil {
		return o.failed(err)
	}
	const counters = "the counts of limits"
	if forgotten == (registry.Forgotten{}) {
		if id.err != nil {
			return id.err
		}
		o.Printf("forgotten: %s: %s; nothing else about it is recorded in %s", id, counters, o.dir)
		return nil
	}
	var parts []string
	for _, p := range []struct {
		n         int
		one, more string
	}{
		{forgotten.Clients, "client", "clients"},
		{forgotten.Bans, "ban or former ban", "bans and former bans"},
		{forgotten.Stories, "refusal record", "refusal records"},
		{forgotten.Labels, "label", "labels"},
	} {
		if p.n > 0 {
			parts = append(parts, prose.Counted(p.n, p.one, p.more))
		}
	}
	if forgotten.Override {
		parts = append(parts, "operators' decisions")
	}
	parts = append(parts, counters)
	o.Printf("forgotten: %s: %s", id, strings.Join(parts, ", "))
	return nil
}
