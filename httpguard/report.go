package httpguard

import (
	"hash/maphash"

	"fairshare"
)

// A Report tells of one refusal or block.
type Report struct {
	Request    *fairshare.Request
	Finding    fairshare.Finding // the rule that spoke, and what it found
	DryRun     bool              // the request was let through; Status and RetryAfter are what it would have got
	Status     int               // of the answer
	RetryAfter int64             // seconds; 0 when the answer names none
	ID         string            // the reference that the client was shown; one for all refusals of a client by a rule
}

// idAlphabet is Crockford's base32: nothing in it is read for something else.
const idAlphabet = "0123456789abcdefghjkmnpqrstvwxyz"

// reference returns a reference of ten characters. It is the same for all
// refusals of one client by one rule as long as the process runs, so that the
// one that a client was shown is found even if not each refusal was recorded.
func (h *handler) reference(req *fairshare.Request, rule *fairshare.Rule) string {
	var hash maphash.Hash
	hash.SetSeed(h.seed)
	if client := h.guard.Policy().Client(req.Addr); client.IsValid() {
		addr := client.Addr().As16()
		hash.Write(addr[:])
	}
	if rule != nil {
		hash.WriteString(rule.Name)
	}
	sum := hash.Sum64()
	var id [10]byte
	for i := range id {
		id[i] = idAlphabet[sum&31]
		sum >>= 5
	}
	return string(id[:])
}
