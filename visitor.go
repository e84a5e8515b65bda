package fairshare

import (
	"encoding/binary"
	"time"
)

// A Visitor is a client that a signed cookie identifies, whatever its address;
// see package visitor. The zero Visitor is nobody.
//
// All requests with copies of one cookie are one client. A Visitor never has more
// rights than an address of the same age.
type Visitor struct {
	ID      uint64    // random; 0 means nobody
	Network uint32    // keyed hash of the network in which the cookie was issued
	Wider   uint16    // keyed hash of the owner of that network, or of the wider network; 0: not known
	Since   time.Time // as if its first request came then, on the clock of Request.Time
	Waits   time.Time // since when it has been waiting for a turn; zero: it does not wait
	Member  bool      // the site says that the visitor is logged in
}

// appendKey appends the key of the visitor.
func (v *Visitor) appendKey(b []byte) []byte {
	return binary.BigEndian.AppendUint64(append(b, byte(ByVisitor)), v.ID)
}
