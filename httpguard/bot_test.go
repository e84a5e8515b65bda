package httpguard_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"

	"fairshare"
	"fairshare/httpguard"
)

type noLookups struct{}

func (noLookups) Hostnames(netip.Addr) []string          { return []string{"host.example.org"} }
func (noLookups) Listed(string, netip.Addr) []netip.Addr { return nil }

// byAgent recognizes bots by their user agent, and verifies one address.
func byAgent(addr netip.Addr, userAgent string) fairshare.Bot {
	switch {
	case userAgent != "crawler/1":
		return fairshare.Bot{}
	case addr == netip.MustParseAddr("192.0.2.1"):
		return fairshare.Bot{Name: "crawler", State: fairshare.Verified}
	}
	return fairshare.Bot{Name: "crawler", State: fairshare.Forged}
}

func TestRulesSeeTheClient(t *testing.T) {
	guard := newGuard(t,
		fairshare.Rule{Name: "ours", Match: fairshare.Match{Hostname: []string{"*.example.org"},
			Path: []string{"/ours"}}, Action: fairshare.Allow},
		fairshare.Rule{Name: "crawlers", Match: fairshare.Match{Bot: []string{"verified"}}, Action: fairshare.Allow},
		fairshare.Rule{Name: "all", Action: fairshare.Block})
	var reports []httpguard.Report
	opts := atNoon(&reports)
	opts.Bot, opts.Lookups = byAgent, noLookups{}
	client := httpguard.Client{Addr: netip.MustParseAddr("192.0.2.1")}
	opts.Client = func(*http.Request) httpguard.Client { return client }
	var asker httpguard.Client
	var known bool
	h := httpguard.New(guard, opts, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asker, known = httpguard.ClientOf(http.ResponseWriter(wrapped{w}))
	}))
	if w := request(h, "GET", "/", "User-Agent", "crawler/1"); w.Code != 200 || !known || asker.Addr != client.Addr ||
		asker.Bot.Name != "crawler" || asker.Bot.State != fairshare.Verified {
		t.Errorf("the verified one: %d, who: %+v, %v", w.Code, asker, known)
	}
	if w := request(h, "GET", "/", "User-Agent", "browser"); w.Code != 403 {
		t.Errorf("nobody known: %d", w.Code)
	}
	if w := request(h, "GET", "/ours"); w.Code != 200 || asker.Bot.Name != "" {
		t.Errorf("by hostname: %d, who: %+v", w.Code, asker)
	}
	client.Addr = netip.MustParseAddr("192.0.2.2")
	if w := request(h, "GET", "/", "User-Agent", "crawler/1"); w.Code != 403 ||
		reports[len(reports)-1].Request.Bot.State != fairshare.Forged {
		t.Errorf("the forged one: %d, reported as %+v", w.Code, reports[len(reports)-1].Request.Bot)
	}
	guard2 := newGuard(t)
	peer := netip.MustParseAddr("127.0.0.1")
	for _, proxy := range []httpguard.Client{{Addr: client.Addr}, {Addr: client.Addr, Proxy: true},
		{Addr: client.Addr, Via: peer}} {
		client = proxy
		h.Replace(guard2, opts)
		if request(h, "GET", "/"); asker.Proxy != proxy.Proxy || asker.Via != proxy.Via {
			t.Errorf("behind %+v: %+v", proxy, asker)
		}
	}
	h.Replace(guard, opts)
	client.Via = peer // its address proves nothing
	if w := request(h, "GET", "/", "User-Agent", "crawler/1"); w.Code != 403 ||
		reports[len(reports)-1].Request.Bot.State != fairshare.Pending {
		t.Errorf("behind a proxy nobody named: %d, reported as %+v", w.Code, reports[len(reports)-1].Request.Bot)
	}
	if _, known := httpguard.ClientOf(httptest.NewRecorder()); known {
		t.Error("somebody asks where no guard stands")
	}
	h.Replace(guard, httpguard.Options{Now: func() time.Time { return noon }})
	if w := request(h, "GET", "/", "User-Agent", "crawler/1"); w.Code != 403 {
		t.Errorf("without Bot: %d", w.Code)
	}
}

// A request with a signature is identified by it, unless its address proves nothing. Only
// refusals of bots that could sign ask for a signature.
func TestSignedBots(t *testing.T) {
	guard := newGuard(t,
		fairshare.Rule{Name: "crawlers", Match: fairshare.Match{Bot: []string{"verified"}}, Action: fairshare.Allow},
		fairshare.Rule{Name: "all", Action: fairshare.Block})
	opts := atNoon(nil)
	opts.Bot = byAgent
	calls := 0
	opts.SignedBot = func(r *http.Request, _ netip.Addr, claimed fairshare.Bot) fairshare.Bot {
		calls++
		if r.Header.Get("Signature") == "good" {
			return fairshare.Bot{Name: "crawler", State: fairshare.Verified}
		}
		return claimed
	}
	opts.CanSign = func(b fairshare.Bot) bool { return b.Name == "crawler" }
	client := httpguard.Client{Addr: netip.MustParseAddr("192.0.2.9")}
	opts.Client = func(*http.Request) httpguard.Client { return client }
	h := httpguard.New(guard, opts, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, c := range []struct {
		name   string
		header []string
		status int
		accept bool // Accept-Signature
		calls  int
	}{
		{"signed", []string{"Signature-Input", "x", "Signature", "good"}, 200, false, 1},
		{"a signature alone", []string{"Signature", "good"}, 403, false, 0},
		{"a wrong one", []string{"Signature-Input", "x", "Signature", "bad", "User-Agent", "crawler/1"}, 403, true, 1},
		{"a bot, unsigned", []string{"User-Agent", "crawler/1"}, 403, true, 0},
		{"nobody known", nil, 403, false, 0},
	} {
		calls = 0
		w := request(h, "GET", "/", c.header...)
		accept := w.Header().Get("Accept-Signature")
		if w.Code != c.status || (accept != "") != c.accept || calls != c.calls {
			t.Errorf("%s: %d %q after %d calls", c.name, w.Code, accept, calls)
		}
		if list, err := httpsfv.UnmarshalDictionary(w.Header()["Accept-Signature"]); c.accept &&
			(err != nil || !slices.Equal(list.Names(), []string{"sig1"})) {
			t.Errorf("%s: %q, %v", c.name, accept, err)
		}
	}
	client.Via = netip.MustParseAddr("127.0.0.1")
	if w := request(h, "GET", "/", "Signature-Input", "x", "Signature", "good"); w.Code != 403 {
		t.Errorf("behind a proxy that is not named: %d", w.Code)
	}
}
