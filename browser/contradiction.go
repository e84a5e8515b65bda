package browser

import (
	"net/netip"
	"strings"

	"fairshare"
)

// Contradiction returns why a request does not fit the browser that its user agent claims; "" if
// nothing speaks against it. No browser, web view or browser with changed settings that we know of sends such a
// request, only programs that copy a part of a browser's headers.
//
// The following is not a contradiction, since real browsers do it:
//
//   - Sec-Fetch fields or client hints are missing. Old browsers have none, no browser sends them
//     over http (Fetch Metadata §3, UA Client Hints §4.1), and forks and web views with a user agent
//     of their own leave out client hints.
//   - The user agent is that of another engine. Firefox sends the user agent of Chrome to some sites,
//     and extensions do so to all.
//   - There is no referer, cookie, Accept-Language or "br", or HTTP/1.1 is used. Privacy settings and
//     proxies cause this.
//   - No asset is fetched. They may come from another host or from the cache, and text browsers
//     fetch none.
func Contradiction(req *fairshare.Request, claim Claim, conn Conn) string {
	return contradiction(req, claim, conn, req.Kind())
}

// contradiction is Contradiction for a request whose kind is known.
func contradiction(req *fairshare.Request, claim Claim, conn Conn, kind fairshare.Kind) string {
	h := req.Header
	if h == nil {
		return ""
	}
	if kind == fairshare.KindAsset && first(h, "Sec-Fetch-Mode") == "navigate" {
		switch first(h, "Sec-Fetch-Dest") {
		case "audio", "font", "image", "manifest", "script", "style", "track", "video", "worker":
			return "Sec-Fetch-Mode says navigation, Sec-Fetch-Dest says a part of a page"
		}
	}
	if claim.Apple && first(h, "Sec-Ch-Ua-Mobile") == "?0" {
		return "an iPhone or iPad has no client hints, and these are of a computer"
	}
	if !conn.Secure {
		return ""
	}
	modern := claim.Major >= 100 && !claim.App && (claim.Family == Chromium || claim.Family == Firefox)
	if conn.HTTP10 && modern && direct(h, req.Addr) {
		return "HTTP/1.0 over TLS, and no proxy on the way"
	}
	if modern && claim.Family == Chromium && kind == fairshare.KindPage && req.Method == "GET" &&
		first(h, "Sec-Fetch-Mode") == "" && first(h, "Sec-Fetch-Dest") == "" && first(h, "Sec-Fetch-Site") == "" &&
		strings.HasPrefix(first(h, "Accept"), "text/html") && first(h, "Sec-Ch-Ua") == "" &&
		(first(h, "Accept-Language") == "" || !strings.Contains(first(h, "Accept-Encoding"), "br")) {
		return "Sec-Fetch fields, client hints, and Accept-Language or br are all missing"
	}
	return ""
}

// direct reports whether nothing shows a proxy between the client and this server.
func direct(h fairshare.Header, client netip.Addr) bool {
	for _, name := range [...]string{"Via", "X-Forwarded-For", "Forwarded", "X-Real-Ip"} {
		if first(h, name) != "" {
			return false
		}
	}
	return client.IsValid() && !client.IsPrivate() && !client.IsLoopback() && !client.IsLinkLocalUnicast()
}
