package httpguard

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

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

// A Passage tells of one request that was let through.
type Passage struct {
	Asker
	UserAgent string        // "" when absent
	Time      time.Time     // of arrival
	Took      time.Duration // from when the upstream was asked until it was done; 0 if it was not asked
	CPU       time.Duration // of the upstream; 0 when nobody measures it
	Status    int           // that the upstream answered with; 0 when none did
	Bytes     int64         // of the response body
}

// idAlphabet is Crockford's base32: nothing in it is read for something else.
const idAlphabet = "0123456789abcdefghjkmnpqrstvwxyz"

// reference returns a reference of ten characters. It is the same for all
// refusals of one client by one rule, so that the one that a client was shown
// is found even if not each refusal was recorded.
func (h *handler) reference(req *fairshare.Request, rule *fairshare.Rule) string {
	var space [128]byte
	text := append(space[:0], h.ReferenceKey...)
	if bot := &req.Bot; bot.State == fairshare.Verified && !bot.Steered {
		text = append(text, bot.Name...) // one client, whatever its address
	} else if client := h.guard.Policy().Client(req.Addr); client.IsValid() {
		addr := client.Addr().As16()
		text = append(text, addr[:]...)
	}
	if rule != nil {
		text = append(append(text, 0), rule.Name...)
	}
	hash := sha256.Sum256(text)
	sum := binary.LittleEndian.Uint64(hash[:])
	var id [10]byte
	for i := range id {
		id[i] = idAlphabet[sum&31]
		sum >>= 5
	}
	return string(id[:])
}
