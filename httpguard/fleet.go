package httpguard

import (
	"time"

	"fairshare/fleets"
)

// noteFleet tells Options.Fleets the site's answer.
func (x *Exchange) noteFleet(now time.Time, status int, contentType string) {
	c := &x.completion
	if x.gen.Fleets == nil || c.Proxy || c.Via.IsValid() {
		return
	}
	answer := fleets.Answer{Addr: c.Addr, Method: c.Method, Path: c.Path, Status: status, Type: contentType}
	x.gen.Fleets.Answered(&answer, now)
}
