package fairshare

// BusyUpstream is the rule that refusals name which a busy upstream has no turn
// for. It must not be changed.
var BusyUpstream = &Rule{Name: "share of a busy upstream", Answer: &Answer{Status: 503}}

// isReserved reports whether no rule of a policy may have a name.
func isReserved(name string) bool { return name == OperatorBan.Name || name == BusyUpstream.Name }

// AppendKey appends the key of a request under one part, as a limit counts by
// it: tagged with its kind, and by the address if the client lacks the part.
// All provisional clients of a peer are of one network, so that a peer gets no
// more of what networks share for naming many of them.
func (g *Guard) AppendKey(b []byte, req *Request, part KeyPart) []byte {
	d := g.decisions.Get().(*decision)
	d.reset(req, req.Time)
	if part.Kind == ByHeader {
		part.Name = canonicalHeader(part.Name)
	}
	if (part.Kind == ByNetwork || part.Kind == ByASN) && req.Via.IsValid() {
		part.Kind = byPeer
	}
	b = d.appendKey(b, []KeyPart{part})
	d.req = nil
	g.decisions.Put(d)
	return b
}
