package bots_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"time"

	"fairshare"
	"fairshare/bots"
	"fairshare/httpguard"
	"fairshare/memlimit"
)

// In a Go server, rules about bots need a Verifier in the Options of httpguard.
func ExampleVerifier_Look() {
	policy := &fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "forged", Match: fairshare.Match{Bot: []string{"forged"}}, Action: fairshare.Block},
		{Name: "search engines", Match: fairshare.Match{Bot: []string{"search"}}, Action: fairshare.Allow},
		{Name: "one a minute", Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 1, Window: time.Minute}},
	}}
	limiter, err := memlimit.New(policy.Limits(), memlimit.Options{Memory: 1 << 20})
	if err != nil {
		panic(err)
	}
	guard, err := fairshare.NewGuard(policy, limiter, nil)
	if err != nil {
		panic(err)
	}
	site := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asker, _ := httpguard.ClientOf(w)
		fmt.Printf("%s is %q %s\n", asker.Addr, asker.Bot.Name, asker.Bot.State)
	})
	verifier := bots.NewVerifier(bots.Options{}) // by published addresses alone, without the DNS
	handler := httpguard.Middleware(guard, httpguard.Options{Bot: verifier.Look})(site)

	for _, addr := range []string{"66.249.66.1", "66.249.66.1", "192.0.2.1"} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = addr + ":1234"
		r.Header.Set("User-Agent", "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	// Output:
	// 66.249.66.1 is "googlebot" verified
	// 200
	// 66.249.66.1 is "googlebot" verified
	// 200
	// 403
}

// Recognise needs only the user agent. It does not check the claim.
func ExampleTable_Recognise() {
	bot, token := bots.BuiltIn().Recognise("Mozilla/5.0 (compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)")
	fmt.Printf("%s, a bot for %s, by %q\n", bot.Name, bot.Main(), token)
	// Output:
	// bingbot, a bot for search, by "bingbot"
}

// Explain returns each step of the check.
func ExampleVerifier_Explain() {
	verifier := bots.NewVerifier(bots.Options{})
	e := verifier.Explain(context.Background(), netip.MustParseAddr("192.0.2.1"), "GPTBot/1.2")
	fmt.Println(e.Steps[0])
	fmt.Println(e.Bot.State)
	// Output:
	// it claims to be gptbot (ai, ai-training), by "GPTBot"
	// forged
}
