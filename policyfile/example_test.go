package policyfile_test

import (
	"context"
	"fmt"
	"log"
	"net/netip"
	"strings"
	"time"

	"fairshare"
	"fairshare/membans"
	"fairshare/memlimit"
	"fairshare/policyfile"
)

const shop = `
rules:
  - name: bad bots
    match: {user_agent: [80legs, MJ12bot]}
    block: true
  - name: rapid requests
    match: {cookie: none}
    limit: {requests: 3, per: 3s}
`

// A policy file is read, and its rules are described in sentences.
func ExampleParse() {
	file, err := policyfile.Parse("site.yaml", []byte(shop))
	if err != nil {
		log.Fatal(err)
	}
	for i := range file.Policy.Rules {
		fmt.Println(file.Sentence(&file.Policy.Rules[i]))
	}
	// Output:
	// bad bots: a request with user agent containing 80legs or MJ12bot is blocked with 403.
	// rapid requests: a client (by addr) without a cookie may send 3 requests in 3s; then 429.
}

// All errors of a file are reported at once, with line, column and a fix.
func ExampleFaults() {
	_, err := policyfile.Parse("site.yaml", []byte(`
rules:
  - name: bad bots
    match: {user_agent: 80legs}
    blokc: true
  - name: rapid requests
    limit: {requests: 3, per: 60}
`))
	for _, fault := range policyfile.Faults(err) {
		fmt.Print(fault.Text())
	}
	// Output:
	// site.yaml:5:5: unknown key: "blokc"
	//         blokc: true
	//         ^
	// hint: did you mean "block"?
	// site.yaml:7:31: per: a duration is needed, such as 10s or 1h30m, not "60"
	//         limit: {requests: 3, per: 60}
	//                                   ^
	// hint: per needs a unit: per: 60s
}

// A guard judges requests by the rules of a file.
func ExampleLoad() {
	file, err := policyfile.Load("testdata/good/shop.yaml")
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := memlimit.New(file.Policy.Limits(), memlimit.Options{Memory: file.Memory})
	if err != nil {
		log.Fatal(err)
	}
	guard, err := fairshare.NewGuard(&file.Policy, limiter, membans.New(0))
	if err != nil {
		log.Fatal(err)
	}
	request := fairshare.Request{Time: time.Now(), Addr: netip.MustParseAddr("198.51.100.7"), Method: "GET",
		UserAgent: "80legs"}
	request.SetTarget("/")
	verdict, err := guard.Decide(context.Background(), &request)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(verdict.Action, "by rule", verdict.Rule.Name)
	// Output: block by rule bad bots
}

// The program sets the prefixes of a list from a file. Package site does this, and
// reads the file again when it changes.
func ExampleAddrSet_Replace() {
	file, err := policyfile.Parse("site.yaml", []byte(`
lists: {drop: {file: drop.txt}}
rules: [{name: known attackers, match: {addr: drop}, block: true}]
`))
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := memlimit.New(file.Policy.Limits(), memlimit.Options{Memory: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	_, err = fairshare.NewGuard(&file.Policy, limiter, membans.New(0))
	fmt.Println(strings.Replace(err.Error(), "; ", "\n", 1))
	for _, source := range file.Sources {
		source.Set.Replace([]netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}) // the content of drop.txt
	}
	_, err = fairshare.NewGuard(&file.Policy, limiter, membans.New(0))
	fmt.Println(err)
	// Output:
	// site.yaml: rule "known attackers" looks at the list "drop", which was not loaded from drop.txt
	// open the policy with package site, or give its prefixes to the Set in File.Sources
	// <nil>
}
