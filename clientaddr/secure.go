package clientaddr

import "strings"

// Secure reports whether a trusted proxy says that it has received the client's
// request by TLS. It says so in X-Forwarded-Proto, or in Forwarded if that is the
// header with the client's address. peer and header are as for Resolve.
func (r *Resolver) Secure(peer string, header Header) bool {
	if header == nil || !r.TrustsPeer(peer) {
		return false
	}
	if r.header == "Forwarded" {
		_, proto := r.Forwarded(header.Values("Forwarded"))
		return strings.EqualFold(proto, "https")
	}
	values := header.Values("X-Forwarded-Proto")
	if len(values) == 0 {
		return false
	}
	last := values[len(values)-1]
	return strings.EqualFold(strings.TrimSpace(last[strings.LastIndexByte(last, ',')+1:]), "https")
}
