package policyfile

import (
	"context"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairshare"
)

// headers are a request's headers, by canonical name.
type headers map[string][]string

func (h headers) Values(name string) []string { return h[name] }

// maxSamples bounds the number of sample requests, and of sample bots.
const maxSamples = 50

// samples returns requests of a browser with a cookie. Their address is in no rule;
// if there is no such address, samples returns nil. The first request is for a page
// that is in no rule. One request follows for each limit with a method, host or
// path, and has the first of these values.
func (r *reader) samples() []*fairshare.Request {
	req := fairshare.Request{Method: "GET", Host: "www.example.net", Header: headers{
		"Accept":          {"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"},
		"Accept-Language": {"en-US,en;q=0.5"},
		"Accept-Encoding": {"gzip, deflate, br"},
		"Cookie":          {"fairshare-sample=1"},
		"Sec-Fetch-Site":  {"same-origin"},
		"Sec-Fetch-Mode":  {"navigate"},
		"Sec-Fetch-Dest":  {"document"},
	}}
	rules := r.file.Policy.Rules
	for i := range 64 {
		addr := sampleAddr(i)
		if !slices.ContainsFunc(rules, func(rule fairshare.Rule) bool {
			return rule.Match.Addr != nil && rule.Match.Addr.Contains(addr)
		}) {
			req.Addr = addr
			break
		}
	}
	if !req.Addr.IsValid() {
		return nil
	}
	req.SetTarget("/some/page")
	samples := []*fairshare.Request{&req}
	for i := range rules {
		m := &rules[i].Match
		if m.Path == nil && m.Host == nil && m.Method == nil || rules[i].Limit == nil {
			continue
		}
		s := req
		if m.Method != nil && !isRegexp(m.Method[0]) {
			s.Method = m.Method[0]
		}
		if m.Host != nil && !isRegexp(m.Host[0]) {
			s.Host = strings.ReplaceAll(m.Host[0], "*", "www")
		}
		if m.Path != nil && !isRegexp(m.Path[0]) {
			s.Path = strings.ReplaceAll(m.Path[0], "*", "x")
		}
		samples = append(samples, &s)
	}
	return samples[:min(len(samples), maxSamples)]
}

// sampleAddr returns a public address, a different one for each i.
func sampleAddr(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(23 + 3*i), 77, byte(i), 9})
}

// A sampleBot is a crawler of sample requests.
type sampleBot struct {
	agent string
	fairshare.Bot
}

// sampleBots returns an unknown crawler, a claimed and a verified Googlebot, and a
// verified bot for each name and category of the rules; at most maxSamples.
func (r *reader) sampleBots() []sampleBot {
	const google = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"
	list := []sampleBot{
		{agent: "ExampleBot/1.0"},
		{agent: google},
		{google, fairshare.Bot{Name: "googlebot", Categories: []string{"search"}, State: fairshare.Verified}},
	}
	seen := map[string]bool{"known": true, "verified": true, "forged": true, "googlebot": true, "search": true}
	for i := range r.file.Policy.Rules {
		for _, word := range r.file.Policy.Rules[i].Match.Operator {
			if !seen["operator "+word] && !isRegexp(word) && len(list) < maxSamples {
				seen["operator "+word] = true
				list = append(list, sampleBot{word, fairshare.Bot{Name: word, Operator: word,
					State: fairshare.Verified}})
			}
		}
		for _, word := range r.file.Policy.Rules[i].Match.Bot {
			if !seen[word] && !isRegexp(word) && len(list) < maxSamples {
				seen[word] = true
				list = append(list, sampleBot{word, fairshare.Bot{Name: word, Categories: []string{word},
					State: fairshare.Verified}})
			}
		}
	}
	return list
}

// walker returns a function that judges a request by a policy, with a real guard
// and without counting, and yields the rules that matched.
func walker(p *fairshare.Policy) func(*fairshare.Request) iter.Seq[int] {
	withoutBans := *p
	withoutBans.Rules = slices.Clone(p.Rules)
	for i := range withoutBans.Rules {
		withoutBans.Rules[i].Ban = nil // unlimited refuses nothing, so no ban begins
	}
	guard, err := fairshare.NewGuard(&withoutBans, unlimited{}, nil)
	return func(req *fairshare.Request) iter.Seq[int] {
		return func(yield func(int) bool) {
			if err != nil {
				return
			}
			v, err := guard.Decide(context.Background(), req)
			if err != nil {
				return
			}
			more := true
			v.Matched(func(rule int) { more = more && yield(rule) })
			guard.Settle(context.Background(), &v, fairshare.Outcome{}) // unlimited returns no errors
		}
	}
}

// unlimited is a limiter that counts nothing: every request passes.
type unlimited struct{}

var _ fairshare.Limiter = unlimited{}

func (unlimited) Take(context.Context, time.Time, []fairshare.Take, []fairshare.Tally) error {
	return nil
}

func (unlimited) Settle(context.Context, time.Time, []fairshare.Charge) error { return nil }
