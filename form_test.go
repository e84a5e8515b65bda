package fairshare_test

import (
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"fairshare"
)

// holdsForm reports whether a rule with the match blocks the form, and whether one allows it.
func holdsForm(t *testing.T, form fairshare.Form, match fairshare.Match) (restricts, permits bool) {
	t.Helper()
	decide := func(rules ...fairshare.Rule) fairshare.Action {
		guard := newGuard(t, fairshare.Policy{Rules: rules})
		req := fairshare.Request{Method: "POST", Addr: netip.MustParseAddr(alice), Form: form, Time: time.Unix(1, 0)}
		req.SetTarget("/x")
		v, err := guard.Decide(t.Context(), &req)
		if err != nil {
			t.Fatal(err)
		}
		return v.Action
	}
	restricts = decide(fairshare.Rule{Name: "r", Match: match, Action: fairshare.Block}) == fairshare.Block
	permits = decide(fairshare.Rule{Name: "p", Match: match, Action: fairshare.Allow},
		fairshare.Rule{Name: "r", Action: fairshare.Block}) == fairshare.Allow
	return restricts, permits
}

func TestFormFieldsInAllSpellings(t *testing.T) {
	for _, c := range []struct {
		name               string
		form               fairshare.Form
		restricts, permits bool
	}{
		{"none", fairshare.Form{}, false, false},
		{"plain", fairshare.Form{Encoded: "a=1&action=heartbeat"}, true, true},
		{"other value", fairshare.Form{Encoded: "action=login"}, false, false},
		{"value in another name", fairshare.Form{Encoded: "a=action%3Dheartbeat"}, false, false},
		{"twice the same", fairshare.Form{Encoded: "action=heartbeat&action=heartbeat"}, true, true},
		{"two values", fairshare.Form{Encoded: "action=heartbeat&action=login"}, true, false},
		{"array", fairshare.Form{Encoded: "action=heartbeat&action%5B%5D=login"}, true, false},
		{"only an array", fairshare.Form{Encoded: "action[]=heartbeat"}, true, false},
		{"escaped", fairshare.Form{Encoded: "%61ction=he%61rtbeat"}, true, true},
		{"escaped twice", fairshare.Form{Encoded: "action=he%2561rtbeat"}, true, false},
		{"semicolon", fairshare.Form{Encoded: "a=1;action=heartbeat"}, true, false},
		{"unknown", fairshare.Form{Unknown: true}, true, false},
		{"unknown in part", fairshare.Form{Encoded: "action=login", Unknown: true}, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			match := fairshare.Match{Form: map[string][]string{"action": {"heartbeat"}}}
			if r, p := holdsForm(t, c.form, match); r != c.restricts || p != c.permits {
				t.Errorf("restricts %v, permits %v; want %v, %v", r, p, c.restricts, c.permits)
			}
			not := fairshare.Match{Not: []fairshare.Match{match}}
			if r, p := holdsForm(t, c.form, not); r == c.permits || p == c.restricts {
				t.Errorf("not: restricts %v, permits %v; want %v, %v", r, p, !c.permits, !c.restricts)
			}
		})
	}
}

// Requests with the same value share one allowance, wherever they come from; without a
// certain value each address has its own.
func TestLimitsByFormField(t *testing.T) {
	for _, c := range []struct {
		name, first, second string
		shared              bool
	}{
		{"same", "log=admin&pwd=a", "pwd=b&log=admin", true},
		{"case and spaces", "log=admin", "log=+ADMIN%20", true},
		{"spelled otherwise", "log=admin", "l%6Fg%5B%5D=admin", true},
		{"other", "log=admin", "log=editor", false},
		{"missing", "pwd=a", "pwd=a", false},
		{"empty", "log=", "log=", false},
		{"several", "log=admin&log=x", "log=admin&log=x", false},
		{"semicolon", "log=admin", "log=admin;log=x", false},
		{"long", "log=" + strings.Repeat("x", 100), "log=" + strings.Repeat("X", 100), true},
		{"unknown", "?", "?", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			limit := requests(1, time.Minute, fairshare.KeyPart{Kind: fairshare.ByForm, Name: "log"})
			guard := newGuard(t, fairshare.Policy{Rules: []fairshare.Rule{{Name: "account", Limit: limit}}})
			decide := func(addr, encoded string) fairshare.Action {
				req := asking(addr, "/x")
				req.Time, req.Form = time.Unix(1000, 0), fairshare.Form{Encoded: encoded, Unknown: encoded == "?"}
				v, err := guard.Decide(t.Context(), &req)
				if err != nil {
					t.Fatal(err)
				}
				return v.Action
			}
			if got := decide(alice, c.first); got != fairshare.Allow {
				t.Fatalf("the first request: %v", got)
			}
			if got := decide(bob, c.second) == fairshare.Refuse; got != c.shared {
				t.Errorf("the second request is refused: %v, want %v", got, c.shared)
			}
			if got := decide(alice, c.first); got != fairshare.Refuse {
				t.Errorf("the third request: %v", got)
			}
		})
	}
}

// Keys, which registries keep, hold no values of fields.
func TestKeysHoldNoFormValues(t *testing.T) {
	guard := newGuard(t, fairshare.Policy{})
	req := fairshare.Request{Addr: netip.MustParseAddr(alice), Form: fairshare.Form{Encoded: "log=admin"}}
	key := guard.AppendKey(nil, &req, fairshare.KeyPart{Kind: fairshare.ByForm, Name: "log"})
	if strings.Contains(string(key), "admin") || len(key) < 33 {
		t.Errorf("the key is %q", key)
	}
}

// A rule holds for at least every field that net/url reads.
func FuzzFormFields(f *testing.F) {
	f.Add("action=heartbeat&x=%41+b")
	f.Add("a.b[c]=1&a;b=2#x&=&&%zz=%2")
	f.Fuzz(func(t *testing.T, encoded string) {
		fields, err := url.ParseQuery(encoded)
		if err != nil || len(encoded) > 200 {
			return
		}
		for name, values := range fields {
			if name == "" || strings.ContainsAny(name, "*\x00") || strings.HasPrefix(name, "re:") {
				continue
			}
			match := fairshare.Match{Form: map[string][]string{name: {"*"}}}
			if r, _ := holdsForm(t, fairshare.Form{Encoded: encoded}, match); !r {
				t.Errorf("%q: field %q = %q is not found", encoded, name, values)
			}
		}
	})
}
