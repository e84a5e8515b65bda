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
func (x *Exchange) noteSigns(status int, contentType string, setCookie []string) {
	if x.gen.Browser != nil {
		answer := browser.Answer{Status: status, ContentType: contentType, SetCookie: setCookie}
		x.gen.Browser.Answered(&x.signs, answer)
	}
}
