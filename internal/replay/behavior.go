package replay

import (
	"math"
	"strings"
	"time"
)

// A behavior has signs that a client is a program although it looks like a browser: a scanner
// fetches assets and sends referers, too. Its counts saturate.
type behavior struct {
	assets  uint16 // style sheets, images and similar that were got
	heads   uint16 // requests with HEAD
	odd     uint16 // requests with a method that pages do not use
	attacks uint16 // requests for what only scanners ask for, see isAttack, since it looks like a person
	now     uint16 // requests in minute that are not for assets
	busiest uint16 // the most of these in a minute
	minute  uint32 // since the Unix epoch
}

// Limits of the signs. The clients of real logs that do work of people stay far below: each sign
// alone has another reason now and then.
const (
	// attackRequests are sure, if they are a hundredth of the requests or more.
	attackRequests = 5
	// mostlyErrors is sure, if four of five requests are answered 4xx.
	mostlyErrors = 100
	// Three of the other signs are sure.
	manyErrors   = 100 // answers 4xx that are a tenth of the requests or more
	manyHeads    = 20  // requests with HEAD that are a tenth of the requests or more
	oddMethods   = 5
	fastRequests = 150 // in a minute, without assets
	bareRequests = 300 // with less than an asset for 50 requests
	threeSigns   = 3
)

// add notes a request at a time, Unix ns. human says that the client looks like a person so far: only
// then it is worth while to look for attacks.
func (b *behavior) add(it *item, at int64, human bool) {
	if it.asset {
		increase(&b.assets)
		return
	}
	if human && it.attack {
		increase(&b.attacks)
	}
	switch it.req.Method {
	case "GET", "POST":
	case "HEAD":
		increase(&b.heads)
	case "PUT", "DELETE", "OPTIONS", "PATCH", "", "-": // "": a line without a request
	default:
		increase(&b.odd)
	}
	if minute := uint32(uint64(at) / uint64(time.Minute)); minute != b.minute {
		b.minute, b.now = minute, 0
	}
	increase(&b.now)
	b.busiest = max(b.busiest, b.now)
}

func increase(n *uint16) {
	if *n != math.MaxUint16 {
		*n++
	}
}

// isProgram reports whether a client with so many requests and answers 4xx behaves as only a
// program does.
func (b *behavior) isProgram(requests, errors int64) bool {
	if b.attacks >= attackRequests && 100*int64(b.attacks) >= requests ||
		errors >= mostlyErrors && 5*errors > 4*requests {
		return true
	}
	signs := 0
	for _, sign := range []bool{
		errors >= manyErrors && 10*errors >= requests,
		b.heads >= manyHeads && 10*int64(b.heads) >= requests,
		b.odd >= oddMethods,
		b.busiest >= fastRequests,
		b.assets != math.MaxUint16 && requests-int64(b.assets) >= bareRequests &&
			assetsPart*int64(b.assets) < requests-int64(b.assets),
	} {
		if sign {
			signs++
		}
	}
	return signs >= threeSigns
}

// assetsPart is how many other requests for each asset only a program sends.
const assetsPart = 50

// An attackText is a text that only scanners send. It is split at a byte that is rare in targets.
type attackText struct {
	before, after string // in lower case; after begins with the rare byte
	name          bool   // a whole name in a path
	also          string // must stand somewhere behind it
}

// attackTexts are private files, paths outside the site, scripts and SQL. Browsers do not send
// them: they resolve dot segments themselves.
var attackTexts = []attackText{
	{after: "../"}, {after: "..%2f"}, {after: "..%5c"}, {after: `..\`},
	{before: "/", after: ".git/"}, {before: "/", after: ".svn/"}, {before: "/", after: ".aws/"},
	{before: "/", after: ".ssh/"}, {before: "/", after: ".env", name: true},
	{before: "/", after: ".htpasswd", name: true}, {before: "win", after: ".ini"},
	{after: "%3cscript"}, {after: "%2e%2e"}, {after: "%252e"}, {after: "%00"}, {after: "%c0%ae"},
	{before: "etc", after: "%2fpasswd"}, {before: "sleep", after: "%28"}, {before: "waitfor", after: "%20"},
	{before: "union", after: "%20", also: "select"}, {before: "union", after: "+", also: "select"},
	{before: "union", after: "/**", also: "select"}, {before: "waitfor", after: "+"},
	{after: "<script"}, {before: "etc", after: "/passwd"}, {before: "sleep", after: "("},
	{before: "jndi", after: ":"}, {before: "xp", after: "_cmdshell"},
}

// attackStarts is attackTexts by their rare byte.
var attackStarts = func() (t [256][]attackText) {
	for _, text := range attackTexts {
		t[text.after[0]] = append(t[text.after[0]], text)
	}
	return t
}()

// isRare says which bytes begin such a part. Most targets have '/' and '.': isAttack looks at the
// byte behind them, too.
var isRare = func() (t [256]bool) {
	for _, text := range attackTexts {
		t[text.after[0]] = true
	}
	return t
}()

// afterCommon says which bytes are behind '/' and '.' in these texts.
var afterCommon = func() (t [256]bool) {
	for _, text := range attackTexts {
		if c := text.after[0]; c == '/' || c == '.' {
			t[text.after[1]] = true
			t[strings.ToUpper(text.after[1:2])[0]] = true
		}
	}
	return t
}()

// isAttack reports whether a request target has a text that only scanners send.
func isAttack(target string) bool {
	for i := range len(target) {
		c := target[i]
		if !isRare[c] || (c == '/' || c == '.') && (i+1 == len(target) || !afterCommon[target[i+1]]) {
			continue
		}
		for k := range attackStarts[c] {
			if attackStarts[c][k].isAt(target, i) {
				return true
			}
		}
	}
	return false
}

// isAt reports whether a target has the text, with its rare byte at index i.
func (a *attackText) isAt(target string, i int) bool {
	begin := i - len(a.before)
	if begin < 0 || !hasFoldedPrefix(target[i:], a.after) || !hasFoldedPrefix(target[begin:], a.before) {
		return false
	}
	end := i + len(a.after)
	if a.name && end < len(target) && strings.IndexByte("/.?", target[end]) < 0 {
		return false
	}
	return a.also == "" || strings.Contains(strings.ToLower(target[end:]), a.also)
}

// hasFoldedPrefix reports whether s begins with a text in lower case.
func hasFoldedPrefix(s, text string) bool {
	if len(s) < len(text) {
		return false
	}
	for i := range len(text) {
		c := s[i]
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		if c != text[i] {
			return false
		}
	}
	return true
}
