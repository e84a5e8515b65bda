package proxy

import (
	"fmt"
	"math"
	"strings"
)

// DefaultMaxCost is what a zero Config.MaxCost means.
const DefaultMaxCost = 1_000_000

// cost returns the units that a header of an answer tells: a number that is not
// negative, rounded up, most if it is more. Lines that do not all say the same
// tell nothing.
func cost(lines []string, most int64) (units int64, told bool) {
	for _, line := range lines {
		for item := range strings.SplitSeq(line, ",") {
			f, ok := number(trim(item))
			if !ok {
				return 0, false
			}
			one := most
			if f < float64(most) {
				one = int64(math.Ceil(f))
			}
			if told && one != units {
				return 0, false
			}
			units, told = one, true
		}
	}
	return units, told
}

// CheckCostHeader tells what is wrong with the name of a header for costs. It
// is taken off requests and answers, so that it must be none that they need:
// of the connection, of the body and its framing, of caches, cookies,
// conditions and credentials, or that says who asks.
func CheckCostHeader(name string) error {
	switch canonical := fold(name); {
	case !ValidMetric(name):
		return fmt.Errorf("%q is no name of a header", name)
	case !plain(name):
		return fmt.Errorf("%q: a header for costs has letters, digits, \"-\" and \"_\" only", name)
	case hopByHop(canonical) || needed[canonical]:
		return fmt.Errorf("%s cannot tell costs: requests or answers need it", canonical)
	default:
		for _, prefix := range neededPrefixes {
			if strings.HasPrefix(canonical, prefix) {
				return fmt.Errorf("%s cannot tell costs: requests or answers need what begins with %s", canonical, prefix)
			}
		}
	}
	return nil
}

// plain reports whether a name reaches an upstream of any kind unchanged, but
// for "_".
func plain(name string) bool {
	for i := 0; i < len(name); i++ {
		if c := name[i]; !alphanumeric(c) && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// Headers that are not to be taken off.
var (
	needed = map[string]bool{
		"Age": true, "Allow": true, "Alt-Svc": true, "Authorization": true, "Cache-Control": true, "Client-Ip": true, "Cookie": true,
		"Date": true, "Dnt": true, "Etag": true, "Expires": true, "Forwarded": true, "From": true, "Host": true, "Last-Modified": true,
		"Link": true, "Location": true, "Origin": true, "Pragma": true, "Proxy": true, "Range": true, "Referer": true,
		"Referrer-Policy": true, "Refresh": true, "Retry-After": true, "Server": true, "Server-Timing": true, "Set-Cookie": true,
		"Soapaction": true, "Status": true, "Strict-Transport-Security": true, "True-Client-Ip": true, "User-Agent": true,
		"Vary": true, "Via": true, "Warning": true, "Www-Authenticate": true, "X-Frame-Options": true, "X-Http-Method-Override": true, "X-Real-Ip": true,
		"X-Requested-With": true, "X-Client-Ip": true, "X-Cluster-Client-Ip": true, "X-Original-Url": true, "X-Rewrite-Url": true,
	}
	neededPrefixes = []string{"Accept", "Access-Control-", "Cf-", "Content-", "Cross-Origin-", "Fairshare-", "Fastly-", "Grpc-", "If-", "Proxy-", "Ratelimit", "Sec-", "X-Accel-", "X-Azure-", "X-Content-", "X-Forwarded-"}
)
