package visitor

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"fairshare"
)

// Members reads a cookie by which the site says that a client is logged in. Its value is
//
//	ID:EXPIRES.SIGNATURE
//
// ID is any text without a dot or a colon, EXPIRES a Unix time in seconds, and
// SIGNATURE the HMAC-SHA256 of "ID:EXPIRES" in hexadecimal or base64url. The value may
// have percent escapes, as setcookie of PHP sends it. Members is safe for concurrent use.
type Members struct {
	name string
	macs sync.Pool // of *signer
}

// maxMember is the longest value of a member's cookie, in bytes without escapes.
const maxMember = 256

// NewMembers returns Members for a cookie name, signed with a secret of at least
// MinSecret bytes.
func NewMembers(name string, secret []byte) (*Members, error) {
	switch {
	case name == "":
		return nil, errors.New("members: the cookie has no name")
	case name == Name:
		return nil, fmt.Errorf("members: the cookie %s is fairshare's own", Name)
	case len(secret) < MinSecret:
		return nil, fmt.Errorf("members: the secret is too short: at least %d bytes are needed", MinSecret)
	}
	secret = append([]byte(nil), secret...)
	m := &Members{name: name}
	m.macs.New = func() any { return &signer{hash: hmac.New(sha256.New, secret)} }
	return m, nil
}

// memberNetwork marks tags that are not those of networks: each member is a
// network of its own.
const memberNetwork = 1 << 31

// Read returns the member that the Cookie header lines of a request identify; the
// zero Visitor if there is no valid cookie. If the cookie was sent with several
// values, nobody is identified. now is the clock of Request.Time, wall the time of
// day.
func (m *Members) Read(lines []string, now, wall time.Time) (v fairshare.Visitor) {
	value := ""
	for _, line := range lines {
		for line != "" {
			var pair string
			pair, line, _ = strings.Cut(line, ";")
			name, sent, ok := strings.Cut(strings.Trim(pair, " \t"), "=")
			if !ok || name != m.name {
				continue
			}
			if value != "" && sent != value {
				return fairshare.Visitor{}
			}
			value = sent
		}
	}
	v = m.read(value, now, wall)
	if v.ID == 0 && len(value) <= 3*maxMember && strings.IndexByte(value, '%') >= 0 {
		if unescaped, err := url.PathUnescape(value); err == nil {
			v = m.read(unescaped, now, wall)
		}
	}
	return v
}

// read returns the member that the value of a cookie identifies.
func (m *Members) read(value string, now, wall time.Time) (v fairshare.Visitor) {
	if value == "" || len(value) > maxMember {
		return fairshare.Visitor{}
	}
	text, signature, ok := strings.Cut(value, ".")
	if !ok {
		return fairshare.Visitor{}
	}
	var given [sha256.Size]byte
	if !decodeSignature(&given, signature) {
		return fairshare.Visitor{}
	}
	id, expires, ok := strings.Cut(text, ":")
	until, err := strconv.ParseInt(expires, 10, 64)
	if !ok || err != nil || id == "" || wall.Unix() >= until {
		return fairshare.Visitor{}
	}
	s := m.macs.Get().(*signer)
	defer m.macs.Put(s)
	if !hmac.Equal(s.sign(nil, []byte(text)), given[:]) {
		return fairshare.Visitor{}
	}
	hash := s.sign(memberPurpose, []byte(id))
	v.ID = max(binary.BigEndian.Uint64(hash), 1)
	v.Network = memberNetwork | binary.BigEndian.Uint32(hash[8:])
	v.Since, v.Member = now, true
	return v
}

var memberPurpose = []byte("fairshare member 1\x00")

// decodeSignature decodes a signature in hexadecimal or base64url, with or without padding.
func decodeSignature(to *[sha256.Size]byte, s string) bool {
	if len(s) == hex.EncodedLen(len(to)) {
		_, err := hex.Decode(to[:], []byte(s))
		return err == nil
	}
	s = strings.TrimRight(s, "=")
	if len(s) != base64.RawURLEncoding.EncodedLen(len(to)) {
		return false
	}
	_, err := base64.RawURLEncoding.Strict().Decode(to[:], []byte(s))
	return err == nil
}
