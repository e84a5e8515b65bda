package proxy

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// A kind says how a client's header is forwarded.
type kind uint8

const (
	ordinary kind = iota // it passes
	ownName              // it passes only in this spelling: it is judged, or frames the request
	hopByHop             // removed: it belongs to one connection (RFC 9110 §7.6.1)
	never                // removed from every request
	override             // it may change the path or method: removed unless Config.KeepHeaders names it
	written              // set by this proxy, see appendForwarded

	// Removed, unless a trusted proxy sent it.
	clientAddr // the client's address: replaced by the judged one
	host       // passes if it fits Config.Hosts
	scheme     // passes if it is a usual name of http or https
	port       // passes if it is a port
	pathPrefix // passes if it is a plain path
	fromProxy  // passes
)

// kinds has the headers that are not ordinary, in canonical form: proxies, CDNs,
// servers and frameworks give them a meaning. "*-Client-Ip" means Client-Ip and all
// names that end in -Client-Ip; "Fairshare-*" means all names with this beginning. A
// full name wins over endings, a longer ending over a shorter one, and an ending
// over a beginning.
var kinds = map[string]kind{
	"User-Agent":     ownName,
	"Content-Length": ownName,
	"Traceparent":    ownName, // serve sets it
	"Tracestate":     ownName,

	"Connection":          hopByHop,
	"Proxy-Connection":    hopByHop,
	"Keep-Alive":          hopByHop,
	"Proxy-Authenticate":  hopByHop,
	"Proxy-Authorization": hopByHop,
	"Te":                  hopByHop,
	"Trailer":             hopByHop,
	"Transfer-Encoding":   hopByHop,
	"Upgrade":             hopByHop,
	"Http2-Settings":      hopByHop,
	"Expect":              hopByHop,

	ours + "*": never, // see appendIdentity
	"Proxy":    never, // becomes a CGI's HTTP_PROXY, the proxy of its own requests (CVE-2016-5385)

	// Paths. Symfony, Zend, Laminas, Yii, CodeIgniter and others that run behind
	// IIS; Envoy, ingress-nginx, Azure, Kong; forward authentication; Next.js.
	"*-Original-Url":  override,
	"*-Original-Uri":  override,
	"*-Original-Path": override,
	"*-Rewrite-Url":   override,
	"*-Rewrite-Uri":   override,
	"*-Rewrite-Path":  override,
	"*-Override-Url":  override,
	"*-Override-Uri":  override,
	"*-Override-Path": override,
	"*-Url-Override":  override,
	"*-Uri-Override":  override,
	"*-Path-Override": override,
	"*-Unencoded-Url": override,
	"*-Request-Uri":   override,
	"*-Request-Url":   override,
	"*-Forwarded-Uri": override,
	"*-Forwarded-Url": override,
	"*-Proxy-Url":     override,
	"*-Script-Name":   override,
	"*-Path-Info":     override,

	"X-Forwarded-Path":      override,
	"X-Http-Destinationurl": override,
	"X-Matched-Path":        override,
	"X-Now-Route-Matches":   override,
	"X-Invoke-*":            override,
	"X-Middleware-*":        override, // CVE-2025-29927

	// Methods. Rails, Laravel, Symfony, Slim, Express, ASP.NET, OData.
	"*-Method-Override":  override,
	"*-Verb-Override":    override,
	"*-Override-Method":  override,
	"*-Original-Method":  override,
	"*-Forwarded-Method": override,
	"X-Http-Method":      override,
	"X-Http-Verb":        override,

	"X-Forwarded-For":   written,
	"X-Forwarded-Proto": written,
	"X-Forwarded-Host":  written,
	"Forwarded":         written,

	"*-Client-Ip":               clientAddr,
	"*-Clientip":                clientAddr,
	"*-Client-Addr":             clientAddr,
	"*-Client-Address":          clientAddr,
	"*-Real-Ip":                 clientAddr,
	"*-Realip":                  clientAddr,
	"*-Remote-Ip":               clientAddr,
	"*-Remote-Addr":             clientAddr,
	"*-Remote-Address":          clientAddr,
	"*-Connecting-Ip":           clientAddr,
	"*-Connection-Ip":           clientAddr,
	"*-Originating-Ip":          clientAddr,
	"*-Origin-Ip":               clientAddr,
	"*-Original-Ip":             clientAddr,
	"*-Source-Ip":               clientAddr,
	"*-Src-Ip":                  clientAddr,
	"*-True-Ip":                 clientAddr,
	"*-User-Ip":                 clientAddr,
	"*-Userip":                  clientAddr,
	"*-Proxyuser-Ip":            clientAddr,
	"*-Visitor-Ip":              clientAddr,
	"*-Viewer-Ip":               clientAddr,
	"*-Device-Ip":               clientAddr,
	"*-Peer-Ip":                 clientAddr,
	"*-Forwarded-Ip":            clientAddr,
	"X-Envoy-External-Address":  clientAddr,
	"X-Ip":                      clientAddr,
	"*-Forwarded-For":           never, // lists, and other forms of an address
	"X-Forwarded-For-*":         never,
	"Forwarded-For-*":           never,
	"*-Forward-For":             never,
	"*-Forwarder-For":           never,
	"*-Viewer-Address":          never,
	"*-Socketip":                never,
	"*-Connecting-Ipv6":         never,
	"*-Pseudo-Ipv4":             never,
	"*-Remote-Host":             never,
	"*-Coming-From":             never,
	"*-Forwarded-By":            never,
	"X-Forwarded":               never,
	"X-Forward":                 never,
	"X-Custom-Ip-Authorization": never,

	"X-Host":             host,
	"*-Original-Host":    host,
	"*-Forwarded-Host":   host,
	"*-Forwarded-Server": host,
	"*-Host-Override":    host,
	"*-Override-Host":    host,
	"*-Rewrite-Host":     host,
	"*-Real-Host":        host,
	"*-Proxy-Host":       host,

	"*-Forwarded-Proto":    scheme,
	"*-Forwarded-Protocol": scheme,
	"*-Forwarded-Scheme":   scheme,
	"*-Forwarded-Ssl":      scheme,
	"*-Forwarded-Https":    scheme,
	"*-Url-Scheme":         scheme,
	"X-Scheme":             scheme,
	"Front-End-Https":      scheme,

	"*-Forwarded-Port":   port,
	"*-Forwarded-Prefix": pathPrefix,

	"X-Forwarded-*":   fromProxy,
	"X-Sendfile-Type": fromProxy, // makes Rack hand a file over to the proxy in front
	"X-Accel-Mapping": fromProxy,
}

// The parts of kinds: full names, endings without "*-", and beginnings without "*",
// the longest first. lastWords are the last words of the endings: most names end in
// none of them, and need no further search.
var fullNames, endings, lastWords, beginnings = func() (
	full, end map[string]kind, last map[string]bool, begin []string,
) {
	full, end, last = map[string]kind{}, map[string]kind{}, map[string]bool{}
	for name, k := range kinds {
		if ending, found := strings.CutPrefix(name, "*-"); found {
			end[ending] = k
			last[lastWord(ending)] = true
		} else if beginning, found := strings.CutSuffix(name, "*"); found {
			begin = append(begin, beginning)
		} else {
			full[name] = k
		}
	}
	slices.SortFunc(begin, func(a, b string) int { return len(b) - len(a) })
	return full, end, last, begin
}()

func lastWord(name string) string { return name[strings.LastIndexByte(name, '-')+1:] }

// isUsual reports whether a header is one of those that most clients send, and ordinary.
func isUsual(name string) bool {
	switch name {
	case "Accept", "Accept-Encoding", "Accept-Language", "Authorization", "Cache-Control", "Content-Type", "Cookie",
		"Dnt", "If-Modified-Since", "If-None-Match", "Origin", "Pragma", "Priority", "Range", "Referer", "Sec-Ch-Ua",
		"Sec-Ch-Ua-Mobile", "Sec-Ch-Ua-Platform", "Sec-Fetch-Dest", "Sec-Fetch-Mode", "Sec-Fetch-Site",
		"Sec-Fetch-User", "Sec-Gpc", "Upgrade-Insecure-Requests", "X-Requested-With":
		return true
	}
	return false
}

// kindOf returns the kind of a header by its canonical name.
func kindOf(name string) kind {
	if isUsual(name) {
		return ordinary
	}
	return searchKind(name)
}

// searchKind is kindOf without isUsual.
func searchKind(name string) kind {
	if k, found := fullNames[name]; found {
		return k
	}
	for ending, more := name, lastWords[lastWord(name)]; more; _, ending, more = strings.Cut(ending, "-") {
		if k, found := endings[ending]; found {
			return k
		}
	}
	for _, beginning := range beginnings {
		if strings.HasPrefix(name, beginning) {
			return kinds[beginning+"*"]
		}
	}
	return ordinary
}

// kindOf returns the kind of a header under this config. Its name is canonical.
func (s *setup) kindOf(name string) kind {
	k := kindOf(name)
	switch {
	case s.isCostHeader(name):
		return never
	case name == s.addrHeader && k != written:
		return clientAddr
	}
	return k
}

// CheckKeepHeader reports why a header cannot be one of Config.KeepHeaders.
func CheckKeepHeader(name string) error {
	canonical := http.CanonicalHeaderKey(name)
	k := kindOf(fold(canonical))
	switch {
	case name == "" || !plain(name):
		return fmt.Errorf("%q is not the name of a header that serve could keep", name)
	case k == ordinary || k == ownName:
		return fmt.Errorf("%s passes anyway: keep_headers is for headers that choose another path or method", name)
	case k != override:
		return fmt.Errorf("%s cannot be kept: only headers that choose another path or method can", name)
	case fold(canonical) != canonical:
		return fmt.Errorf("%s cannot be kept with \"_\": %s can", name, strings.ReplaceAll(name, "_", "-"))
	}
	return nil
}
