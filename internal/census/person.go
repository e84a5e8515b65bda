package census

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"fairshare"
)

// Browser reports whether a user agent is one that people's browsers send, as
// far as the text tells.
func Browser(agent string) bool {
	if !strings.HasPrefix(agent, "Mozilla/5.0 (") && !strings.HasPrefix(agent, "Opera/9.") &&
		!strings.HasPrefix(agent, "Mozilla/4.0 (compatible; MSIE ") {
		return false
	}
	var space [256]byte // where most fit
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

// robotWords are in the user agents of robots that look like a browser's else.
var robotWords = bytes.Fields(
	[]byte("bot crawl spider slurp http: https: www. headless phantomjs python curl scan monitor preview fetch archive checker @"))

// mostAgent is how many bytes of a user agent people's browsers send at most.
const mostAgent = 512

// Person reports whether a request looks as if a person's browser sent it. It
// is a hint for operators and decides nothing: a script that copies a whole
// browser passes, and a browser's very first request by plain HTTP may not.
//
// It takes the user agent of a browser; a language that somebody chose, where
// scripts send none, or "*" as Node does; and one of those that a browser adds
// by itself: where the request came from (Sec-Fetch-Site, which browsers send
// by HTTPS alone, or Referer), a cookie it was given, or the wish for an
// encrypted page that goes with each page. Some browsers without a window say
// so in their brand, whatever their user agent. A known bot is none.
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

// language reports whether an Accept-Language begins with the tag of one.
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
