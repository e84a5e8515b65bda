package fairshare_test

import (
	"fmt"
	"testing"
	"time"

	"fairshare"
)

// Clients that claim an operator's bot share one allowance, and its verified bots
// have their own: a claim never takes anything from a verified bot. What is not a
// bot is counted by its address.
func TestClaimsAndVerifiedBotsOfAnOperatorCountApart(t *testing.T) {
	t.Parallel()
	bot := func(name, operator, purpose string, state fairshare.BotState) fairshare.Bot {
		return fairshare.Bot{Name: name, Operator: operator, Purpose: purpose, State: state}
	}
	const (
		verified, pending = fairshare.Verified, fairshare.Pending
		forged, claimed   = fairshare.Forged, fairshare.Claimed
	)
	for _, c := range []struct {
		by     []fairshare.KeyPart
		first  fairshare.Bot
		second fairshare.Bot
		shared bool
	}{
		{[]fairshare.KeyPart{{Kind: fairshare.ByOperator}},
			bot("gptbot", "openai", "training", verified), bot("gptbot", "openai", "training", verified), true},
		{[]fairshare.KeyPart{{Kind: fairshare.ByOperator}},
			bot("gptbot", "openai", "training", verified), bot("oai-searchbot", "openai", "search", verified), true},
		{[]fairshare.KeyPart{{Kind: fairshare.ByOperator}},
			bot("gptbot", "openai", "training", forged), bot("gptbot", "openai", "training", verified), false},
		{[]fairshare.KeyPart{{Kind: fairshare.ByOperator}},
			bot("gptbot", "openai", "training", forged), bot("oai-searchbot", "openai", "search", pending), true},
		{[]fairshare.KeyPart{{Kind: fairshare.ByOperator}},
			bot("gptbot", "openai", "training", verified), bot("claudebot", "anthropic", "training", verified), false},
		{[]fairshare.KeyPart{{Kind: fairshare.ByOperator}}, // unknown operators: by name
			bot("henkbot", "", "training", claimed), bot("henkbot", "", "training", claimed), true},
		{[]fairshare.KeyPart{{Kind: fairshare.ByOperator}},
			bot("henkbot", "", "training", claimed), bot("nagetbot", "", "training", claimed), false},
		{[]fairshare.KeyPart{{Kind: fairshare.ByPurpose}},
			bot("gptbot", "openai", "training", verified), bot("claudebot", "anthropic", "training", verified), true},
		{[]fairshare.KeyPart{{Kind: fairshare.ByPurpose}},
			bot("gptbot", "openai", "training", pending), bot("claudebot", "anthropic", "training", verified), false},
		{[]fairshare.KeyPart{{Kind: fairshare.ByPurpose}},
			bot("gptbot", "openai", "training", verified), bot("oai-searchbot", "openai", "search", verified), false},
		{[]fairshare.KeyPart{{Kind: fairshare.ByOperator}, {Kind: fairshare.ByPurpose}},
			bot("gptbot", "openai", "training", verified), bot("oai-searchbot", "openai", "search", verified), false},
		{[]fairshare.KeyPart{{Kind: fairshare.ByPurpose}}, // without a purpose: by address
			bot("googlebot", "google", "", verified), bot("googlebot", "google", "", verified), false},
		{[]fairshare.KeyPart{{Kind: fairshare.ByOperator}}, fairshare.Bot{}, fairshare.Bot{}, false},
	} {
		g := newGuard(t, fairshare.Policy{Rules: []fairshare.Rule{{Name: "budget",
			Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 1, Window: time.Hour, By: c.by}}}})
		var got [2]fairshare.Action
		for i, b := range []fairshare.Bot{c.first, c.second} {
			req := from(fmt.Sprintf("203.0.113.%d", 2*i+1))
			req.Time, req.Bot = start, b
			v, err := g.Decide(t.Context(), &req)
			if err != nil {
				t.Fatal(err)
			}
			got[i] = v.Action
			if err := g.Settle(t.Context(), &v, fairshare.Outcome{Time: start, Status: 200}); err != nil {
				t.Fatal(err)
			}
		}
		want := fairshare.Allow
		if c.shared {
			want = fairshare.Refuse
		}
		if got != [2]fairshare.Action{fairshare.Allow, want} {
			t.Errorf("by %v: %+v, then %+v: %v, want the second %v", c.by, c.first, c.second, got, want)
		}
	}
}

func TestUnknownStateIsAnError(t *testing.T) {
	_, err := fairshare.NewGuard(&fairshare.Policy{Rules: []fairshare.Rule{{Name: "rule", Action: fairshare.Block,
		Match: fairshare.Match{State: []string{"none"}}}}}, nil, nil)
	if err == nil {
		t.Error("state none: no error")
	}
}
