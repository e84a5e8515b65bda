package clientaddr

import "net/netip"

// Suspects reports whether a peer is a suspected proxy now. The address is as
// [Canonical] gives it.
func (w *Watch) Suspects(peer netip.Addr) bool {
	if !local(peer) {
		return false
	}
	p := w.peers.get(peer)
	return p != nil && p.suspect.Load()
}
