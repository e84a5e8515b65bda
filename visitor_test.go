package fairshare_test

import (
	"testing"
	"time"

	"fairshare"
)

// by returns the requests of a visitor from an address.
func by(id uint64, addr string) fairshare.Request {
	req := at(addr)
	req.Visitor = fairshare.Visitor{ID: id, Network: 1, Since: start}
	return req
}

// A limit by visitor counts all copies of a cookie together, and the clients
// behind one address apart.
func TestLimitByVisitor(t *testing.T) {
	limit := requests(2, time.Minute, fairshare.KeyPart{Kind: fairshare.ByVisitor})
	g := memGuard(t, fairshare.Policy{Rules: []fairshare.Rule{{Name: "visitor", Limit: limit}}})
	for i, c := range []struct {
		name string
		req  fairshare.Request
		want fairshare.Action
	}{
		{"a visitor", by(1, "192.0.2.1"), fairshare.Allow},
		{"the same at another address", by(1, "198.51.100.7"), fairshare.Allow},
		{"a copy of its cookie", by(1, "203.0.113.9"), fairshare.Refuse},
		{"another visitor at its address", by(2, "192.0.2.1"), fairshare.Allow},
		{"without a cookie, at its address", at("192.0.2.1"), fairshare.Allow},
		{"the same again", at("192.0.2.1"), fairshare.Allow},
		{"and a third time", at("192.0.2.1"), fairshare.Refuse},
		{"the second visitor", by(2, "192.0.2.1"), fairshare.Allow},
		{"the second visitor once more", by(2, "192.0.2.1"), fairshare.Refuse},
	} {
		if v := repeat(t, g, 0, c.req, 1); v.Action != c.want {
			t.Errorf("%d, %s: %v, want %v", i, c.name, v.Action, c.want)
		}
	}
}

// While a network is over its limit, a visitor has the limit of a newcomer for
// itself, behind an address that others have used up. Copies of its cookie share it.
func TestNewcomerWithACookieIsCountedByItself(t *testing.T) {
	g := memGuard(t, lowered(func(*fairshare.Rule) {}))
	for range 3 {
		repeat(t, g, 0, at("192.0.2.100"), 1)
	}
	for i, c := range []struct {
		name string
		req  fairshare.Request
		want fairshare.Action
	}{
		{"a newcomer", at("192.0.2.9"), fairshare.Allow},
		{"the same again", at("192.0.2.9"), fairshare.Refuse},
		{"a visitor at its address", by(1, "192.0.2.9"), fairshare.Allow},
		{"another visitor there", by(2, "192.0.2.9"), fairshare.Allow},
		{"a copy of the first cookie", by(1, "192.0.2.10"), fairshare.Refuse},
	} {
		if v := repeat(t, g, 0, c.req, 1); v.Action != c.want {
			t.Errorf("%d, %s: %v, want %v", i, c.name, v.Action, c.want)
		}
	}
}
