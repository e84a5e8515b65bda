package operator

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairshare"
	"fairshare/internal/cli"
	"fairshare/internal/prose"
	"fairshare/registry"
)

// Client shows everything that is recorded about a client. ADDR@PEER is the
// provisional client that only PEER names, an address or "unix".
func Client(env *cli.Environment, state, client string, json bool) error {
	address, via, err := cutPeer(client)
	if err != nil {
		return err
	}
	o, err := openToRead(env, state, address)
	if err != nil {
		return err
	}
	defer o.close()
	id, err := o.client(address)
	if err != nil {
		return err
	}
	var all, provisional []*registry.Found
	if via.IsValid() {
		id.Via = via
		all, err = o.findProvisional([]fairshare.ClientID{id.ClientID})
	} else if all, err = o.find(id); err == nil {
		provisional, err = o.provisional(id.ClientID)
	}
	switch {
	case err != nil:
		return err
	case len(all) == 0 && id.err != nil:
		return id.err
	case len(all) == 0:
		return cli.Hint(fmt.Errorf("%s is not recorded in %s", id, o.dir), o.command("clients")+
			" lists the recorded clients, and verified bots by their names; serve records new clients within seconds"+
			o.otherFolder())
	}
	if json {
		list := make([]*foundJSON, 0, len(all)+len(provisional))
		for _, f := range append(all[:len(all):len(all)], provisional...) {
			j, err := o.jsonFound(f)
			if err != nil {
				return err
			}
			list = append(list, j)
		}
		list[0].Around, list[0].Provisional = list[1:len(all)], list[len(all):]
		return writeJSON(o.Stdout, list[0])
	}
	for i, f := range append(all[:len(all):len(all)], provisional...) {
		if i > 0 {
			o.Printf("")
		}
		switch at := f.Record.Client; {
		case at == id.ClientID:
			o.printFound(id.String(), f)
		case at.Via.IsValid():
			o.printFound(at.String(), f)
		case at.Prefix.IsSingleIP():
			o.printFound(at.Prefix.String(), f)
		default:
			o.printFound(fmt.Sprintf("%s, which contains %s", at, client), f)
		}
	}
	return nil
}

// cutPeer splits ADDR@PEER. The peer is invalid if the text has none.
func cutPeer(text string) (client string, via netip.Addr, err error) {
	client, peer, found := strings.Cut(text, "@")
	switch id, _ := fairshare.ParseClientID(client); {
	case !found || id.Bot != "":
		return text, netip.Addr{}, nil
	case peer == "unix":
		return client, fairshare.ThroughSocket, nil
	}
	if via, err = netip.ParseAddr(peer); err != nil {
		return "", netip.Addr{}, cli.WrongUsage(cli.Hint(fmt.Errorf("%q is not the address of a peer", peer),
			"write the client and the peer that names it, such as 203.0.113.9@10.0.0.5 or 203.0.113.9@unix"))
	}
	return client, via.Unmap().WithZone(""), nil
}

// mostProvisional bounds how many provisional clients one command shows.
const mostProvisional = 100

// provisional returns what is recorded about the provisional clients that have
// exactly the prefix of a client.
func (o *operation) provisional(id fairshare.ClientID) ([]*registry.Found, error) {
	if !id.Prefix.IsValid() {
		return nil, nil
	}
	clients, err := o.Provisional(o.Context, id, mostProvisional)
	if err != nil {
		return nil, o.failed(err)
	}
	return o.findProvisional(slices.DeleteFunc(clients,
		func(c fairshare.ClientID) bool { return c.Prefix != id.Prefix }))
}

// findProvisional returns what is recorded about provisional clients. What
// operators have set for their addresses does not belong to them.
func (o *operation) findProvisional(clients []fairshare.ClientID) (all []*registry.Found, err error) {
	for _, id := range clients {
		f, err := o.Client(o.Context, id)
		if err != nil {
			return nil, o.failed(err)
		}
		if f == nil || f.Record.FirstSeen.IsZero() {
			continue
		}
		f.Within, f.Labels = nil, nil
		f.Bans = slices.DeleteFunc(f.Bans, func(b fairshare.BanRecord) bool { return b.Client != id })
		slices.SortStableFunc(f.Bans, func(a, b fairshare.BanRecord) int { return b.Until.Compare(a.Until) })
		f.Record.Client = id
		all = append(all, f)
	}
	return all, nil
}

// usualBits are the lengths of prefixes that policies use as one client, for
// IPv4 (true) and IPv6 (false), the longest first.
var usualBits = map[bool][]int{true: {32, 24, 16}, false: {128, 64, 56, 48, 32}}

// find returns what is recorded about a client, then about recorded prefixes
// around it, which another policy may have used as one client.
func (o *operation) find(id named) (all []*registry.Found, err error) {
	ids := []fairshare.ClientID{id.ClientID}
	if id.addr.IsValid() {
		if single := fairshare.PrefixID(netip.PrefixFrom(id.addr, id.addr.BitLen())); single != id.ClientID {
			ids = slices.Insert(ids, 0, single)
		}
	}
	if p := id.Prefix; p.IsValid() {
		for _, bits := range usualBits[p.Addr().Is4()] {
			if bits < p.Bits() {
				ids = append(ids, fairshare.PrefixID(netip.PrefixFrom(p.Addr(), bits)))
			}
		}
	}
	for _, at := range ids {
		f, err := o.Client(o.Context, at)
		if err != nil {
			return nil, o.failed(err)
		}
		if f == nil {
			continue
		}
		// the decisions about wider prefixes are shown with the client
		own := at == id.ClientID || at.Prefix.IsSingleIP() && f.Record.Sticky
		if !own && f.Record.FirstSeen.IsZero() && f.Record.Note == "" {
			continue
		}
		if at != id.ClientID { // the rest is shown already, or belongs to other clients
			f.Within, f.Labels, f.Stories = nil, nil, nil
			f.Bans = slices.DeleteFunc(f.Bans, func(b fairshare.BanRecord) bool { return b.Client != at })
		}
		// in force first
		slices.SortStableFunc(f.Bans, func(a, b fairshare.BanRecord) int { return b.Until.Compare(a.Until) })
		f.Record.Client = at
		all = append(all, f)
	}
	return all, nil
}

// printFound prints everything that is recorded about one client.
func (o *operation) printFound(title string, f *registry.Found) {
	r := &f.Record
	line := func(head, format string, args ...any) {
		o.Printf("  %-9s %s", head, fmt.Sprintf(format, args...))
	}
	o.Printf("%s", title)
	if r.FirstSeen.IsZero() {
		seen := "never"
		if slices.ContainsFunc(f.Stories, func(s registry.Story) bool { return s.Client == r.Client }) {
			seen = "not yet recorded, or forgotten"
		}
		line("seen", "%s", seen)
	} else {
		line("seen", "last %s (%s), first %s (%s)", prose.Moment(r.LastSeen), o.ago(r.LastSeen),
			prose.Moment(r.FirstSeen), o.ago(r.FirstSeen))
		line("requests", "%s, %s refused, %s blocked", prose.Number(r.Spent.Requests), prose.Number(r.Spent.Refused),
			prose.Number(r.Spent.Blocked))
		if r.Spent.DryRun > 0 {
			line("dry run", "%s would have been refused or blocked", prose.Number(r.Spent.DryRun))
		}
		var had []string
		if r.Spent.CPU > 0 {
			had = append(had, spent(r.Spent.CPU)+" of CPU")
		}
		if r.Spent.Time > 0 {
			had = append(had, spent(r.Spent.Time)+" of the site's time")
		}
		if r.Spent.Bytes > 0 {
			had = append(had, prose.Size(r.Spent.Bytes))
		}
		if r.Spent.Errors > 0 {
			had = append(had, prose.Counted(r.Spent.Errors, "answer", "answers")+" with a status from 400 to 499")
		}
		if len(had) > 0 {
			line("used", "%s", strings.Join(had, ", "))
		}
		if r.UserAgent != "" {
			line("agent", "%s", prose.Printable(r.UserAgent))
		}
		if fleet := o.fleetText(r.Fleet); fleet != "" {
			line("fleet", "%s", prose.Printable(fleet))
		}
		if r.Bot != "" {
			line("bot", "%s (%s)", prose.Printable(r.Bot), r.BotState)
		}
	}
	if owners, _ := o.owners(); owners != nil {
		if owner := ownerText(ownerOf(owners, r.Client)); owner != "" {
			line("owner", "%s", owner)
		}
	}
	if f.Inside > 0 {
		more := prose.Counted(f.Inside, "client", "clients")
		if f.Inside >= 1000 {
			more = "1,000 clients or more"
		}
		line("within", "%s", more)
	}
	head := "decision"
	if r.Override != nil {
		line(head, "%s (since %s)", o.overrideText(r.Override), prose.Moment(r.Override.Since))
		head = ""
	}
	for i := range f.Within {
		line(head, "%s is %s", f.Within[i].Client, o.overrideText(&f.Within[i]))
		head = ""
	}
	head = "labels"
	if len(r.Labels) > 0 {
		line(head, "%s", prose.Printable(strings.Join(r.Labels, ", ")))
		head = ""
	}
	for _, l := range f.Labels {
		line(head, "%s, of %s", prose.Printable(l.Name), l.Client)
		head = ""
	}
	if r.Note != "" {
		line("note", "%s", prose.Printable(r.Note))
	}
	if r.Sticky {
		line("sticky", "yes: the record stays until forget deletes it")
	}
	head = "bans"
	for i := range f.Bans {
		b := &f.Bans[i]
		text := o.banText(b)
		if b.Client != r.Client {
			text = b.Client.String() + " " + text
		}
		if !b.DryRun {
			text += fmt.Sprintf("; the next would be the %s", prose.Ordinal(b.Number+1))
		}
		line(head, "%s", text)
		head = ""
	}
	head = "refusals"
	for i := range f.Stories {
		if i == mostStoriesPrinted {
			line(head, "and %s", prose.Counted(len(f.Stories)-i, "older one", "older ones"))
			break
		}
		s := &f.Stories[i]
		of := ""
		if s.Client != r.Client {
			of = s.Client.String() + " by "
		}
		line(head, "%s  %srule %q, %s, last %s", s.ID, of, prose.Printable(s.Rule), prose.Times(s.Count), o.ago(s.Last))
		head = ""
	}
}
