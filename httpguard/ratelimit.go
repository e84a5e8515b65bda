package httpguard

import (
	"strconv"
	"time"

	"fairshare"
)

// The RateLimit-Policy and RateLimit fields as draft-ietf-httpapi-ratelimit-headers
// defines them since revision 08. Only this file knows their form.

// Names of the fields, as net/http spells them.
const (
	policyField    = "Ratelimit-Policy"
	rateLimitField = "Ratelimit"
)

// A policyItem is the part of the fields for one rule.
type policyItem struct {
	name   string // the serialized name; "" for a rule that is left out
	policy *field // RateLimit-Policy if this is the only item
}

// newPolicyItem returns the item of a rule. It is empty for a rule that the
// fields cannot express: a window that is not whole seconds, or a resource without
// a registered quota unit. Clients would take errors for requests, and pace
// themselves by them.
func newPolicyItem(name string, l *fairshare.Limit) policyItem {
	if l == nil || l.Window%time.Second != 0 || l.CrawlDelay { // the amounts of a crawl delay are nominal
		return policyItem{}
	}
	unit := ""
	switch l.Resource {
	case fairshare.Requests:
	case fairshare.Concurrent:
		unit = `;qu="concurrent-requests"`
	case fairshare.Bytes:
		unit = `;qu="content-bytes"`
	default:
		return policyItem{}
	}
	item := policyItem{name: string(appendSFString(nil, name))}
	b := append([]byte(item.name), ";q="...)
	b = strconv.AppendInt(b, l.N, 10)
	b = append(b, unit...)
	if l.Window > 0 {
		b = append(b, ";w="...)
		b = strconv.AppendInt(b, int64(l.Window/time.Second), 10)
	}
	item.policy = newField(policyField, string(b))
	return item
}

// appendRateLimit appends the item of RateLimit: what is left, and for how many
// seconds it must last. A client that paces itself by them stays below the limit
// in the long run.
func (item *policyItem) appendRateLimit(b []byte, l *fairshare.Limit, t fairshare.Tally) []byte {
	left, until := int64(0), seconds(t.Wait)
	if !t.Over {
		left = min(max(l.Allowed()-t.Used, 0), l.N)
		until = seconds(max(t.Reset, l.Window))
	}
	b = append(b, item.name...)
	b = append(b, ";r="...)
	b = strconv.AppendInt(b, left, 10)
	if l.Resource != fairshare.Concurrent { // it is not known when a slot is given back
		b = append(b, ";t="...)
		b = strconv.AppendInt(b, until, 10)
	}
	return b
}

// appendSFString appends s as a String of RFC 9651 §4.1.6. That holds
// printable ASCII only; what lies outside is percent-encoded as UTF-8, and
// then "%" too.
func appendSFString(b []byte, s string) []byte {
	const hex = "0123456789ABCDEF"
	encode := false
	for i := 0; i < len(s); i++ {
		encode = encode || s[i] < 0x20 || s[i] > 0x7E
	}
	b = append(b, '"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c < 0x20 || c > 0x7E || c == '%' && encode:
			b = append(b, '%', hex[c>>4], hex[c&15])
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

// seconds rounds d up to whole seconds, at least 1.
func seconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return max(s, 1)
}
