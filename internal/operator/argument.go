package operator

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairshare"
	"fairshare/bots"
	"fairshare/clientaddr"
	"fairshare/internal/cli"
	"fairshare/internal/network"
	"fairshare/policyfile"
)

// A named is a client as an operator names it.
type named struct {
	fairshare.ClientID
	addr     netip.Addr // the argument, if it is an address; otherwise invalid
	argument string     // names the client on the command line
	err      error      // for a bot that is not in the table
}

// String returns the client and, if that is different, the address:
// "2001:db8::/64 (the client of 2001:db8::1)".
func (n named) String() string {
	if n.addr.IsValid() && !n.Prefix.IsSingleIP() {
		return fmt.Sprintf("%s (the client of %s)", n.ClientID, n.addr)
	}
	return n.ClientID.String()
}

// client reads ADDR, PREFIX or BOT. An address means the client that
// has it. A bot that is not in the table may still be in the registry, so the
// result has it, with an error in err.
func (o *operation) client(text string) (named, error) {
	n, err := parseClient(text)
	if err != nil {
		return n, err
	}
	if n.Bot != "" {
		n.err = o.unknownBot(text)
	}
	if n.addr.IsValid() {
		n.ClientID = fairshare.PrefixID(netip.PrefixFrom(n.addr, o.clientBits(n.addr)))
	}
	n.argument = o.argument(n.ClientID)
	return n, nil
}

// CheckClients returns an error for the first of some arguments that do not name a client, or name a
// bot that the server of a state folder does not know. It changes nothing.
func CheckClients(env *cli.Environment, state string, texts []string) error {
	o, err := openOrPrepare(env, state, texts...)
	if err != nil {
		return err
	}
	defer o.close()
	for _, text := range texts {
		if _, err := o.knownClient(text); err != nil {
			return err
		}
	}
	return nil
}

// checkClients returns an error for the first of some arguments that do not name a client. It does
// not look for bots.
func checkClients(texts []string) error {
	for _, text := range texts {
		if _, err := parseClient(text); err != nil {
			return err
		}
	}
	return nil
}

// parseClient reads ADDR, PREFIX or BOT without a registry: it does not look
// for the bot.
func parseClient(text string) (n named, err error) {
	n.ClientID, err = fairshare.ParseClientID(text)
	switch {
	case err != nil:
		return named{}, cli.WrongUsage(cli.Hint(err, addressHint(text)))
	case n.Bot != "" && LooksLikeAddress(text):
		return named{}, cli.WrongUsage(cli.Hint(
			fmt.Errorf("%q is neither an address nor a prefix", text), addressHint(text)))
	case n.Bot == "" && !strings.Contains(text, "/"):
		n.addr = clientaddr.Canonical(n.Prefix.Addr())
		if !n.addr.IsValid() {
			return named{}, cli.WrongUsage(cli.Hint(fmt.Errorf("%s is not the address of a client", text),
				"0.0.0.0/0 or ::/0 are all clients"))
		}
	}
	return n, nil
}

// knownClient is client for commands that add records: a bot must be in the
// table.
func (o *operation) knownClient(text string) (named, error) {
	n, err := o.client(text)
	if err == nil {
		err = n.err
	}
	return n, err
}

// clientBits returns the length of the prefix that is one client.
func (o *operation) clientBits(addr netip.Addr) int {
	bits4, bits6 := network.ClientBits(o.settings.IPv4Prefix, o.settings.IPv6Prefix)
	if addr.Is4() {
		return bits4
	}
	return bits6
}

// LooksLikeAddress reports whether a text is more like an address than like the
// name of a bot.
func LooksLikeAddress(text string) bool {
	return strings.Trim(text, "0123456789abcdefABCDEFxX.:/*-%[]") == "" && strings.ContainsAny(text, ".:/")
}

func addressHint(text string) string {
	if at, err := netip.ParseAddrPort(text); err == nil {
		return "without the port: " + at.Addr().String()
	}
	if p := meantPrefix(text); p.IsValid() {
		return "the prefix of all of them: " + p.String()
	}
	return "give an address (203.0.113.9), a prefix (203.0.113.0/24) or a bot (googlebot)"
}

// meantPrefix returns the shortest prefix that contains all addresses of a text
// such as 203.0.113.* or 203.0.113.0-255. For any other text it is invalid.
func meantPrefix(text string) netip.Prefix {
	if from, to, ok := strings.Cut(text, "-"); ok {
		if !strings.ContainsAny(to, ".:") {
			to = from[:strings.LastIndexByte(from, '.')+1] + to
		}
		first, err := netip.ParseAddr(from)
		last, err2 := netip.ParseAddr(to)
		if err != nil || err2 != nil || first.BitLen() != last.BitLen() || first.Zone()+last.Zone() != "" ||
			last.Less(first) {
			return netip.Prefix{}
		}
		bits := first.BitLen()
		for !netip.PrefixFrom(first, bits).Contains(last) {
			bits--
		}
		return netip.PrefixFrom(first, bits).Masked()
	}
	fixed := strings.TrimRight(text, ".*xX")
	n := strings.Count(fixed, ".") + 1
	addr, err := netip.ParseAddr(fixed + strings.Repeat(".0", max(0, 4-n)))
	if err != nil || !addr.Is4() || n > 3 {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(addr, 8*n)
}

// unknownBot returns an error if the server does not know a bot of that name.
func (o *operation) unknownBot(name string) error {
	name = strings.ToLower(name)
	if slices.Contains(o.settings.Bots, name) || o.settings.Bots == nil && bots.BuiltIn().Bot(name) != nil {
		return nil
	}
	var names []policyfile.BotName
	for _, c := range bots.Categories() {
		if c.Name == name {
			return cli.WrongUsage(cli.Hint(fmt.Errorf("%s is a category of bots, not a bot", name),
				fmt.Sprintf(
					"a rule of the policy can name the category: {name: no %s, match: {bot: %[1]s}, block: true}",
					name)))
		}
	}
	for _, s := range o.settings.Bots {
		names = append(names, policyfile.BotName{Name: s})
	}
	if names == nil {
		for b := range bots.BuiltIn().Bots {
			names = append(names, policyfile.BotName{Name: b.Name, Operator: b.OperatorName()})
		}
	}
	return cli.WrongUsage(cli.Hint(fmt.Errorf("no bot is called %q", name), botHint(name, names)))
}

// botHint returns the hint that a policy file with that name would get.
func botHint(name string, names []policyfile.BotName) string {
	if strings.Contains(name, ".") {
		return fmt.Sprintf(
			"a rule of the policy can match host names: {name: blocked hosts, match: {hostname: %q}, block: true}", name)
	}
	known := policyfile.Options{Bots: func(string) ([]policyfile.BotName, error) { return names, nil }}
	_, err := known.Parse("", fmt.Appendf(nil, "rules: [{name: a, match: {bot: %q}, block: true}]", name))
	for _, fault := range policyfile.Faults(err) {
		if fault.Hint != "" {
			return fault.Hint
		}
	}
	return "fairshare bot 'USER AGENT' shows the names of bots"
}
