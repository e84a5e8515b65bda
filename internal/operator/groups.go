package operator

import (
	"bufio"
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	"fairshare"
	"fairshare/asn"
	"fairshare/internal/network"
	"fairshare/internal/prose"
	"fairshare/registry"
)

// A group is the sum of some clients: of a network, an owner, a fleet or a bot.
type group struct {
	name    string
	asn     uint32             // of an owner
	state   fairshare.BotState // of a bot
	last    time.Time          // the latest request
	clients int64
	spent   registry.Spent
	fleet   *registry.FleetRecord // nil for others
}

// groupKey says to which group a client belongs; name "" means none.
type groupKey struct {
	name  string
	asn   uint32
	state fairshare.BotState
}

// groups lists the sums of clients by network, owner, fleet or bot.
func (o *operation) groups(opts ClientsOptions) error {
	var all []group
	var err error
	switch opts.By {
	case "network":
		all, err = o.sums(&opts, func(c *registry.ClientSum) groupKey {
			if !c.Client.Prefix.IsValid() {
				return groupKey{}
			}
			return groupKey{name: network.Around(c.Client.Prefix).String()}
		})
	case "owner":
		owners, hint := o.owners()
		if owners == nil {
			o.Printf("no owner is known: %s", hint)
			return nil
		}
		all, err = o.sums(&opts, func(c *registry.ClientSum) groupKey {
			owner := ownerOf(owners, c.Client)
			return groupKey{name: cmp.Or(prose.Printable(owner.String()), "(not in the table)"), asn: owner.ASN}
		})
	case "bot":
		all, err = o.sums(&opts, func(c *registry.ClientSum) groupKey {
			return groupKey{name: prose.Printable(c.Bot), state: c.State}
		})
	default:
		all, err = o.fleets(&opts)
	}
	if err != nil {
		return o.failed(err)
	}
	if opts.By != "fleet" || opts.Sort != "requests" { // present fleets come first, unless another order is asked for
		sortGroups(all, opts.Sort)
	}
	more := opts.Top > 0 && len(all) > opts.Top
	if more {
		all = all[:opts.Top]
	}
	if opts.JSON {
		out := bufio.NewWriter(o.Stdout)
		for i := range all {
			if err := writeJSON(out, all[i].json(opts.By)); err != nil {
				return err
			}
		}
		return out.Flush()
	}
	if len(all) == 0 {
		switch {
		case opts.By == "fleet":
			o.Printf("no fleet was found in the last day")
		case opts.By == "bot" || opts.Bot+opts.Label != "" || opts.Sticky:
			o.Printf("no recorded client matches")
		default:
			o.Printf("no client is recorded yet; serve records new clients within seconds")
		}
		return nil
	}
	if err := o.groupTable(all, opts.By); err != nil {
		return err
	}
	if more {
		o.Printf("there are more: --top 100 shows 100, --top 0 shows all")
	}
	return nil
}

// sums adds up the clients that the options select by the keys that of returns.
func (o *operation) sums(opts *ClientsOptions, of func(*registry.ClientSum) groupKey) ([]group, error) {
	index := map[groupKey]int{}
	var all []group
	add := func(c *registry.ClientSum) bool {
		key := of(c)
		if key.name == "" {
			return true
		}
		i, found := index[key]
		if !found {
			i = len(all)
			index[key] = i
			all = append(all, group{name: key.name, asn: key.asn, state: key.state})
		}
		g := &all[i]
		g.clients++
		g.spent.Add(c.Spent)
		if c.Last.After(g.last) {
			g.last = c.Last
		}
		return true
	}
	if opts.Bot+opts.Label == "" && !opts.Sticky {
		return all, o.Sums(o.Context, add)
	}
	records, err := o.Clients(o.Context, registry.Query{Sort: "client", Bot: opts.Bot, Label: opts.Label,
		Sticky: opts.Sticky, Limit: math.MaxInt32})
	for i := range records {
		r := &records[i]
		add(&registry.ClientSum{Client: r.Client, Spent: r.Spent, Fleet: r.Fleet, Bot: r.Bot, State: r.BotState,
			Last: r.LastSeen})
	}
	return all, err
}

// sortGroups sorts groups as clients are sorted: the most or latest first, or by name.
func sortGroups(all []group, by string) {
	slices.SortFunc(all, func(a, b group) int {
		return cmp.Or(cmp.Compare(b.value(by), a.value(by)), cmp.Compare(b.value("requests"), a.value("requests")),
			cmp.Compare(a.name, b.name), cmp.Compare(a.state, b.state))
	})
	if by == "client" {
		slices.SortStableFunc(all, func(a, b group) int { return cmp.Compare(a.name, b.name) })
	}
}

// value returns what a group is sorted by.
func (g *group) value(by string) int64 {
	switch by {
	case "requests":
		if g.fleet != nil {
			return g.fleet.Requests
		}
		return g.spent.Requests
	case "refused":
		return g.spent.Refused + g.spent.Blocked // as the table shows it
	case "blocked":
		return g.spent.Blocked
	case "dry-run":
		return g.spent.DryRun
	case "cpu":
		return int64(g.spent.CPU)
	case "time":
		return int64(g.spent.Time)
	case "bytes":
		return g.spent.Bytes
	case "errors":
		return g.spent.Errors
	case "last-seen":
		return g.last.UnixNano()
	}
	return 0
}

// fleets returns the fleets that a server has published, with what their recorded
// clients have spent. The present ones come first.
func (o *operation) fleets(opts *ClientsOptions) ([]group, error) {
	records, err := o.Fleets(o.Context)
	if err != nil {
		return nil, err
	}
	sums, err := o.sums(opts, func(c *registry.ClientSum) groupKey { return groupKey{name: c.Fleet} })
	if err != nil {
		return nil, err
	}
	filtered := opts.Bot+opts.Label != "" || opts.Sticky
	var all []group
	for i := range records {
		r := &records[i]
		g := group{name: r.Name, fleet: r, last: r.Last}
		for k := range sums {
			if sums[k].name == r.Name {
				g.clients, g.spent = sums[k].clients, sums[k].spent
			}
		}
		if !filtered || g.clients > 0 {
			all = append(all, g)
		}
	}
	return all, nil
}

// groupTable writes groups as a table. For a fleet its evidence follows.
func (o *operation) groupTable(all []group, by string) error {
	head := []string{by, ">clients", ">requests", ">refused", ">errors", ">cpu", ">time", ">bytes", ">last seen"}
	if by == "fleet" {
		head = []string{"fleet", ">addresses", ">networks", ">requests", ">refused", ">time", ">bytes", ">found",
			">last request"}
	}
	t := o.newTable(head...)
	for i := range all {
		g := &all[i]
		name := g.name
		if g.state != fairshare.NoBot {
			name += " (" + g.state.String() + ")"
		}
		row := []string{name, orDash(g.clients), orDash(g.spent.Requests), orDash(g.spent.Refused + g.spent.Blocked),
			orDash(g.spent.Errors), spent(g.spent.CPU), spent(g.spent.Time), size(g.spent.Bytes), o.ago(g.last)}
		if f := g.fleet; f != nil {
			row = []string{f.Name, "~" + prose.Number(f.Addresses), "~" + prose.Number(f.Networks), orDash(f.Requests),
				orDash(f.Refused), spent(g.spent.Time), size(g.spent.Bytes), o.ago(f.Since), o.ago(f.Last)}
		}
		if err := t.row(row...); err != nil {
			return err
		}
	}
	if err := t.flush(); err != nil || by != "fleet" {
		return err
	}
	for i := range all {
		f := all[i].fleet
		state := ""
		if f.Ended {
			state = " (ended)"
		}
		o.Printf("\n%s%s: clients with %s\n  %s", f.Name, state, prose.Printable(f.Shared), prose.Printable(f.Evidence))
	}
	return nil
}

func size(bytes int64) string {
	if bytes == 0 {
		return "–"
	}
	return prose.Size(bytes)
}

type groupJSON struct {
	Network    string     `json:"network,omitempty"`
	ASN        uint32     `json:"asn,omitempty"`
	Owner      string     `json:"owner,omitempty"`
	Fleet      string     `json:"fleet,omitempty"`
	Bot        string     `json:"bot,omitempty"`
	BotState   string     `json:"bot_state,omitempty"`
	Clients    int64      `json:"clients"` // recorded ones
	Requests   int64      `json:"requests"`
	Refused    int64      `json:"refused"`
	Blocked    int64      `json:"blocked"`
	DryRun     int64      `json:"dry_run"`
	Errors     int64      `json:"errors"` // answers of the upstream with a status from 400 to 499
	CPUSeconds float64    `json:"cpu_seconds"`
	Seconds    float64    `json:"time_seconds"`
	Bytes      int64      `json:"bytes"`
	LastSeen   *time.Time `json:"last_seen"`
	Found      *fleetJSON `json:"found,omitempty"`
}

// A fleetJSON is a fleet as the server has found it. Its counts are those of all its
// clients, also of those that are not recorded any more.
type fleetJSON struct {
	Since     *time.Time `json:"since"`
	Last      *time.Time `json:"last"`
	Ended     bool       `json:"ended"`
	Shared    string     `json:"shared"`
	Evidence  string     `json:"evidence"`
	Addresses int64      `json:"addresses"`
	Networks  int64      `json:"networks"`
	Requests  int64      `json:"requests"` // for pages
	Refused   int64      `json:"refused"`  // or blocked
}

func (g *group) json(by string) *groupJSON {
	j := &groupJSON{Clients: g.clients, Requests: g.spent.Requests, Refused: g.spent.Refused, Blocked: g.spent.Blocked,
		DryRun: g.spent.DryRun, Errors: g.spent.Errors, LastSeen: jsonTime(g.last),
		CPUSeconds: g.spent.CPU.Seconds(), Seconds: g.spent.Time.Seconds(), Bytes: g.spent.Bytes}
	switch by {
	case "network":
		j.Network = g.name
	case "owner":
		j.ASN, j.Owner = g.asn, g.name
	case "bot":
		j.Bot, j.BotState = g.name, g.state.String()
	default:
		f := g.fleet
		j.Fleet = g.name
		j.Found = &fleetJSON{Since: jsonTime(f.Since), Last: jsonTime(f.Last), Ended: f.Ended, Shared: f.Shared,
			Evidence: f.Evidence, Addresses: f.Addresses, Networks: f.Networks, Requests: f.Requests,
			Refused: f.Refused}
	}
	return j
}

// owners opens the table of owners of the server's policy; nil, and why, if there is
// none.
func (o *operation) owners() (table *asn.Live, why string) {
	switch {
	case o.ownerTable != nil || o.noOwners != "":
	case len(o.settings.Owners) == 0:
		o.noOwners = "the policy names no table of the owners of addresses (asn: {file: …})"
	default:
		var err error
		files := asn.Files{Tables: o.settings.Owners, Hosting: o.settings.Hosting}
		if o.ownerTable, err = asn.Open(files, nil, func(string) {}); err != nil {
			o.noOwners = err.Error()
		}
	}
	return o.ownerTable, o.noOwners
}

// ownerOf returns the owner of a client's addresses. Nobody is known to own those that
// a peer which is not trusted names, and bots.
func ownerOf(owners *asn.Live, id fairshare.ClientID) fairshare.Owner {
	if owners == nil || !id.Prefix.IsValid() || id.Via != (netip.Addr{}) {
		return fairshare.Owner{}
	}
	return owners.Owner(id.Prefix.Addr())
}

// ownerText returns an owner for a column or line: "AS64500 Example Hosting (hosting)".
func ownerText(owner fairshare.Owner) string {
	if owner.ASN == 0 {
		return ""
	}
	text := prose.Printable(owner.String())
	if owner.Type != "" {
		text += " (" + prose.Printable(owner.Type) + ")"
	}
	return text
}

// fleetText describes the fleet of a client; "" if it belongs to none.
func (o *operation) fleetText(name string) string {
	if name == "" {
		return ""
	}
	records, err := o.Fleets(o.Context)
	if err != nil {
		return name
	}
	for i := range records {
		if f := &records[i]; f.Name == name {
			state := ""
			if f.Ended {
				state = ", ended"
			}
			return fmt.Sprintf("%s (about %s addresses in %s networks%s)", name, prose.Number(f.Addresses),
				prose.Number(f.Networks), state)
		}
	}
	return name
}
