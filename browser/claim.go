package browser

import (
	"strconv"
	"strings"
)

// A Family is a kind of browser, by its engine.
type Family uint8

const (
	NoFamily Family = iota // the user agent is not that of a browser
	Chromium               // Chrome, Edge, Opera, Samsung Internet and others, but none on iOS
	Firefox                // Gecko: Firefox, Tor Browser and others, but none on iOS
	Safari                 // WebKit: Safari, WebKitGTK, and all browsers on iOS
	Text                   // w3m, Lynx, Links and other small browsers
	Other                  // old browsers and those of devices
)

// String returns the name of the family.
func (f Family) String() string {
	switch f {
	case Chromium:
		return "Chromium"
	case Firefox:
		return "Firefox"
	case Safari:
		return "Safari"
	case Text:
		return "a text browser"
	case Other:
		return "another browser"
	}
	return "no browser"
}

// A Claim is what a user agent says of itself.
type Claim struct {
	Family Family
	Major  int  // version of the engine, at most 999; 0 when not given
	App    bool // a web view inside another program
	Apple  bool // an iPhone, iPad or iPod
}

// String returns the claim as a person reads it, such as "Chromium 131".
func (c Claim) String() string {
	s := c.Family.String()
	if c.Major > 0 {
		s += " " + strconv.Itoa(c.Major)
	}
	if c.App {
		s += " inside another program"
	}
	return s
}

// ClaimOf returns what a user agent claims to be. A bot that names itself is not a
// browser. What follows longestAgent bytes does not count.
func ClaimOf(userAgent string) Claim {
	userAgent = userAgent[:min(len(userAgent), longestAgent)]
	if !strings.HasPrefix(userAgent, "Mozilla/") {
		return otherClaim(userAgent)
	}
	for _, word := range botWords {
		if strings.Contains(userAgent, word) && (word != "bot" || !strings.Contains(userAgent, "Cubot")) {
			return Claim{}
		}
	}
	c := Claim{Family: Other, Apple: strings.HasPrefix(userAgent, "Mozilla/5.0 (iP")}
	find := func(product string) bool {
		i := strings.Index(userAgent, product)
		if i < 0 {
			return false
		}
		c.Major = leadingNumber(userAgent[i+len(product):])
		return true
	}
	switch {
	case c.Apple: // every engine on iOS is WebKit
		c.Family = Safari
		c.App = !strings.Contains(userAgent, " Safari/")
		find(" Version/")
	case find(" Edge/"), find("Trident/"), find("MSIE "), find("Presto/"):
	case find(" Chrome/"), find(" HeadlessChrome/"), find(" Chromium/"):
		c.Family = Chromium
		c.App = strings.Contains(userAgent, "; wv)") || strings.Contains(userAgent, " Version/4.0 ")
	case find(" Firefox/") && strings.Contains(userAgent, " Gecko/"):
		c.Family = Firefox
	case strings.Contains(userAgent, "AppleWebKit/") && find(" Version/"):
		c.Family = Safari
		if strings.Contains(userAgent, "Android") { // the browser of Android before Chrome
			c.Family = Other
		}
	default:
		c.Major = 0
	}
	return c
}

// longestAgent bounds the time for a user agent, in bytes. Those of browsers are shorter than 400.
const longestAgent = 1 << 10

// botWords are in the user agents of bots that name themselves. They are
// case-sensitive: there are phones called CUBOT and Cubot.
var botWords = [...]string{"bot", "Bot", "http:", "https:", "spider", "Spider", "crawl", "Crawl"}

// otherClaim is ClaimOf for a user agent that does not begin with "Mozilla/".
func otherClaim(userAgent string) Claim {
	for _, name := range [...]string{"w3m/", "Lynx/", "Links (", "Links/", "ELinks", "Dillo/", "NetSurf/",
		"edbrowse/"} {
		if strings.HasPrefix(userAgent, name) {
			return Claim{Family: Text}
		}
	}
	if strings.HasPrefix(userAgent, "Opera/") {
		return Claim{Family: Other, Major: leadingNumber(userAgent[len("Opera/"):])}
	}
	return Claim{}
}

// leadingNumber returns the number that s begins with, at most 999.
func leadingNumber(s string) (n int) {
	for i := 0; i < len(s) && s[i] >= '0' && s[i] <= '9'; i++ {
		n = min(n*10+int(s[i]-'0'), 999)
	}
	return n
}
