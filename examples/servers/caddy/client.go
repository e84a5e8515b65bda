package caddy

import (
	"errors"
	"net/http"
	"net/netip"

	"fairshare/httpguard"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// client returns the client as Caddy knows it, behind Caddy's trusted_proxies.
func client(r *http.Request) httpguard.Client {
	text, _ := caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string)
	addr, err := netip.ParseAddr(text)
	if err != nil { // Caddy has not found it
		peer, _ := netip.ParseAddrPort(r.RemoteAddr)
		addr = peer.Addr()
	}
	return httpguard.Client{Addr: addr.Unmap().WithZone("")}
}

// errorStatus returns the status with which Caddy's error routes will answer an
// error; 0 for an unknown error.
func errorStatus(err error) int {
	var known caddyhttp.HandlerError
	if errors.As(err, &known) {
		return known.StatusCode
	}
	return 0
}
