package fairshare

import (
	"fmt"
	"slices"
)

// A Browser says what signs there are that a client is a browser.
type Browser uint8

const (
	NotBrowser          Browser = iota // the client does not claim to be a browser; the zero Browser
	BrowserClaimed                     // its user agent is that of a browser; nothing else is known
	BrowserLikely                      // it behaves like the browser that it claims to be
	BrowserContradicted                // its requests do not fit the browser that it claims to be
)

// String returns the word of [Match.Browser].
func (b Browser) String() string {
	switch b {
	case BrowserClaimed:
		return "claimed"
	case BrowserLikely:
		return "likely"
	case BrowserContradicted:
		return "contradicted"
	}
	return "none"
}

// TestsBrowsers reports whether a rule looks at Request.Browser.
func (p *Policy) TestsBrowsers() bool {
	return slices.ContainsFunc(p.Rules, func(r Rule) bool {
		return r.tests(func(m *Match) bool { return m.Browser != nil })
	})
}

// A browserSet is a compiled Match.Browser: bit b is set for the Browser b.
type browserSet uint8

func newBrowserSet(words []string) (set browserSet, err error) {
	for _, word := range words {
		b := BrowserClaimed
		for b.String() != word {
			if b++; b > BrowserContradicted {
				return 0, fmt.Errorf("browser: %q is not one of likely, claimed, contradicted", word)
			}
		}
		set |= 1 << b
	}
	return set, nil
}

// holdsBrowser ignores in a permission what the client makes up. A provisional
// client may be likely because of what others did under the address that its peer
// named.
func (c *condition) holdsBrowser(req *Request) bool {
	set := c.browsers
	if c.favorable {
		set &= 1 << BrowserLikely
		if req.Via.IsValid() || req.Proxy {
			return false
		}
	} else if set&(1<<BrowserClaimed) != 0 { // otherwise a client gets around it by contradicting itself
		set |= 1 << BrowserContradicted
	}
	return set>>req.Browser&1 != 0
}

// describeBrowser describes what is known of a browser, and why it may not count.
func describeBrowser(req *Request, favorable bool) string {
	switch {
	case req.Browser == NotBrowser:
		return "no browser: that"
	case favorable && req.Browser != BrowserLikely:
		return "browser " + req.Browser.String() + ", which the client makes up and which does not count here: that"
	case favorable && (req.Via.IsValid() || req.Proxy):
		return "browser likely at an address that is not proved, which does not count here: that"
	}
	return "browser " + req.Browser.String() + ": that"
}
