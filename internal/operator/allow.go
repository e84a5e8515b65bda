package operator

import (
	"fmt"
	"time"

	"fairshare"
	"fairshare/bots"
	"fairshare/internal/cli"
	"fairshare/internal/prose"
	"fairshare/registry"
)

// AllowOptions say what to allow.
type AllowOptions struct {
	Client string        // an address, a prefix or the name of a bot
	For    time.Duration // 0: permanently
	Reason string        // for operators; may be empty
	Force  bool          // allow even everybody, or a very wide prefix
}

// Allow exempts a client from bans, limits and blocks.
func Allow(env *cli.Environment, state string, opts AllowOptions) error {
	o, err := openOrPrepare(env, state, opts.Client)
	if err != nil {
		return err
	}
	defer o.close()
	id, err := o.knownClient(opts.Client)
	if err != nil {
		return err
	}
	if bot := bots.BuiltIn().Bot(id.Bot); bot != nil &&
		(bot.UserTriggered || len(bot.Ranges)+len(bot.Domains)+len(bot.Signers) == 0) {
		reason := "it cannot be verified"
		if bot.UserTriggered {
			reason = "anybody can have it fetch a page"
		}
		return cli.WrongUsage(cli.Hint(
			fmt.Errorf("%s cannot be allowed by its name: %s", id, reason),
			"give an address or a prefix, such as 203.0.113.9"))
	}
	if width := tooWideToAllow(id.ClientID); width != "" && !opts.Force {
		return cli.Hint(fmt.Errorf("%s is %s: the site would have no protection from them", id, width),
			"--force overrides this check")
	}
	if err := o.recordOverride(id, registry.OverrideRecord{Client: id.ClientID, Action: fairshare.Allow, Since: o.now,
		Until: endOf(opts.For, o.now), Reason: opts.Reason}, "allowed", "unallow"); err != nil {
		return err
	}
	return o.warnOfProvisional(id.ClientID)
}

// warnOfProvisional warns of each recorded client for which an allow has no
// effect, because its address is not proven.
func (o *operation) warnOfProvisional(id fairshare.ClientID) error {
	if !id.Prefix.IsValid() {
		return nil
	}
	clients, err := o.Provisional(o.Context, id, mostProvisional)
	if err != nil {
		return o.failed(err)
	}
	for i, c := range clients {
		if i == mostListed {
			o.Printf("and %s more", prose.Number(len(clients)-i))
			break
		}
		o.Printf("warning: %s is not allowed, because no policy names %s; if that is your proxy, "+
			"name it under clients: trusted_proxies", c, fairshare.PeerName(c.Via))
	}
	return nil
}

// To allow a shorter prefix needs --force: it is probably a mistake.
const (
	widestAllowed4 = 16
	widestAllowed6 = 32 // the prefix that a provider is given
)

// tooWideToAllow returns a description of a prefix that is too wide to allow,
// "" for any other client.
func tooWideToAllow(id fairshare.ClientID) string {
	p, width := id.Prefix, tooWide(id)
	switch {
	case width != "" || !p.IsValid():
		return width
	case p.Addr().Is4() && p.Bits() < widestAllowed4:
		return prose.Number(1<<(32-p.Bits())) + " addresses"
	case p.Addr().Is6() && p.Bits() < widestAllowed6:
		return prose.Number(1<<(48-p.Bits())) + " networks of /48"
	}
	return ""
}
