package clientaddr

import (
	"net/netip"
	"strings"
)

// Canonical returns the form of an address under which a client is known:
// IPv4-mapped IPv6 becomes IPv4, and a zone is dropped. An IPv4 address that
// NAT64 embedded in 64:ff9b::/96 is extracted (RFC 6052 §2.1), so that the
// clients behind one translator stay distinct. An unspecified address (0.0.0.0,
// ::) becomes invalid.
func Canonical(addr netip.Addr) netip.Addr {
	addr = translate(plain(addr))
	if addr.IsUnspecified() {
		return netip.Addr{}
	}
	return addr
}

// plain unmaps an address and drops its zone. No prefix contains an address
// that is mapped or has a zone.
func plain(addr netip.Addr) netip.Addr {
	addr = addr.Unmap()
	if addr.Is6() && addr.Zone() != "" {
		addr = addr.WithZone("")
	}
	return addr
}

var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// translate undoes NAT64. It leaves an embedded address that is not public as it
// is (RFC 6052 §3.1): otherwise any IPv6 client could pass for 127.0.0.1.
func translate(addr netip.Addr) netip.Addr {
	if !addr.Is6() {
		return addr
	}
	b := addr.As16()
	if b[0] != 0 || b[1] != 0x64 || !nat64.Contains(addr) {
		return addr
	}
	v4 := netip.AddrFrom4([4]byte(b[12:]))
	if b[12] == 0 || v4.IsPrivate() || v4.IsLoopback() || v4.IsLinkLocalUnicast() || sharedIPv4.Contains(v4) ||
		b[12] >= 224 {
		return addr
	}
	return v4
}

var sharedIPv4 = netip.MustParsePrefix("100.64.0.0/10") // RFC 6598

// parsePeer reads http.Request.RemoteAddr. The address is invalid for a Unix
// socket and for text that is not an address.
func parsePeer(peer string) (addr netip.Addr, unix bool) {
	if isUnix(peer) {
		return netip.Addr{}, true
	}
	addr, _ = parseElement(peer, false)
	return addr, false
}

// isUnix reports whether the text of a peer means a Unix socket.
func isUnix(peer string) bool {
	return peer == "" || peer[0] == '@' || peer[0] == '/' || strings.HasPrefix(peer, "unix:")
}

// maxElement is the longest text that is read as an address, in bytes. It fits
// IPv6 in brackets with a port and an interface name as its zone.
const maxElement = 100

// parseElement reads ip, ip:port, [v6] or [v6]:port. The zone is dropped;
// unspecified addresses are refused. obf allows the obfuscated ports of RFC
// 7239, such as "192.0.2.1:_gazonk".
func parseElement(s string, obf bool) (netip.Addr, bool) {
	if len(s) < 2 || len(s) > maxElement {
		return netip.Addr{}, false
	}
	if addr, ok := parseIPv4(s); ok {
		return addr, true
	}
	host, port, hasPort := s, "", false
	bracketed := s[0] == '['
	if bracketed {
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return netip.Addr{}, false
		}
		host, port = s[1:end], s[end+1:]
		if port != "" {
			if port[0] != ':' {
				return netip.Addr{}, false
			}
			port, hasPort = port[1:], true
		}
	} else if i := strings.IndexByte(s, ':'); i >= 0 && strings.LastIndexByte(s, ':') == i {
		host, port, hasPort = s[:i], s[i+1:], true
	}
	if hasPort && !validPort(port, obf) {
		return netip.Addr{}, false
	}
	if i := strings.IndexByte(host, '%'); i >= 0 {
		// The zone is cut off before parsing: netip would keep it in memory forever.
		if zone := host[i+1:]; zone == "" || strings.ContainsAny(zone, " \t/[]:%") ||
			strings.IndexByte(host[:i], ':') < 0 {
			return netip.Addr{}, false
		}
		host = host[:i]
	}
	addr, err := netip.ParseAddr(host)
	if err != nil || bracketed && addr.Is4() {
		return netip.Addr{}, false
	}
	addr = addr.Unmap()
	return addr, !addr.IsUnspecified()
}

// parseIPv4 is parseElement for what most peers have: an IPv4 address, alone or with a port. It is
// cheaper, and returns false for all else, even if that is an address too.
func parseIPv4(s string) (addr netip.Addr, ok bool) {
	var b [4]byte
	for i, from, n, part := 0, 0, 0, 0; ; i++ {
		c := byte(':') // as if a port followed at the end
		if i < len(s) {
			c = s[i]
		}
		if d := c - '0'; d <= 9 {
			n = 10*n + int(d)
			continue
		}
		if i == from || i > from+3 || n > 255 || s[from] == '0' && i > from+1 {
			return netip.Addr{}, false
		}
		b[part] = byte(n)
		if c == '.' && part < 3 {
			from, n, part = i+1, 0, part+1
			continue
		}
		if part < 3 || b == [4]byte{} || i < len(s) && (c != ':' || !validPort(s[i+1:], false)) {
			return netip.Addr{}, false
		}
		return netip.AddrFrom4(b), true
	}
}

// validPort reports whether s is a port: a number up to 65535 or, with obf, an
// underscore and at least one more character (RFC 7239 §6.3).
func validPort(s string, obf bool) bool {
	if obf && len(s) > 1 && s[0] == '_' {
		for i := 1; i < len(s); i++ {
			if c := s[i]; (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
				return false
			}
		}
		return true
	}
	if s == "" || len(s) > 5 {
		return false
	}
	n := 0
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
		n = n*10 + int(s[i]-'0')
	}
	return n <= 65535
}

// maxText is the longest element of a header that is read, in bytes with blanks
// and parameters. It bounds the work on a header of any length. Common proxies
// accept no element that long from a client.
const maxText = 16 << 10

// lastListed cuts the rightmost element off a comma-separated list. more
// reports whether there was a comma before it.
func lastListed(list string) (addr netip.Addr, rest string, more, ok bool) {
	from := max(len(list)-maxText, 0)
	comma := from + strings.LastIndexByte(list[from:], ',')
	if comma < from {
		if from > 0 {
			return netip.Addr{}, "", false, false
		}
		addr, ok = parseElement(trim(list), false)
		return addr, "", false, ok
	}
	addr, ok = parseElement(trim(list[comma+1:]), false)
	return addr, list[:comma], true, ok
}

// trim removes the blanks at both ends (OWS, RFC 9110 §5.6.3).
func trim(s string) string {
	for s != "" && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for s != "" && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}
