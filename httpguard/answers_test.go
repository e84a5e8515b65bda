package httpguard_test

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/share"
)

// An operator's ban and a busy upstream have the answers of Options.Answers. What these do not say
// is as usual.
func TestAnswersReplaceTheUsualOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bans := map[string]fairshare.Override{
			"192.0.2.8": {Action: fairshare.Refuse, Wait: time.Hour}, "192.0.2.9": {Action: fairshare.Block},
		}
		s := newBusySite(t, share.Options{Capacity: 1, Queue: -1, Wait: -1}, httpguard.Options{
			Contact: "shop@example.org",
			Override: func(addr netip.Addr, _ fairshare.Bot, _ time.Time) fairshare.Override {
				return bans[addr.String()]
			},
			Answers: map[*fairshare.Rule]*fairshare.Answer{
				fairshare.OperatorBan: {Body: "<p>Banned: {contact}</p>"},
				fairshare.BusyUpstream: {Empty: true, RetryAfter: time.Minute,
					Header: map[string][]string{"Link": {"<https://status.example>"}}},
			},
		}, work(20*time.Second))
		s.request(t.Context(), "192.0.2.1", "/works")
		s.request(t.Context(), "192.0.2.2", "/full")
		s.request(t.Context(), "192.0.2.8", "/banned")
		s.request(t.Context(), "192.0.2.9", "/blocked")
		for _, c := range []struct {
			path, body, retryAfter, link string
			status                       int
		}{
			{"/full", "", "60", "<https://status.example>", 503},
			{"/banned", "<p>Banned: shop@example.org</p>", "3600", "", 429},
			{"/blocked", "<p>Banned: shop@example.org</p>", "", "", 403},
		} {
			w := s.answers[c.path]
			if w.Code != c.status || w.Body.String() != c.body || w.Header().Get("Retry-After") != c.retryAfter ||
				w.Header().Get("Link") != c.link || w.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("%s: %d %v %s", c.path, w.Code, w.Header(), w.Body)
			}
		}
		s.all.Wait()
	})
	if fairshare.OperatorBan.Answer != nil || fairshare.BusyUpstream.Answer.Empty {
		t.Error("the rules themselves have changed")
	}
}
