package bots

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairshare"
	"fairshare/botauth"
	"fairshare/botauth/botauthtest"
)

const (
	chrome      = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/138.0.0.0 Safari/537.36"
	chatGPTUser = "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko); compatible; ChatGPT-User/1.0; +https://openai.com/bot"
	gptBot      = "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko); compatible; GPTBot/1.2; +https://openai.com/gptbot"
)

// The bot of a request follows from its user agent, its address and its signature.
func TestLookSigned(t *testing.T) {
	openAI, wrong := botauthtest.New("chatgpt.com"), botauthtest.New("chatgpt.com")
	probe := botauthtest.New("probe.example")
	now := time.Now()
	newVerifier := func() *Verifier {
		return NewVerifier(Options{
			Agents: map[string]string{"probe.example": "probe"},
			Signatures: botauth.NewVerifier(botauth.Options{Host: func(string) bool { return true },
				Agents: []botauth.Agent{
					{Host: "chatgpt.com", Keys: []botauth.Key{openAI.Key()}},
					{Host: "probe.example", Keys: []botauth.Key{probe.Key()}},
				}}),
		})
	}
	v := newVerifier()
	published, outside := publishedAddr(t, v, "chatgpt-user"), netip.MustParseAddr("192.0.2.1")
	for _, c := range []struct {
		name      string
		addr      netip.Addr
		userAgent string
		signer    *botauthtest.Signer
		age       time.Duration
		want      string // the bot and its state
	}{
		{"a browser, unsigned", outside, chrome, nil, 0, " "},
		{"a browser that signs", outside, chrome, openAI, 0, "chatgpt-user verified"},
		{"a wrong signature", outside, chrome, wrong, 0, "chatgpt-user forged"},
		{"an old signature", outside, chrome, openAI, time.Hour, "chatgpt-user pending"},
		{"named, unsigned", outside, chatGPTUser, nil, 0, "chatgpt-user forged"},
		{"named and signed", outside, chatGPTUser, openAI, 0, "chatgpt-user verified"},
		{"named, a wrong signature", outside, chatGPTUser, wrong, 0, "chatgpt-user forged"},
		{"named, an old signature", outside, chatGPTUser, openAI, time.Hour, "chatgpt-user forged"},
		{"its own address, a wrong signature", published, chatGPTUser, wrong, 0, "chatgpt-user verified"},
		{"another bot of the operator", outside, gptBot, openAI, 0, "gptbot forged"},
		{"another operator's bot", outside, "Mozilla/5.0 (compatible; AhrefsBot/7.0)", openAI, 0, "ahrefsbot forged"},
		{"a library that signs", outside, "python-requests/2.32", openAI, 0, "chatgpt-user verified"},
		{"a library, a wrong signature", outside, "python-requests/2.32", wrong, 0, "python known"},
		{"no user agent", outside, "", probe, 0, "probe verified"},
		{"the policy's own bot", outside, chrome, probe, 0, "probe verified"},
		{"an agent that nobody named", outside, chrome, botauthtest.New("other.example"), 0, " "},
		{"another agent, for a bot", outside, gptBot, botauthtest.New("other.example"), 0, "gptbot forged"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := newVerifier()
			claimed := v.Look(c.addr, c.userAgent)
			r := &botauth.Request{Method: "GET", Host: "shop.example", Target: "/", Header: map[string][]string{}}
			got := claimed
			if c.signer != nil {
				s := *c.signer
				s.Lifetime = 2 * time.Hour
				s.Sign(http.Header(r.Header), r.Host, now.Add(-c.age))
				e := v.Explain(t.Context(), c.addr, c.userAgent)
				v.ExplainSigned(t.Context(), &e, r, c.addr, now)
				got = v.LookSigned(r, c.addr, claimed, now)
				if e.Bot.Name != got.Name || e.Bot.State != got.State || len(e.Steps) < 2 {
					t.Errorf("explained as %s %s: %s", e.Bot.Name, e.Bot.State, strings.Join(e.Steps, "; "))
				}
			}
			if s := got.Name + " " + got.State.String(); s != c.want {
				t.Errorf("%q, want %q", s, c.want)
			}
		})
	}
	if !v.Signs("chatgpt-user") || !v.Signs("probe") || v.Signs("gptbot") || v.Signs("") {
		t.Error("other bots sign")
	}
}

// publishedAddr returns an address that a bot's operator publishes.
func publishedAddr(t *testing.T, v *Verifier, name string) netip.Addr {
	for _, set := range v.table.Bot(name).Ranges {
		for _, p := range v.ranges.sets[setIndex(set)].prefixes() {
			if v.Look(p.Addr(), chatGPTUser).State == fairshare.Verified {
				return p.Addr()
			}
		}
	}
	t.Fatalf("no address of %s", name)
	return netip.Addr{}
}

// While the keys of an agent are fetched, a signed claim is pending. If they cannot be
// fetched, a client is what its address says. So a signature that nobody can check does
// not help a forger.
func TestSignaturesThatCannotBeChecked(t *testing.T) {
	signer := botauthtest.New("chatgpt.com")
	v := NewVerifier(Options{Signatures: botauth.NewVerifier(botauth.Options{Host: func(string) bool { return true },
		Agents: []botauth.Agent{{Host: "chatgpt.com"}}, Transport: unreachable{}})})
	r := &botauth.Request{Method: "GET", Host: "shop.example", Target: "/", Header: map[string][]string{}}
	signer.Sign(http.Header(r.Header), r.Host, time.Now())
	addr := netip.MustParseAddr("192.0.2.1")
	claimed := v.Look(addr, chatGPTUser)
	if got := v.LookSigned(r, addr, claimed, time.Now()); claimed.State != fairshare.Forged ||
		got.State != fairshare.Pending {
		t.Errorf("%s, then %s", claimed.State, got.State)
	}
	e := Explanation{Bot: claimed}
	v.ExplainSigned(t.Context(), &e, r, addr, time.Now()) // it fetches
	if got := v.LookSigned(r, addr, claimed, time.Now()); got.State != fairshare.Forged ||
		!strings.Contains(strings.Join(e.Steps, " "), "cannot be fetched") {
		t.Errorf("%s: %q", got.State, e.Steps)
	}
}

type unreachable struct{}

func (unreachable) RoundTrip(*http.Request) (*http.Response, error) { return nil, http.ErrServerClosed }

func TestSignatureAgentsOfTables(t *testing.T) {
	if got := BuiltIn().Agents(); !slices.Equal(got, []string{"agent.bot.goog", "chatgpt.com"}) {
		t.Errorf("built in: %q", got)
	}
	table, err := parseTable([]byte(`{"bots": [{"name": "a", "categories": ["monitor"],
		"signature_agents": ["b.example:8443", "a.example"]}]}`))
	if err != nil || !slices.Equal(table.Agents(), []string{"a.example", "b.example:8443"}) {
		t.Errorf("%v", err)
	}
	for _, agent := range []string{"https://a.example", "A.example", "127.0.0.1", "a.example/x", ""} {
		_, err := parseTable([]byte(`{"bots": [{"name": "a", "categories": ["monitor"], "signature_agents": ["` + agent + `"]}]}`))
		if err == nil || !strings.Contains(err.Error(), "signature agent") {
			t.Errorf("%q: %v", agent, err)
		}
	}
	signer := botauthtest.New("a.example")
	v := NewVerifier(Options{Table: table, Signatures: botauth.NewVerifier(botauth.Options{})})
	if got := v.Look(netip.MustParseAddr("192.0.2.1"), "x"); got.State != fairshare.Claimed || !v.Signs("a") {
		t.Errorf("%+v of %s", got, signer.Agent)
	}
}
