package proxy

import (
	"fmt"
	"math"
	"strings"
)

// DefaultMaxCost is what a zero Config.MaxCost means.
const DefaultMaxCost = 1_000_000

// cost returns the units that a header of an answer reports: a number that is not
// negative, rounded up, at most most. Lines with different values report nothing.
func cost(lines []string, most int64) (units int64, reported bool) {
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
			if reported && one != units {
				return 0, false
			}
			units, reported = one, true
		}
	}
	return units, reported
}

// CheckCostHeader returns an error if a header cannot report costs. The header is
// removed from requests and answers, so it must not be one that they need: of the
// connection, the body and its framing, caches, cookies, conditions, credentials or
// the client's identity.
func CheckCostHeader(name string) error {
	switch canonical := fold(name); {
	case !ValidMetric(name):
		return fmt.Errorf("%q is not the name of a header", name)
	case !plain(name):
		return fmt.Errorf("%q: a header for costs has letters, digits, \"-\" and \"_\" only", name)
	case kindOf(canonical) != ordinary || needed[canonical]:
		return fmt.Errorf("%s cannot report costs: requests or answers need it", canonical)
	default:
		for _, prefix := range neededPrefixes {
			if strings.HasPrefix(canonical, prefix) {
				return fmt.Errorf("%s cannot report costs: requests or answers need the headers that begin with %s", canonical,
					prefix)
			}
		}
	}
	return nil
}

// plain reports whether a name reaches every kind of upstream unchanged, apart from
// "_".
func plain(name string) bool {
	for i := 0; i < len(name); i++ {
		if c := name[i]; !alphanumeric(c) && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// Headers that must not be removed.
var (
	needed = map[string]bool{
		"Age": true, "Allow": true, "Alt-Svc": true, "Authorization": true, "Cache-Control": true, "Cookie": true,
		"Date": true, "Dnt": true, "Etag": true, "Expires": true, "From": true, "Host": true, "Last-Modified": true,
		"Link": true, "Location": true, "Origin": true, "Pragma": true, "Range": true, "Referer": true,
		"Referrer-Policy": true, "Refresh": true, "Retry-After": true, "Server": true, "Server-Timing": true,
		"Set-Cookie": true,
		"Soapaction": true, "Status": true, "Strict-Transport-Security": true,
		"Vary": true, "Via": true, "Warning": true, "Www-Authenticate": true, "X-Frame-Options": true,
		"X-Requested-With": true,
	}
	neededPrefixes = []string{"Accept", "Access-Control-", "Cf-", "Content-", "Cross-Origin-", "Fastly-", "Grpc-",
		"If-", "Proxy-", "Ratelimit", "Sec-", "X-Accel-", "X-Azure-", "X-Content-"}
)
