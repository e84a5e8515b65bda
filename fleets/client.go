package fleets

import (
	"net/netip"

	"fairshare"
)

// The table of clients is one of sets; in a set the client that may be forgotten
// best is replaced.
const (
	clientSets = 1 << 15
	clientWays = 8
)

// A client is what is known of one client: 20 bytes.
type client struct {
	tag   uint32 // of its hash; 0: the entry is free
	last  uint32 // its latest request, in seconds
	entry uint32 // when its present visit began
	refs  [views]ref
	pages uint8 // of its visit, at most 255
	flags clientFlags
}

type clientFlags uint8

const (
	waiting  clientFlags = 1 << iota // the answer to the first page of the visit is not known
	readPage                         // it got a page
	fetches                          // it asked for an asset after the page
	got                              // and got one
	counted                          // fetches is in the counts of its signatures
)

const (
	visitLength = 10 * 60      // seconds; a client without assets begins another visit then
	absence     = 60 * 60      // a client that got no asset is forgotten then
	browserFor  = 24 * 60 * 60 // other clients
)

// find returns the entry of a client; nil if there is none and create is not set.
func (f *Finder) find(hash uint64, now uint32, create bool) *client {
	set := f.clients[hash%clientSets*clientWays:][:clientWays:clientWays]
	tag := uint32(hash>>32) | 1
	for i := range set {
		if set[i].tag == tag {
			set[i].age(now)
			return &set[i]
		}
	}
	if !create {
		return nil
	}
	worst := 0
	for i := range set {
		if set[i].value(now) < set[worst].value(now) {
			worst = i
		}
	}
	set[worst] = client{tag: tag, last: now}
	return &set[worst]
}

// value is the time of the latest request. A client that fetched assets is worth an
// hour more: a flood of clients without assets does not displace it.
func (c *client) value(now uint32) uint64 {
	if c.tag == 0 {
		return 0
	}
	v := uint64(min(c.last, now))
	if c.flags&got != 0 {
		v += absence
	}
	return v + 1
}

// age forgets what is too old.
func (c *client) age(now uint32) {
	if idle := now - c.last; idle >= browserFor || idle >= absence && c.flags&got == 0 {
		*c = client{tag: c.tag, last: now}
	}
}

// visit records a request for a page. The first one begins a visit, in which the
// client fetches assets or does not.
func (f *Finder) visit(c *client, req *fairshare.Request, now uint32) {
	if c.flags&fetches != 0 {
		c.last = now
		return
	}
	if c.pages == 0 || now-c.entry >= visitLength {
		c.entry, c.pages, c.flags = now, 0, waiting
		f.sign(c, req)
	}
	for v := range c.refs {
		if s := f.slot(c.refs[v]); s != nil {
			s.periods[0].requests++
			if c.pages > 0 {
				s.gaps.add(now - c.last)
			}
		}
	}
	if c.pages < 255 {
		c.pages++
	}
	c.last = now
}

// enter counts a client that got the first page of a visit.
func (f *Finder) enter(c *client, hash uint64, addr netip.Addr) {
	net := f.networkHash(addr)
	inFleet := false
	for v := range c.refs {
		s := f.slot(c.refs[v])
		if s == nil {
			continue
		}
		p := &s.periods[0]
		p.clients++
		s.fresh[0].entered++
		p.addresses.add(hash)
		p.networks.add(net)
		if s.fleet != nil { // the wider signatures do not count the clients of a fleet
			inFleet = true
			break
		}
	}
	if !inFleet {
		f.habit.add(1, 0)
	}
	f.countAsset(c)
}

// askAsset records a request for an asset.
func (f *Finder) askAsset(c *client, now uint32) {
	if c.last = now; c.flags&(waiting|readPage) == 0 || c.flags&fetches != 0 || now-c.entry >= visitLength {
		return
	}
	c.flags |= fetches
	f.countAsset(c)
}

// countAsset counts a client that got a page and asked for an asset.
func (f *Finder) countAsset(c *client) {
	if c.flags&(readPage|fetches) == readPage|fetches && c.flags&counted == 0 {
		c.flags |= counted
		f.addAsset(c, 1)
	}
}

// addAsset adds 1 or -1 to the counts of clients that asked for an asset.
func (f *Finder) addAsset(c *client, n int32) {
	for v := range c.refs {
		s := f.slot(c.refs[v])
		if s == nil {
			continue
		}
		p := &s.periods[0]
		p.assets = uint32(max(int32(p.assets)+n, 0))
		if n > 0 {
			s.fresh[0].assets++
		}
		if s.fleet != nil {
			return
		}
	}
	f.habit.add(0, float64(n))
}

// answeredAsset records the answer to a request for an asset. One that does not
// exist, or is a page with another name, counts as not asked for. One that exists
// counts, also if the answer to another one has come before.
func (f *Finder) answeredAsset(c *client, a *Answer, now uint32) {
	switch {
	case c.flags&got != 0:
	case a.Status >= 200 && a.Status < 300 && !isHTML(a.Type), a.Status == 304:
		if f.askAsset(c, now); c.flags&fetches != 0 {
			c.flags |= got
		}
	case c.flags&fetches == 0:
	case a.Status >= 200 && a.Status < 300, a.Status == 404, a.Status == 410:
		if c.flags&counted != 0 {
			f.addAsset(c, -1)
		}
		c.flags &^= fetches | counted
	}
}

// join returns the name of the fleet that a client belongs to, and counts its
// request there.
func (f *Finder) join(c *client, req *fairshare.Request, hash uint64, now uint32) string {
	if len(f.fleets) == 0 || c.flags&fetches != 0 {
		return ""
	}
	for _, r := range c.refs {
		s := f.slot(r)
		if s == nil || s.fleet == nil {
			continue
		}
		fl := s.fleet
		if fl.Requests++; now-c.entry > judgeEvery*freshTicks { // before that it may be a person
			fl.last = now
		}
		fl.addresses.add(hash)
		fl.networks.add(f.networkHash(req.Addr))
		return fl.Name
	}
	return ""
}
