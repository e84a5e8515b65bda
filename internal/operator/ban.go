package operator

import (
	"fmt"
	"time"

	"fairshare"
	"fairshare/bots"
	"fairshare/internal/cli"
	"fairshare/registry"
)

// BanOptions say what to ban.
type BanOptions struct {
	Client string        // an address, a prefix or the name of a bot
	For    time.Duration // 0: permanently
	Reason string        // for operators; may be empty
	Force  bool          // ban even the operator, a proxy in front or everybody
}

// Ban bans a client in the registry of a state folder; "" means the default
// folder.
func Ban(env *cli.Environment, state string, opts BanOptions) error {
	o, err := openOrPrepare(env, state, opts.Client)
	if err != nil {
		return err
	}
	defer o.close()
	id, err := o.knownClient(opts.Client)
	if err != nil {
		return err
	}
	if affected := o.selfWithin(id.ClientID); affected != "" && !opts.Force {
		return cli.Hint(fmt.Errorf("a ban of %s would hit %s", id, affected), "--force overrides this check")
	}
	ban := registry.OverrideRecord{Client: id.ClientID, Action: fairshare.Block, Since: o.now,
		Until: endOf(opts.For, o.now), Reason: opts.Reason}
	if opts.For != 0 {
		ban.Action = fairshare.Refuse
	}
	if err := o.recordOverride(id, ban, "banned", "unban"); err != nil {
		return err
	}
	o.printDryRun()
	if bot := bots.BuiltIn().Bot(id.Bot); bot != nil && opts.For == 0 && bot.Main() == "search" {
		o.Printf(
			"pages that are refused permanently (403) disappear from that search engine; with --for (429) it tries again later")
	}
	return nil
}
