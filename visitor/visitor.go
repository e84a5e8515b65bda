// Package visitor makes and reads the signed cookie by which a client keeps its
// standing when its address changes, or when others share its address. Start
// with [New].
//
// The cookie holds a random identity, when it was issued, and for how long its
// holder counts as known. It also holds tags of the network in which it was issued
// and of the owner of that network. It holds since when its holder has been waiting
// for a turn, and whether the site says that the holder is logged in. It has no personal
// data: the tags are 24 and 16 bits of keyed hashes.
//
// A cookie is never a pass. All requests with copies of one cookie are one client,
// with one set of counters and one share. Each network gets a bounded number of
// cookies.
package visitor

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"fairshare"
	"fairshare/internal/network"
	"fairshare/memlimit"
)

// Name is the name of the cookie. Its last character is the version of the format.
const Name = "fs1"

// Bounds and defaults of [Options].
const (
	MinSecret         = 16  // bytes of a secret
	DefaultPerNetwork = 256 // new cookies an hour
)

const (
	lifetime = 60 * 24 * time.Hour // of a cookie since it was last signed; its Max-Age
	renewal  = 24 * time.Hour      // an older cookie is signed again when there is an opportunity
	waitsFor = time.Minute         // a holder that does not return for so long loses its place
	maxRaise = 10 * time.Minute    // most that a passed step adds to the standing of a holder
	skew     = time.Minute         // the clocks of two machines may differ by this much
	macSize  = 16
	rawSize  = 30 // without the MAC

	encodedSize = ((rawSize+macSize)*8 + 5) / 6 // in base64
)

// Options of [Cookies].
type Options struct {
	// Secrets sign the cookies: the first signs, all verify. Each has at least
	// MinSecret bytes. Machines with the same secrets accept each other's cookies.
	// Without a secret a random one is used, which ends with the process.
	Secrets [][]byte

	// PerNetwork is the number of new cookies that a network (IPv4 /24, IPv6 /48)
	// gets in an hour; 0 means DefaultPerNetwork. A network that was idle for an
	// hour gets them at once.
	PerNetwork int

	// Always sets a cookie with each answer that no cache may store. Otherwise a
	// client gets one only while the site is busy, or near a limit.
	Always bool
}

// Cookies reads and signs the cookies of visitors. It is safe for concurrent use.
type Cookies struct {
	options Options
	keys    atomic.Pointer[[]*key]
	issued  *memlimit.Limiter
}

// A key is one secret, ready for use.
type key struct {
	id     byte // tells keys apart before a signature is verified
	secret []byte
	macs   sync.Pool // of hash.Hash
}

func newKey(secret []byte) *key {
	id := sha256.Sum256(append([]byte("fairshare visitor id "), secret...))
	k := &key{id: id[0], secret: bytes.Clone(secret)}
	k.macs.New = func() any { return &signer{hash: hmac.New(sha256.New, k.secret)} }
	return k
}

// A signer holds what one signature needs.
type signer struct {
	hash hash.Hash
	sum  [sha256.Size]byte
	raw  [rawSize + macSize]byte
}

// sign returns the signature of a text for one purpose. It is valid until the signer is used
// again.
func (s *signer) sign(purpose, text []byte) []byte {
	s.hash.Reset()
	s.hash.Write(purpose)
	s.hash.Write(text)
	return s.hash.Sum(s.sum[:0])
}

// New returns Cookies with the options. It returns an error if a secret is too short.
func New(opts Options) (*Cookies, error) {
	if opts.PerNetwork == 0 {
		opts.PerNetwork = DefaultPerNetwork
	}
	if opts.PerNetwork < 0 {
		return nil, fmt.Errorf("cookies for a network: %d is below 0", opts.PerNetwork)
	}
	c := &Cookies{options: opts}
	if err := c.SetSecrets(opts.Secrets); err != nil {
		return nil, err
	}
	var err error
	c.issued, err = memlimit.New([]fairshare.Limit{{Name: "visitors", Resource: fairshare.Requests,
		N: int64(opts.PerNetwork), Window: time.Hour, Algorithm: fairshare.GCRA}}, memlimit.Options{Memory: 1 << 20})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// SetSecrets replaces the secrets, as in [Options]. Cookies of former secrets become invalid.
func (c *Cookies) SetSecrets(secrets [][]byte) error {
	if len(secrets) == 0 {
		secret := make([]byte, sha256.Size)
		rand.Read(secret) // it never fails
		secrets = [][]byte{secret}
	}
	keys := make([]*key, 0, len(secrets))
	for _, secret := range secrets {
		if len(secret) < MinSecret {
			return errors.New("a secret of visitors' cookies is too short: at least 16 bytes are needed")
		}
		keys = append(keys, newKey(secret))
	}
	c.keys.Store(&keys)
	return nil
}

// Always reports whether visitors get a cookie although the site is not busy.
func (c *Cookies) Always() bool { return c.options.Always }

var encoding = base64.RawURLEncoding.Strict()

// The format of a cookie: rawSize bytes and the first macSize bytes of their
// HMAC-SHA256, in base64url without padding. Numbers are big-endian.
//
//	1 byte   id of the key
//	1 byte   flags
//	8 bytes  identity
//	3 bytes  tag of the network
//	2 bytes  tag of the owner of that network, or of the wider network
//	5 bytes  when it was signed, in 1/64 seconds since 1970
//	5 bytes  as if the holder's first request came then
//	5 bytes  since when the holder has been waiting; 0: it does not wait
const flagMember = 1

// These separate signatures from others with the same secret.
var (
	purpose      = []byte("fairshare visitor 1\x00")
	tagPurpose   = []byte("fairshare network 1\x00")
	widerPurpose = []byte("fairshare owner 1\x00")
)

// stamp returns a time in 1/64 seconds since 1970.
func stamp(t time.Time) uint64 { return uint64(max(t.UnixNano(), 0)) / (1e9 / 64) }

func unstamp(s uint64) time.Time { return time.Unix(0, int64(s*(1e9/64))) }

func putStamp(b []byte, s uint64) {
	b[0] = byte(s >> 32)
	binary.BigEndian.PutUint32(b[1:], uint32(s))
}

func getStamp(b []byte) uint64 { return uint64(b[0])<<32 | uint64(binary.BigEndian.Uint32(b[1:])) }

// A Found is what a cookie says.
type Found struct {
	fairshare.Visitor
	Renew bool // the cookie was signed long ago, or with a former secret: sign it again
}

// Read returns the visitor that the value of a cookie identifies; the zero Found if
// it is not valid. now is the clock of Request.Time, wall the time of day. It
// allocates nothing.
func (c *Cookies) Read(value string, now, wall time.Time) Found {
	if len(value) != encodedSize {
		return Found{}
	}
	var text [encodedSize]byte
	var raw [rawSize + macSize]byte
	if n, err := encoding.Decode(raw[:], text[:copy(text[:], value)]); err != nil || n != len(raw) {
		return Found{}
	}
	keys := *c.keys.Load()
	for i, k := range keys {
		if k.id != raw[0] {
			continue
		}
		s := k.macs.Get().(*signer)
		copy(s.raw[:], raw[:])
		ok := hmac.Equal(s.sign(purpose, s.raw[:rawSize])[:macSize], s.raw[rawSize:])
		k.macs.Put(s)
		if !ok {
			continue
		}
		signed := unstamp(getStamp(raw[15:]))
		age := wall.Sub(signed)
		if age < -skew || age > lifetime {
			return Found{}
		}
		v := fairshare.Visitor{ID: binary.BigEndian.Uint64(raw[2:]),
			Network: uint32(raw[10])<<16 | uint32(raw[11])<<8 | uint32(raw[12]),
			Wider:   binary.BigEndian.Uint16(raw[13:]), Member: raw[1]&flagMember != 0}
		v.Since = now.Add(-max(wall.Sub(unstamp(getStamp(raw[20:]))), 0))
		if waits := getStamp(raw[25:]); waits != 0 && age <= waitsFor {
			v.Waits = now.Add(-max(wall.Sub(unstamp(waits)), 0))
		}
		return Found{v, i > 0 || age > renewal}
	}
	return Found{}
}

// A Change says what a new cookie of a visitor has to hold.
type Change struct {
	Waits  time.Time     // since when it has been waiting for a turn; zero: it does not wait
	Raise  time.Duration // a step was passed: its first request came so long ago, at least; at most 10 minutes
	Member bool          // the site says that the visitor is logged in
}

// Sign returns the value of a cookie for a visitor, and the visitor that it
// identifies. If v is zero, the client has no cookie yet: it gets a new identity,
// unless its network has got too many and change.Member is not set. Then ok is false.
//
// now is the clock of Request.Time, and wall the time of day.
func (c *Cookies) Sign(v fairshare.Visitor, req *fairshare.Request, now, wall time.Time,
	change Change) (value string, signed fairshare.Visitor, ok bool) {
	k := (*c.keys.Load())[0]
	s := k.macs.Get().(*signer)
	defer k.macs.Put(s)
	if v.ID == 0 {
		if v, ok = c.issue(s, req, now); !ok && !change.Member {
			return "", fairshare.Visitor{}, false
		}
	}
	// The site's own cookie says until when a member of Members is logged in.
	v.Waits, v.Member = change.Waits, change.Member && v.Network&memberNetwork == 0
	if raised := now.Add(-min(change.Raise, maxRaise)); change.Raise > 0 && raised.Before(v.Since) {
		v.Since = raised
	}
	raw := s.raw[:rawSize+macSize]
	raw[0], raw[1] = k.id, 0
	if v.Member {
		raw[1] |= flagMember
	}
	binary.BigEndian.PutUint64(raw[2:], v.ID)
	raw[10], raw[11], raw[12] = byte(v.Network>>16), byte(v.Network>>8), byte(v.Network)
	binary.BigEndian.PutUint16(raw[13:], v.Wider)
	putStamp(raw[15:], stamp(wall))
	putStamp(raw[20:], stamp(wall.Add(v.Since.Sub(now))))
	putStamp(raw[25:], 0)
	if !v.Waits.IsZero() {
		putStamp(raw[25:], max(stamp(wall.Add(v.Waits.Sub(now))), 1))
	}
	copy(raw[rawSize:], s.sign(purpose, raw[:rawSize])[:macSize])
	return encoding.EncodeToString(raw), v, true
}

// issue returns a new visitor. ok says that the client's network has not got too many. All clients
// that an unnamed peer names are one network.
func (c *Cookies) issue(s *signer, req *fairshare.Request, now time.Time) (v fairshare.Visitor, ok bool) {
	addr := req.Addr
	if req.Via.IsValid() {
		addr = req.Via
	}
	of := keyOf(network.Of(addr))
	tag := s.sign(tagPurpose, of[:])
	v.Network = uint32(tag[0])<<16 | uint32(tag[1])<<8 | uint32(tag[2])
	wider := keyOf(network.Cut(addr, wideBits4, wideBits6))
	if asn := req.Owner.ASN; asn != 0 && !req.Via.IsValid() && !req.Proxy {
		wider = [17]byte{ownerKey}
		binary.BigEndian.PutUint32(wider[1:], asn)
	}
	v.Wider = max(binary.BigEndian.Uint16(s.sign(widerPurpose, wider[:])), 1)
	var id [8]byte
	for v.ID == 0 {
		rand.Read(id[:]) // it never fails
		v.ID = binary.BigEndian.Uint64(id[:])
	}
	v.Since = now
	tallies := [1]fairshare.Tally{}
	takes := [1]fairshare.Take{{Key: of[:], Cost: 1}}
	err := c.issued.Take(context.Background(), now, takes[:], tallies[:])
	return v, err == nil && !tallies[0].Over
}

// Bits of the wider network of an address whose owner is not known, as in the default of share.Options.
const (
	wideBits4 = 16
	wideBits6 = 32
)

// ownerKey begins the key of an owner. No network has so many bits.
const ownerKey = 0xFF

// keyOf returns the address of a prefix behind its length; zeros for an invalid one.
func keyOf(of netip.Prefix) (key [17]byte) {
	if of.IsValid() {
		a := of.Addr().As16()
		key[0] = byte(of.Bits())
		copy(key[1:], a[:])
	}
	return key
}

// SetCookie returns the value of a Set-Cookie header. secure says that the client's
// connection uses TLS.
func SetCookie(value string, secure bool) string {
	line := fmt.Sprintf("%s=%s; Path=/; Max-Age=%d; HttpOnly; SameSite=Lax", Name, value, int(lifetime.Seconds()))
	if secure {
		line += "; Secure"
	}
	return line
}

// Strip removes visitors' cookies, valid or not, from the Cookie header lines of a
// request: the site does not need them, and they must not count as cookies of the
// site. It changes lines in place, and returns what is left of them. Its time is
// linear in their length.
func Strip(lines []string) []string {
	n := 0
	for _, line := range lines {
		if line = strip(line); line != "" {
			lines[n] = line
			n++
		}
	}
	return lines[:n]
}

func strip(line string) string {
	begin, value, end := next(line, 0)
	if value < 0 {
		return line
	}
	kept, several := strings.Trim(line[:begin], "; \t"), strings.Builder{}
	for from := end; from < len(line); from = end {
		begin, _, end = next(line, from)
		other := strings.Trim(line[from:begin], "; \t")
		switch {
		case other == "":
		case kept == "":
			kept = other
		default:
			if several.Len() == 0 {
				several.WriteString(kept)
			}
			several.WriteString("; ")
			several.WriteString(other)
		}
	}
	if several.Len() > 0 {
		return several.String()
	}
	return kept
}

// Find returns the first value of a visitor's cookie in Cookie header lines, valid or not. Its
// time is linear in their length.
func Find(lines []string) (value string, found bool) {
	for _, line := range lines {
		if _, begin, end := next(line, 0); begin >= 0 {
			return strings.TrimRight(line[begin:end], " \t"), true
		}
	}
	return "", false
}

// next returns where the next visitor's cookie in a line begins, where its value begins, and where
// it ends. A cookie begins at from. Without one it returns the end of the line and -1.
func next(line string, from int) (begin, value, end int) {
	for at := from; ; {
		i := strings.Index(line[at:], Name+"=")
		if i < 0 {
			return len(line), -1, len(line)
		}
		begin, value = at+i, at+i+len(Name)+1
		before := strings.TrimRight(line[from:begin], " \t")
		if before != "" && before[len(before)-1] != ';' { // the end of another name, or a part of a value
			at = value
			continue
		}
		if n := strings.IndexByte(line[value:], ';'); n >= 0 {
			return begin, value, value + n
		}
		return begin, value, len(line)
	}
}
