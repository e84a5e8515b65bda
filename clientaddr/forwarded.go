package clientaddr

import (
	"net/netip"
	"strings"
)

// lastForwarded cuts the rightmost element off a Forwarded header (RFC 7239 §4).
// Commas and semicolons inside quotes do not separate elements.
//
// It reads from the right. If it read from the left, a client could open a quote
// and never close it; the elements that proxies append would become part of the
// quoted text, and the client would be hidden. The text that a proxy appends is
// well formed and starts with a comma. So from the right, its quotes pair up
// before the client's text begins.
//
// ok is false for an element without a readable address: no "for" or two of
// them, "unknown", "_obfuscated", broken quotes, or longer than maxText.
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

// Forwarded returns the host and proto that the Forwarded header of a trusted
// peer states for the client's request. They come from the last element that
// Resolve reads, are "" if it lacks them, and may be any text.
func (r *Resolver) Forwarded(values []string) (host, proto string) {
	seen := 0
	for i := len(values) - 1; i >= 0; i-- {
		rest, more := values[i], true
		for more {
			list := rest
			var addr netip.Addr
			var ok bool
			if addr, rest, more, ok = lastForwarded(list); !ok {
				return host, proto
			}
			element := list
			if more {
				element = list[len(rest)+1:]
			}
			host, proto = parameter(element, "host"), parameter(element, "proto")
			if seen++; seen == maxElements || !r.holds(addr, translate(addr)) {
				return host, proto
			}
		}
	}
	return host, proto
}

// parameter returns the value of a parameter of an element, without quotes. It
// returns "" if the parameter is missing, comes twice or contains a backslash.
func parameter(element, name string) (value string) {
	found := false
	for end := len(element); ; {
		start, separator, closed := lastSeparator(element[:end])
		if !closed {
			return ""
		}
		if key, v, _ := strings.Cut(trim(element[start:end]), "="); strings.EqualFold(key, name) {
			if found || strings.IndexByte(v, '\\') >= 0 {
				return ""
			}
			found, value = true, v
		}
		if separator != ';' {
			return strings.TrimPrefix(strings.TrimSuffix(value, `"`), `"`)
		}
		end = start - 1
	}
}

// lastSeparator finds the last comma or semicolon of s outside quotes. start is
// the index after it; separator is 0 if there is none. closed is false if a
// quote is never closed.
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

// openingQuote returns the index of the quote that opens the quoted text at the
// end of s, -1 if there is none. A quote after an odd number of backslashes is
// part of the text.
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

// parseNode reads a node of RFC 7239 §6, quoted or not. IPv6 needs brackets and
// quotes there; like other software, parseNode accepts it without them.
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
