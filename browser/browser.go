// Package browser looks for signs that a client is the browser that its user
// agent claims.
//
// Start with [Watcher]. Static signs are those of one request: [ClaimOf] and
// [Contradiction]. Behavior is what a client's requests do together: it fetches
// the assets of its pages, keeps cookies, and asks whether copies in its cache
// are still good. Only behavior makes a client likely to be a browser, because
// it costs real requests.
package browser

import "fairshare"

// Signs are what the answered requests of a client have shown within the last
// day.
type Signs uint8

const (
	Assets      Signs = 1 << iota // an asset was fetched after a page
	Referer                       // an asset or page was asked for with the address of a page that the client had got
	Cookie                        // a cookie that an answer set came back with its value
	Conditional                   // an answer was 304: the client had a copy
)

// barePages is how many pages without an asset make a client with [Assets] no
// longer likely.
const barePages = 32

// likely reports whether the signs make the client likely to be a browser:
// assets and one other sign, or, without assets, all others. Assets may come from
// another host.
func (s Signs) likely(bare uint64) bool {
	if s&Assets != 0 {
		return s != Assets && bare < barePages
	}
	return s == Referer|Cookie|Conditional
}

// A Conn is what is known of the connection that a request came by.
type Conn struct {
	// Secure says that the client uses https. If it is false, browsers may leave out headers.
	Secure bool
	// HTTP10 says that the request came by HTTP/1.0 on a connection of the client itself. A proxy
	// on the way may speak any version.
	HTTP10 bool
}

// A Sighting is one request as a [Watcher] has seen it on arrival.
type Sighting struct {
	Browser fairshare.Browser
	Kind    fairshare.Kind
	Signs   Signs // of earlier requests of the client

	path    fairshare.Kind // by the extension
	get     bool
	cookie  bool   // a cookie that an answer set came back
	at      uint32 // in ticks
	name    uint64 // of the client, in its set
	set     uint32 // of the client, from 1; 0: no client
	page    uint32 // hash of the request target; 0 for an asset
	referer uint32 // hash of the target that the referer names; 0: of another host, or it shows nothing new
}

// An Answer is what is known of the answer to a request.
type Answer struct {
	Status      int
	ContentType string   // "" when not known: the extension of the path decides
	SetCookie   []string // values of Set-Cookie
}
