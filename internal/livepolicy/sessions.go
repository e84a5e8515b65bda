package livepolicy

import (
	"net/http"
	"net/netip"
	"strings"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/internal/sessions"
	"fairshare/policyfile"
)

// sessionWait is how long a bot's request waits at most for another one that
// may open a session for both.
const sessionWait = time.Second

// SessionsConfig returns which sessions bots share by a policy file.
func SessionsConfig(file *policyfile.File) sessions.Config {
	if SharedCookies(file) == "" {
		return sessions.Config{}
	}
	return sessions.Config{
		Cookies: file.Sessions.Cookies,
		Wait:    sessionWait,
		Identify: func(w http.ResponseWriter) (netip.Addr, fairshare.Bot, bool) {
			client, known := httpguard.ClientOf(w)
			return client.Addr, client.Bot, known && !client.Proxy && !client.Via.IsValid()
		},
	}
}

// SharedCookies names the cookies of sessions that bots share; "" if they share
// none.
func SharedCookies(file *policyfile.File) string {
	if file.Sessions == nil || !file.Sessions.Share {
		return ""
	}
	return strings.Join(file.Sessions.Cookies, ", ")
}
