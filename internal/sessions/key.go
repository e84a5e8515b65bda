package sessions

import (
	"net/http"
	"net/netip"
	"strings"

	"fairshare"
	"fairshare/internal/network"
)

// A key identifies the requests that share a session.
type key struct {
	host    string       // the site; cookies ignore ports (RFC 6265 §8.5)
	bot     string       // its name
	network netip.Prefix // the client's network; zero for a verified bot
}

// keyOf returns the key of a request. ok is false for clients that are not bots, and for
// user-triggered bots. These follow links that log people in, and show the result to that person. A
// client that only pretends to be such a bot gets a key.
func keyOf(r *http.Request, client netip.Addr, bot fairshare.Bot) (k key, ok bool) {
	if bot.State == fairshare.NoBot || bot.Name == "" || bot.UserTriggered && bot.State != fairshare.Forged {
		return key{}, false
	}
	k.bot = bot.Name
	if bot.State != fairshare.Verified {
		if k.network = network.Of(client); !k.network.IsValid() {
			return key{}, false
		}
	}
	k.host, ok = site(r)
	return k, ok
}

// longestHost is the longest DNS name, and the longest name that stands for two hosts.
const longestHost = 253

// site returns the name of the site: the host, and the original host that a proxy in front reports.
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
