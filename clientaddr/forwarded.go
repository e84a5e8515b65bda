package clientaddr

import (
	"net/netip"
	"strings"
)

// lastForwarded takes the rightmost element off a Forwarded header (RFC 7239
// §4), in which commas and semicolons may stand inside quotes.
//
// It reads from the right. Read from the left, a quote that a client opened
// and never closed would swallow what the proxies append, and hide the client
// behind them. What a proxy appends is well formed and starts with a comma, so
// that from the right the quotes in it pair up before the client's text is met.
//
// ok is false for an element without a readable address: no for, two of them,
// unknown, _obfuscated, broken quotes, or longer than maxText.
func lastForwarded(list string) (addr netip.Addr, rest string, more, ok bool) {
	found, bad := false, false
	from, end := max(len(list)-maxText, 0), len(list)
	for {
		start, separator, closed := lastSeparator(list[from:end])
		if !closed || separator == 0 && from > 0 {
			return netip.Addr{}, "", false, false
		}
		start += from
		name, value, hasValue := strings.Cut(trim(list[start:end]), "=")
		if hasValue && strings.EqualFold(name, "for") {
			bad = bad || found
			found = true
			if addr, ok = parseNode(value); !ok {
				bad = true
			}
		}
		if separator != ';' {
			if separator == ',' {
				rest, more = list[:start-1], true
			}
			return addr, rest, more, found && !bad
		}
		end = start - 1
	}
}

// lastSeparator finds the last comma or semicolon of s outside quotes: start
// is the place after it, separator is 0 when there is none. closed is false
// when a quote has no partner.
func lastSeparator(s string) (start int, separator byte, closed bool) {
	for i := len(s) - 1; i >= 0; i-- {
		switch s[i] {
		case ',', ';':
			return i + 1, s[i], true
		case '"':
			if i = openingQuote(s[:i]); i < 0 {
				return 0, 0, false
			}
		}
	}
	return 0, 0, true
}

// openingQuote finds the quote that opens the text s ends with, -1 when there
// is none. One behind an odd number of backslashes is part of the text.
func openingQuote(s string) int {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] != '"' {
			continue
		}
		backslashes := 0
		for i-backslashes > 0 && s[i-backslashes-1] == '\\' {
			backslashes++
		}
		if backslashes%2 == 0 {
			return i
		}
		i -= backslashes
	}
	return -1
}

// parseNode reads a node of RFC 7239 §6, quoted or not. IPv6 should stand in
// brackets and quotes; both are forgiven, as in other software.
func parseNode(s string) (netip.Addr, bool) {
	if s == "" || s[0] != '"' {
		if strings.IndexByte(s, '"') >= 0 {
			return netip.Addr{}, false
		}
		return parseElement(s, true)
	}
	if len(s) < 2 || s[len(s)-1] != '"' {
		return netip.Addr{}, false
	}
	s = s[1 : len(s)-1]
	if strings.IndexByte(s, '\\') < 0 {
		return parseElement(s, true)
	}
	var unescaped [maxElement]byte
	n := 0
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			if i++; i == len(s) {
				return netip.Addr{}, false
			}
		}
		if n == len(unescaped) {
			return netip.Addr{}, false
		}
		unescaped[n] = s[i]
		n++
	}
	return parseElement(string(unescaped[:n]), true)
}
