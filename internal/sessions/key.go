package sessions

import (
	"net/http"
	"net/netip"
	"strings"

	"fairshare"
)

// A key is who shares a session.
type key struct {
	host    string       // the site; cookies do not tell ports apart (RFC 6265 §8.5)
	bot     string       // its name
	network netip.Prefix // where it asks from; zero for a verified bot, wherever it asks from
}

// Networks in which bots that nobody verified share.
const (
	ipv4Network = 24
	ipv6Network = 48
)

// keyOf returns the key of a request. It is not ok for who is no bot, and for
// bots that anybody can steer: they follow links that log people in, and what
// they get is shown to whoever steers them. Who only pretends to be one is a
// bot like others.
func keyOf(r *http.Request, client netip.Addr, bot fairshare.Bot) (k key, ok bool) {
	if bot.State == fairshare.NoBot || bot.Name == "" || bot.Steered && bot.State != fairshare.Forged {
		return key{}, false
	}
	k.bot = bot.Name
	if bot.State != fairshare.Verified {
		client = client.Unmap().WithZone("")
		bits := ipv6Network
		if client.Is4() {
			bits = ipv4Network
		}
		var err error
		if k.network, err = client.Prefix(bits); err != nil || !client.IsValid() {
			return key{}, false
		}
	}
	k.host, ok = site(r)
	return k, ok
}

// longestHost is a DNS name's length at most, and that of what stands for two.
const longestHost = 253

// site returns what tells sites apart: the host, and what a proxy in front says
// that it was before.
func site(r *http.Request) (name string, ok bool) {
	name = hostName(r.Host)
	if before := r.Header["X-Forwarded-Host"]; len(before) > 0 {
		if b := hostName(before[len(before)-1]); b != name {
			name += " " + b
		}
	}
	return name, name != "" && len(name) <= 2*longestHost
}

// hostName returns a host in lower case without port and final dot.
func hostName(host string) string {
	if inside, found := strings.CutPrefix(host, "["); found {
		host, _, _ = strings.Cut(inside, "]")
	} else {
		host, _, _ = strings.Cut(host, ":")
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
