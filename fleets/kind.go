package fleets

import (
	"hash/maphash"
	"strings"
	"sync/atomic"

	"fairshare/browser"
)

// A kind says what a request is for, as far as its method and path tell. Headers
// do not count: the client makes them up.
type kind uint8

const (
	other kind = iota
	page       // a document, or what may be one
	asset      // a part of a page: style sheet, script, image, font
)

// kindOf returns the kind of a request.
func kindOf(method, path string) kind {
	if method != "GET" && method != "HEAD" || path == "" {
		return other
	}
	const longest = len(".woff2")
	for i := len(path) - 1; i >= 0 && i >= len(path)-longest; i-- {
		switch path[i] {
		case '/':
			return page
		case '.':
			return kindOfExtension(path[i+1:])
		}
	}
	return page
}

func kindOfExtension(ext string) kind {
	switch ext {
	case "css", "js", "mjs", "png", "jpg", "jpeg", "gif", "webp", "avif", "svg", "ico", "woff", "woff2", "ttf", "CSS",
		"JS", "PNG", "JPG", "JPEG", "GIF":
		return asset
	case "html", "htm", "xhtml", "shtml", "php", "asp", "aspx", "jsp", "do", "cfm", "cgi", "pl":
		return page
	}
	return other
}

// isPage reports whether the answer to a request for a page is one.
func isPage(a *Answer) bool {
	if a.Type != "" {
		return isHTML(a.Type)
	}
	return a.Method == "GET" && !isData(a.Path)
}

func isHTML(contentType string) bool {
	return strings.HasPrefix(contentType, "text/html") || strings.HasPrefix(contentType, "application/xhtml")
}

// isData reports whether a path looks like one at which programs get data.
func isData(path string) bool {
	for rest := path; rest != ""; {
		var part string
		part, rest, _ = strings.Cut(strings.TrimPrefix(rest, "/"), "/")
		switch part {
		case "api", "ajax", "feed", "feeds", "rss", "atom", "graphql", "json", "rest", "wp-json", "xmlrpc.php",
			"admin-ajax.php", "wp-cron.php":
			return true
		}
	}
	return false
}

// An agentCache remembers which user agents claim to be browsers.
type agentCache [1 << 10]atomic.Uint64

// claimsBrowser reports whether a user agent is that of a browser, and no bot's.
func (c *agentCache) claimsBrowser(seed maphash.Seed, agent string) bool {
	hash := maphash.String(seed, agent) | 1
	cell := &c[hash>>1%uint64(len(c))]
	switch cell.Load() {
	case hash:
		return true
	case hash &^ 1:
		return false
	}
	if browser.ClaimOf(agent).Family != browser.NoFamily {
		cell.Store(hash)
		return true
	}
	cell.Store(hash &^ 1)
	return false
}
