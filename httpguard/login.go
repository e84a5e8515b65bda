package httpguard

import (
	"net/http"
	"time"

	"fairshare"
	"fairshare/logins"
	"fairshare/visitor"
)

// noteLogin tells the answer to an attempt to log in as soon as its header is known, if
// its length says nothing. A client that has logged in gets a visitor's cookie: it stays
// known when its address changes, or when others guess from the same address.
func (x *Exchange) noteLogin(status int, header http.Header) {
	if x.login == nil || status < 300 && len(header["Set-Cookie"]) == 0 {
		return
	}
	answer := logins.Answer{Time: x.gen.Now(), Status: status, Live: true, SetCookie: header["Set-Cookie"]}
	if to := header["Location"]; len(to) > 0 {
		answer.Location = to[0]
	}
	if status < 300 && !x.login.IsProved(&answer) {
		return // the length tells
	}
	if x.login.Answered(&answer) != logins.Succeeded || x.completion.HTTP.Method != http.MethodPost ||
		x.gen.Visitors == nil || x.gen.guard.Policy().DryRun {
		return
	}
	now := x.gen.Now()
	found := x.gen.Visitors.Read(x.visitorCookie, now, x.gen.wall(now))
	if found.ID != 0 {
		return
	}
	req := fairshare.Request{Addr: x.completion.Addr, Via: x.completion.Via, Proxy: x.completion.Proxy,
		Owner: x.completion.Owner}
	if signed, ok := x.gen.signVisitor(header, x.completion.HTTP, &req, fairshare.Visitor{}, visitor.Change{}); ok {
		x.gen.Logins.RememberVisitor(&signed)
	}
}

// endLogin tells the rest of the answer to an attempt to log in, and reports whether it
// failed.
func (x *Exchange) endLogin(now time.Time) bool {
	if x.login == nil {
		return false
	}
	return x.login.Answered(&logins.Answer{Time: now, Status: x.response.outcome(), Bytes: x.response.bytes.Load(),
		Encoded: len(x.response.Header()["Content-Encoding"]) > 0, Live: true}) == logins.Failed
}
