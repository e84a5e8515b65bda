package httpguard

import (
	"net/http"

	"fairshare/fleets"
)

// noteFleet tells Options.Fleets the site's answer.
func (x *Exchange) noteFleet(status int, header http.Header) {
	c := &x.completion
	if x.gen.Fleets == nil || c.Proxy || c.Via.IsValid() {
		return
	}
	answer := fleets.Answer{Addr: c.Addr, Method: c.Method, Path: c.Path, Status: status}
	if kind := header["Content-Type"]; len(kind) > 0 {
		answer.Type = kind[0]
	}
	x.gen.Fleets.Answered(&answer, x.gen.Now())
}
