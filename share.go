package fairshare

// BusyUpstream is the rule in verdicts about requests that got no turn at a busy
// upstream. It must not be changed.
var BusyUpstream = &Rule{Name: "share of a busy upstream", Answer: &Answer{Status: 503}}

// AttackMode is the rule in verdicts about newcomers that have to wait first, because operators have
// said that the site is under attack. It must not be changed.
var AttackMode = &Rule{Name: "attack mode", Answer: &Answer{Status: 503}}

// isReserved reports whether a name is one that a policy's rule must not have.
func isReserved(name string) bool {
	return name == OperatorBan.Name || name == BusyUpstream.Name || name == AttackMode.Name
}

// AppendKey appends to b the key under which a limit by part counts a request,
// and returns the result. The key begins with its kind. If the client lacks the
// part, it is counted by its address.
//
// A client that got no page yet does not count as part of its fleet: it may be a person.
//
// All provisional clients of a peer belong to one network. Otherwise a peer would
// get a larger part of the upstream by naming many networks.
func (g *Guard) AppendKey(b []byte, req *Request, part KeyPart) []byte {
	if (part.Kind == ByAddr || part.Kind == ByNetwork) && !req.Via.IsValid() && !g.history.forgotten.any.Load() {
		bits4, bits6 := g.bits4, g.bits6
		if part.Kind == ByNetwork {
			bits4, bits6 = part.PrefixLengths()
		}
		return appendClient(b, part.Kind, req.Addr, req.Via, bits4, bits6)
	}
	d := g.decisions.Get().(*decision)
	d.reset(req, req.Time)
	if part.Kind == ByHeader {
		part.Name = canonicalHeader(part.Name)
	}
	if (part.Kind == ByNetwork || part.Kind == ByASN) && req.Via.IsValid() {
		part.Kind = byPeer
	}
	if part.Kind == ByFleet && req.FleetNew { // nobody's first page waits for a fleet
		part.Kind = ByAddr
	}
	b = d.appendKey(b, []KeyPart{part})
	d.req = nil
	g.decisions.Put(d)
	return b
}
