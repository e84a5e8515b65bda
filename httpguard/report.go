package httpguard

import (
	"crypto/rand"
	"encoding/binary"

	"fairshare"
)

// A Report tells of one refusal or block.
type Report struct {
	Request    *fairshare.Request
	Finding    fairshare.Finding // the rule that spoke, and what it found
	DryRun     bool              // the request was let through; Status and RetryAfter are what it would have got
	Status     int               // of the answer
	RetryAfter int64             // seconds; 0 when the answer names none
	ID         string            // the reference that the client was shown
}

// idAlphabet is Crockford's base32: nothing in it is read for something else.
const idAlphabet = "0123456789abcdefghjkmnpqrstvwxyz"

// newID returns a reference of ten characters: 50 random bits.
func (vis *visit) newID() string {
	if vis.left < 8 {
		rand.Read(vis.random[:])
		vis.left = len(vis.random)
	}
	bits := binary.NativeEndian.Uint64(vis.random[len(vis.random)-vis.left:])
	vis.left -= 8
	var id [10]byte
	for i := range id {
		id[i] = idAlphabet[bits&31]
		bits >>= 5
	}
	return string(id[:])
}
