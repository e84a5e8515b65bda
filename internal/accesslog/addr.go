package accesslog

import (
	"bytes"
	"net/netip"
)

// parseAddr reads an IP address: IPv4, IPv6, in brackets, with a port, with a
// zone. The result is unmapped and has no zone.
func parseAddr(b []byte) (netip.Addr, bool) {
	if a, n := parseIPv4(b); n > 0 {
		if n == len(b) || b[n] == ':' && isPort(b[n+1:]) {
			return a, true
		}
		return netip.Addr{}, false
	}
	if len(b) > 0 && b[0] == '[' {
		end := bytes.IndexByte(b, ']')
		if end < 0 || end+1 < len(b) && (b[end+1] != ':' || !isPort(b[end+2:])) {
			return netip.Addr{}, false
		}
		return parseIPv6(b[1:end])
	}
	if a, ok := parseIPv6(b); ok {
		return a, true
	}
	if bytes.Count(b, colon) == 8 { // eight groups and a port, no brackets
		return parseAddrPort(b)
	}
	return netip.Addr{}, false
}

// parseAddrPort reads an address with a port after the last colon, with or without brackets.
func parseAddrPort(b []byte) (netip.Addr, bool) {
	i := bytes.LastIndexByte(b, ':')
	if i < 0 || !isPort(b[i+1:]) {
		return netip.Addr{}, false
	}
	b = b[:i]
	if a, n := parseIPv4(b); n > 0 {
		return a, n == len(b)
	}
	if len(b) > 1 && b[0] == '[' && b[len(b)-1] == ']' {
		b = b[1 : len(b)-1]
	}
	return parseIPv6(b)
}

// parseIPv4 reads a dotted address at the start of b and returns its length,
// 0 if there is none. Leading zeros are refused, as netip does.
func parseIPv4(b []byte) (netip.Addr, int) {
	ip, i := uint32(0), 0
	for part := 0; ; part++ {
		if i >= len(b) || b[i]-'0' > 9 {
			return netip.Addr{}, 0
		}
		n := uint32(b[i] - '0')
		i++
		leading := n == 0
		if i < len(b) && b[i]-'0' <= 9 {
			n = 10*n + uint32(b[i]-'0')
			if i++; i < len(b) && b[i]-'0' <= 9 {
				n = 10*n + uint32(b[i]-'0')
				i++
			}
			if leading || n > 255 {
				return netip.Addr{}, 0
			}
		}
		if ip = ip<<8 | n; part == 3 {
			return netip.AddrFrom4([4]byte{byte(ip >> 24), byte(ip >> 16), byte(ip >> 8), byte(ip)}), i
		}
		if i >= len(b) || b[i] != '.' {
			return netip.Addr{}, 0
		}
		i++
	}
}

var colon = []byte{':'}

func parseIPv6(b []byte) (netip.Addr, bool) {
	if len(b) < 2 || len(b) > 100 || bytes.IndexByte(b, ':') < 0 {
		return netip.Addr{}, false // a failing ParseAddr allocates, so reject host names first
	}
	if i := bytes.IndexByte(b, '%'); i >= 0 {
		if i+1 == len(b) {
			return netip.Addr{}, false
		}
		b = b[:i]
	}
	a, err := netip.ParseAddr(str(b))
	if err != nil {
		return netip.Addr{}, false
	}
	return a.Unmap(), true
}

func isPort(b []byte) bool {
	if len(b) == 0 || len(b) > 5 {
		return false
	}
	for _, c := range b {
		if c-'0' > 9 {
			return false
		}
	}
	return true
}

// isAddrList reports whether b is a list of addresses without ports, such as an X-Forwarded-For
// field: at least one address, separated by commas; "unknown" is allowed too.
func isAddrList(b []byte) bool {
	found := false
	for len(b) > 0 {
		item := b
		if i := bytes.IndexByte(b, ','); i >= 0 {
			item, b = b[:i], b[i+1:]
		} else {
			b = nil
		}
		item = bytes.Trim(item, " ")
		if _, n := parseIPv4(item); n > 0 && n == len(item) {
			found = true
		} else if _, ok := parseIPv6(item); ok {
			found = true
		} else if string(item) != "unknown" {
			return false
		}
	}
	return found
}
