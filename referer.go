package fairshare

import (
	"fmt"
	"net/url"
	"strings"
)

// A refererSet holds kinds of Referer fields, a bit for each.
type refererSet uint8

const (
	refererNone  refererSet = 1 << iota // absent, empty, or no URL
	refererSelf                         // the URL of the request itself
	refererOwn                          // another URL of the same host
	refererOther                        // a URL of another host
)

var refererWords = [...]string{"none", "self", "own", "other"}

func newRefererSet(words []string) (set refererSet, err error) {
next:
	for _, word := range words {
		for i, known := range refererWords {
			if word == known {
				set |= 1 << i
				continue next
			}
		}
		return 0, fmt.Errorf("referer: %q is not one of %s", word, strings.Join(refererWords[:], ", "))
	}
	return set, nil
}

// holdsReferer looks at every Referer field. One that is in the set is enough for a
// restriction, a permission needs all of them.
func (c *condition) holdsReferer(d *decision) bool {
	is := d.referers()
	if c.favorable {
		return is&^c.referers == 0
	}
	return is&c.referers != 0
}

// referers returns the kinds of the Referer fields of the request.
func (d *decision) referers() refererSet {
	if d.referer == 0 {
		for _, value := range d.req.values("Referer") {
			d.referer |= refererOf(value, d.req)
		}
		if d.referer == 0 {
			d.referer = refererNone
		}
	}
	return d.referer
}

// refererOf returns the kind of a Referer field. Scheme, user, port and fragment do not
// matter. The host of a request may be unknown, as in many logs. Then a URL with the path and
// the query of the request is its own, unless the path is "/", and all others are refererOther.
func refererOf(value string, req *Request) refererSet {
	scheme, rest, found := strings.Cut(value, "://")
	if !found || scheme == "" || rest == "" {
		return refererNone
	}
	rest, _, _ = strings.Cut(rest, "#")
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	host, target := rest[:end], rest[end:]
	host = host[strings.LastIndexByte(host, '@')+1:]
	path, query, _ := strings.Cut(target, "?")
	if path == "" {
		path = "/"
	}
	self := query == req.Query && (samePath(path, req.Path) || req.OddPath && path == req.rawPath)
	own := req.Host != "" && strings.EqualFold(plainHost(host), plainHost(req.Host))
	switch {
	case self && (own || req.Host == "" && len(path) > 1):
		return refererSelf
	case own:
		return refererOwn
	}
	return refererOther
}

// samePath reports whether the path of a URL is the decoded path of a request. A slash at
// the end does not matter.
func samePath(path, decoded string) bool {
	if strings.IndexByte(path, '%') >= 0 {
		if plain, err := url.PathUnescape(path); err == nil {
			path = plain
		}
	}
	return trimSlash(path) == trimSlash(decoded)
}
