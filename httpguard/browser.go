package httpguard

import (
	"net/http"

	"fairshare"
	"fairshare/browser"
)

// lookForSigns fills in what shows that the client is a browser, or pretends to be one.
func (g *generation) lookForSigns(vis *visit, r *http.Request) {
	if g.Browser == nil {
		vis.req.Browser = fairshare.NotBrowser
		return
	}
	vis.signs = g.Browser.Look(&vis.req, browser.Conn{
		Secure: g.isSecure(r),
		HTTP10: r.TLS != nil && r.ProtoMajor == 1 && r.ProtoMinor == 0,
	})
	vis.req.Browser = vis.signs.Browser
}

// noteSigns notes what the site's answer shows of the client.
func (x *Exchange) noteSigns(status int, header http.Header) {
	if x.gen.Browser == nil {
		return
	}
	answer := browser.Answer{Status: status, SetCookie: header["Set-Cookie"]}
	if kind := header["Content-Type"]; len(kind) > 0 {
		answer.ContentType = kind[0]
	}
	x.gen.Browser.Answered(&x.signs, answer)
}
