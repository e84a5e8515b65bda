package fairshare

import (
	"context"
	"time"
)

// A client has standing for a reason that it cannot forge: it has been known for
// a while (see History), an operator has given it a label, or it is a verified
// bot. All other clients are newcomers. An unknown address has no standing.

// hasStanding reports whether the client has standing.
func (d *decision) hasStanding() bool {
	req := d.req
	if req.Via.IsValid() { // its peer may have made its address up
		return false
	}
	if len(req.Override.Labels) > 0 || req.Bot.State == Verified && !req.Bot.UserTriggered {
		return true
	}
	return d.aged && !req.Proxy
}

// newcomersOfCrowd is what each newcomer gets from a network of which many
// clients are banned: enough for a page with all that belongs to it, a few
// times a minute.
var newcomersOfCrowd = Limit{
	Name: "newcomers from a network of banned clients", Resource: Requests, N: 300, Window: time.Minute,
	By: []KeyPart{{Kind: ByAddr}},
}

// lowers reports whether a take that is over need not refuse the client.
func (d *decision) lowers(take int) bool {
	r := &d.guard.rules[d.settled[take].rule]
	return d.takes[take].Limit == r.limit && r.Limit.Newcomers != nil && (r.lowered >= 0 || d.hasStanding())
}

// take takes the gathered limits. Where only limits with Newcomers are over, it
// takes again without these: for newcomers with the limit of their own address
// instead. It returns what loudest does.
func (d *decision) take(ctx context.Context) (enforced, dry int, err error) {
	g := d.guard
	if err := g.limiter.Take(ctx, d.now, d.takes, d.tallies); err != nil {
		return -1, -1, err
	}
	if !d.anyOver() { // most requests end here
		return -1, -1, nil
	}
	enforced, dry = d.loudest()
	for enforced >= 0 && d.lowers(enforced) {
		d.lower(false)
		if len(d.takes) == 0 {
			return -1, -1, nil
		}
		if err := g.limiter.Take(ctx, d.now, d.takes, d.tallies); err != nil {
			return -1, -1, err
		}
		enforced, dry = d.loudest()
	}
	for enforced < 0 && dry >= 0 && d.lowers(dry) {
		d.lower(true)
		if err := d.takeDry(ctx); err != nil {
			return -1, -1, err
		}
		_, dry = d.loudest()
	}
	return enforced, dry, nil
}

// anyOver reports whether some limit is over. It copies no tallies.
func (d *decision) anyOver() bool {
	for i := range d.tallies {
		if d.tallies[i].Over {
			return true
		}
	}
	return false
}

// lower takes the limits with Newcomers that are over, of the enforced or of
// the dry ones, off the takes. A newcomer's get the limit for newcomers
// instead.
func (d *decision) lower(dry bool) {
	standing, n := d.hasStanding(), 0
	var ceilings []int32 // rules whose limit for newcomers a peer has a ceiling of
	for i := range d.takes {
		if d.tallies[i].Over && d.takes[i].DryRun == dry && d.lowers(i) {
			if standing {
				continue
			}
			r := &d.guard.rules[d.settled[i].rule]
			limit := r.lowered
			switch {
			case d.req.unnamed():
				limit = r.loweredCeiling
			case d.req.Via.IsValid():
				ceilings = append(ceilings, d.settled[i].rule)
			}
			key := d.newcomerKey(limit)
			if d.isCovered(limit, key, dry) {
				continue
			}
			if d.settled[i].mark != 0 {
				var counts bool
				if d.settled[i].mark, counts = d.distinctMark(limit, key); !counts {
					continue
				}
			}
			d.takes[i].Limit, d.takes[i].Key = limit, key
		}
		d.takes[n], d.tallies[n], d.settled[n] = d.takes[i], d.tallies[i], d.settled[i]
		if !dry {
			d.tallies[n] = Tally{}
		}
		n++
	}
	d.takes, d.tallies, d.settled = d.takes[:n], d.tallies[:n], d.settled[:n]
	for _, rule := range ceilings {
		d.add(int(rule), d.guard.rules[rule].loweredCeiling, dry)
	}
}

// newcomerKey returns the key of a limit for newcomers: a visitor with a valid cookie has a limit of
// its own, whatever its address and the others behind it.
func (d *decision) newcomerKey(limit int) []byte {
	if d.req.Visitor.ID == 0 || d.guard.isCeiling(limit) {
		return d.key(limit)
	}
	begin := len(d.keys)
	d.keys = d.appendSite(d.req.Visitor.appendKey(d.keys))
	return d.keys[begin:len(d.keys):len(d.keys)]
}

// takeDry takes the dry limits again; the enforced ones are charged already.
func (d *decision) takeDry(ctx context.Context) error {
	var takes []Take
	var places []int
	for i := range d.takes {
		if d.takes[i].DryRun {
			takes, places = append(takes, d.takes[i]), append(places, i)
		}
	}
	tallies := make([]Tally, len(takes))
	if len(takes) > 0 {
		if err := d.guard.limiter.Take(ctx, d.now, takes, tallies); err != nil {
			return err
		}
	}
	for i, place := range places {
		d.tallies[place] = tallies[i]
	}
	return nil
}
