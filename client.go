package fairshare

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"fairshare/internal/network"
)

// A ClientID identifies a client for bans and in a registry: by its addresses, or
// as a verified bot. Exactly one of Prefix and Bot is set. The zero ClientID
// identifies no client.
type ClientID struct {
	Prefix netip.Prefix // masked; its addresses are unmapped and have no zone
	Bot    string       // its name, in lower case
	Via    netip.Addr   // valid: the addresses are provisional, as in Request.Via
}

// PrefixID returns the ID of the client with the addresses of a prefix. It masks
// and unmaps them.
func PrefixID(p netip.Prefix) ClientID {
	return ClientID{Prefix: network.Canonical(p)}
}

// maxBotName bounds the name of a bot, in bytes.
const maxBotName = 64

// ParseClientID parses an address, a prefix such as "192.0.2.0/24", or the name of a
// bot, of at most 64 bytes.
func ParseClientID(s string) (ClientID, error) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return PrefixID(p), nil
	}
	if a, err := netip.ParseAddr(s); err == nil {
		return ClientID{Prefix: network.Single(a)}, nil
	}
	name := strings.ToLower(s)
	switch {
	case s == "":
		return ClientID{}, errors.New("no client is named")
	case strings.Trim(s, "0123456789./") == "" || strings.Contains(s, ":") || strings.Contains(s, "/"):
		return ClientID{}, fmt.Errorf("%q is neither an address nor a prefix", s)
	case len(name) > maxBotName || strings.ContainsFunc(name,
		func(r rune) bool { return r <= ' ' && r != ' ' || r > '~' }):
		return ClientID{}, fmt.Errorf("%q is not an address, a prefix or the name of a bot", s)
	}
	return ClientID{Bot: name}, nil
}

// IsZero reports whether id is the zero ClientID.
func (id ClientID) IsZero() bool { return id == ClientID{} }

// String returns the ID in the form that [ParseClientID] accepts: "203.0.113.9",
// "2001:db8::/64", "googlebot"; "" for the zero ClientID. The form of a provisional
// client is for people only: "203.0.113.9 (provisional, through 172.17.0.1)".
func (id ClientID) String() string {
	if id.Via.IsValid() {
		return ClientID{Prefix: id.Prefix}.String() + " (provisional, through " + PeerName(id.Via) + ")"
	}
	switch p := id.Prefix; {
	case id.Bot != "":
		return id.Bot
	case !p.IsValid():
		return ""
	case p.IsSingleIP():
		return p.Addr().String()
	}
	return id.Prefix.String()
}

// PeerName returns the text for a Request.Via in messages to people.
func PeerName(via netip.Addr) string {
	if via == ThroughSocket {
		return "the Unix socket"
	}
	return via.String()
}
