package census

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"fairshare"
	"fairshare/httpguard"
)

// Browser reports whether a user agent looks like that of a person's browser.
func Browser(agent string) bool {
	if !strings.HasPrefix(agent, "Mozilla/5.0 (") && !strings.HasPrefix(agent, "Opera/9.") &&
		!strings.HasPrefix(agent, "Mozilla/4.0 (compatible; MSIE ") {
		return false
	}
	var space [256]byte // enough for most
	folded := space[:0]
	for i := range len(agent) {
		c := agent[i]
		if c >= utf8.RuneSelf {
			folded = []byte(strings.ToLower(agent))
			break
		}
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		folded = append(folded, c)
	}
	for _, word := range robotWords {
		if bytes.Contains(folded, word) {
			return false
		}
	}
	return true
}

// robotWords are in user agents of robots that otherwise look like those of browsers.
var robotWords = bytes.Fields(
	[]byte("bot crawl spider slurp http: https: www. headless phantomjs python curl scan monitor preview fetch archive checker @"))

// mostAgent is the length in bytes of the longest user agent of a person's browser.
const mostAgent = 512

// Person reports whether a request looks like one of a person's browser. It is a hint
// for operators and decides nothing: a script that imitates a whole browser passes, and
// a browser's first request by plain HTTP may not.
//
// The request must have
//
//   - the user agent of a browser,
//   - a language; scripts send none, or "*" as Node does,
//   - one of the headers that a browser adds by itself: Sec-Fetch-Site (by HTTPS only),
//     Referer, a cookie, or Upgrade-Insecure-Requests,
//   - no brand of a browser without a window (Sec-Ch-Ua).
//
// It must not come from a known bot.
func Person(req *fairshare.Request) bool {
	if req.Bot.Name != "" || req.Header == nil || len(req.UserAgent) > mostAgent ||
		!language(first(req, "Accept-Language")) {
		return false
	}
	switch first(req, "Sec-Fetch-Site") {
	case "none", "same-origin", "same-site", "cross-site":
	default:
		if first(req, "Referer") == "" && !strings.Contains(first(req, "Cookie"), "=") &&
			first(req, "Upgrade-Insecure-Requests") != "1" {
			return false
		}
	}
	return Browser(req.UserAgent) && !strings.Contains(first(req, "Sec-Ch-Ua"), "Headless")
}

// IsPerson reports whether a request that was refused, or would have been, looks like one of a person's browser. It
// is false if the client is known to look so, and if the client is not counted.
func (c *Census) IsPerson(r *httpguard.Report) bool {
	k := kindOf(r.Finding.Rule, r.DryRun)
	if k == kinds {
		return false
	}
	s := c.state.Load()
	return !s.tallies[k].rule(r.Finding.Rule.Name).clients.knows(s.hash(r.Request.Addr, r.Request.Via), true) &&
		Person(r.Request)
}

// language reports whether an Accept-Language begins with a language tag.
func language(s string) bool {
	letters := 0
	for letters < len(s) && (s[letters]|0x20 >= 'a' && s[letters]|0x20 <= 'z') {
		letters++
	}
	return letters >= 2 && letters <= 3 && (letters == len(s) || strings.IndexByte("-,; ", s[letters]) >= 0)
}

func first(req *fairshare.Request, name string) string {
	if values := req.Header.Values(name); len(values) > 0 {
		return values[0]
	}
	return ""
}
