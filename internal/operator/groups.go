package operator

import (
	"bufio"
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"fairshare"
	"fairshare/asn"
	"fairshare/internal/network"
	"fairshare/internal/prose"
	"fairshare/registry"
)

// A group is the sum of some clients: of a network, an owner or a fleet.
type group struct {
	name    string
	asn     uint32 // of an owner
	clients int64
	spent   registry.Spent
	fleet   *registry.FleetRecord // nil for others
}

// groups lists the sums of clients by network, owner or fleet, the most requests first.
func (o *operation) groups(opts ClientsOptions) error {
	var all []group
	var err error
	switch opts.By {
	case "network":
		all, err = o.sums(func(c *registry.ClientSum) (string, uint32) {
			if !c.Client.Prefix.IsValid() {
				return "", 0
			}
			return network.Around(c.Client.Prefix).String(), 0
		})
	case "owner":
		owners, hint := o.owners()
		if owners == nil {
			o.Printf("no owner is known: %s", hint)
			return nil
		}
		all, err = o.sums(func(c *registry.ClientSum) (string, uint32) {
			owner := ownerOf(owners, c.Client)
			return cmp.Or(prose.Printable(owner.String()), "(not in the table)"), owner.ASN
		})
	default:
		all, err = o.fleets()
	}
	if err != nil {
		return o.failed(err)
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
		if opts.By == "fleet" {
			o.Printf("no fleet was found in the last day")
		} else {
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

// sums adds up clients by the name that of returns, without those whose name is "".
func (o *operation) sums(of func(*registry.ClientSum) (name string, asn uint32)) ([]group, error) {
	index := map[string]int{}
	var all []group
	err := o.Sums(o.Context, func(c *registry.ClientSum) bool {
		name, number := of(c)
		if name == "" {
			return true
		}
		i, found := index[name]
		if !found {
			i = len(all)
			index[name] = i
			all = append(all, group{name: name, asn: number})
		}
		all[i].clients++
		all[i].spent.Add(c.Spent)
		return true
	})
	slices.SortFunc(all, func(a, b group) int {
		return cmp.Or(cmp.Compare(b.spent.Requests, a.spent.Requests), cmp.Compare(a.name, b.name))
	})
	return all, err
}

// fleets returns the fleets that a server has published, with what their recorded
// clients have spent. The present ones come first.
func (o *operation) fleets() ([]group, error) {
	records, err := o.Fleets(o.Context)
	if err != nil {
		return nil, err
	}
	sums, err := o.sums(func(c *registry.ClientSum) (string, uint32) { return c.Fleet, 0 })
	if err != nil {
		return nil, err
	}
	all := make([]group, len(records))
	for i := range records {
		r := &records[i]
		all[i] = group{name: r.Name, fleet: r}
		for k := range sums {
			if sums[k].name == r.Name {
				all[i].clients, all[i].spent = sums[k].clients, sums[k].spent
			}
		}
	}
	return all, nil
}

// groupTable writes groups as a table. For a fleet its evidence follows.
func (o *operation) groupTable(all []group, by string) error {
	head := []string{by, ">clients", ">requests", ">refused", ">cpu", ">time", ">bytes"}
	if by == "fleet" {
		head = []string{"fleet", ">addresses", ">networks", ">requests", ">refused", ">time", ">bytes", ">found",
			">last request"}
	}
	t := o.newTable(head...)
	for i := range all {
		g := &all[i]
		row := []string{g.name, orDash(g.clients), orDash(g.spent.Requests), orDash(g.spent.Refused + g.spent.Blocked),
			spent(g.spent.CPU), spent(g.spent.Time), size(g.spent.Bytes)}
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
	Clients    int64      `json:"clients"` // recorded ones
	Requests   int64      `json:"requests"`
	Refused    int64      `json:"refused"`
	Blocked    int64      `json:"blocked"`
	CPUSeconds float64    `json:"cpu_seconds"`
	Seconds    float64    `json:"time_seconds"`
	Bytes      int64      `json:"bytes"`
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
		CPUSeconds: g.spent.CPU.Seconds(), Seconds: g.spent.Time.Seconds(), Bytes: g.spent.Bytes}
	switch by {
	case "network":
		j.Network = g.name
	case "owner":
		j.ASN, j.Owner = g.asn, g.name
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
