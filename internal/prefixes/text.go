package prefixes

import (
	"net/netip"
	"strconv"
	"strings"

	"fairshare/internal/network"
)

// text reads a list of lines.
func (l *list) text(s string) error {
	l.prefixes = make([]netip.Prefix, 0, min(strings.Count(s, "\n")+1, 1<<16))
	data := false // a line with data has been seen
	for number := 1; len(s) > 0; number++ {
		var line string
		if line, s, _ = strings.Cut(s, "\n"); line == "" {
			continue
		}
		if cut := strings.IndexAny(line, "#;"); cut >= 0 {
			line = line[:cut]
		}
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "//") {
			continue
		}
		header := !data && isHeader(line)
		data = true
		if header {
			continue
		}
		if err := l.line(number, line); err != nil {
			return err
		}
	}
	return nil
}

// line reads a line that is not empty.
func (l *list) line(number int, line string) error {
	first, rest := column(line)
	if p, err := network.Parse(first); err == nil {
		second, rest := column(rest)
		switch {
		case second == "":
		case second == "-": // FIRST - LAST
			last, _ := column(rest)
			return l.span(number, first, last)
		case strings.ContainsAny(second, ".:"):
			if last, ok := parseAddr(second); ok && p.IsSingleIP() {
				return l.columns(number, line, p.Addr(), last, rest)
			}
		}
		return l.add(number, p)
	}
	if from, to, ok := strings.Cut(first, "-"); ok {
		if to == "" {
			to, _ = column(rest)
		}
		return l.span(number, from, to)
	}
	switch {
	case strings.Contains(first, "%"):
		l.fault(number, "%s has a zone: remove %% and the text after it", quote(first))
	default:
		l.fault(number, "%s is neither an address nor a prefix", quote(first))
	}
	return nil
}

// columns reads FIRST LAST BITS, the format of some block lists. Two addresses without BITS are
// refused, because they may be a range, a mask or two clients.
func (l *list) columns(number int, line string, first, last netip.Addr, rest string) error {
	third, _ := column(rest)
	if bits, err := strconv.Atoi(third); err == nil {
		if p, err := first.Prefix(bits); err == nil && p.Addr() == first && p == spanned(first, last) {
			return l.add(number, p)
		}
	}
	l.fault(number, "%s has two addresses: write one a line, or FIRST-LAST for a range", quote(line))
	return nil
}

// column cuts the first column off a line. Columns are separated by white space, a comma or a bar,
// and may be quoted.
func column(line string) (first, rest string) {
	line = strings.TrimLeft(line, " \t\r,|")
	if strings.HasPrefix(line, `"`) {
		first, rest, _ = strings.Cut(line[1:], `"`)
		return strings.TrimSpace(first), rest
	}
	cut := strings.IndexAny(line, " \t\r,|")
	if cut < 0 {
		return line, ""
	}
	return line[:cut], line[cut:]
}

// isHeader reports whether a line names the columns of a table.
func isHeader(line string) bool {
	if !strings.ContainsAny(line, ",\t") {
		return false
	}
	first, _ := column(line)
	return first != "" && strings.IndexFunc(first, func(r rune) bool {
		return r != '_' && r != '-' && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) < 0
}

// span adds all addresses from one to another, inclusive.
func (l *list) span(number int, from, to string) error {
	first, ok := parseAddr(from)
	last, ok2 := parseAddr(to)
	if !ok || !ok2 || first.BitLen() != last.BitLen() || last.Less(first) {
		l.fault(number, "%s is not a range of addresses", quote(from+"-"+to))
		return nil
	}
	fits := func(bits int) bool {
		p, _ := first.Prefix(bits)
		return p.Addr() == first && !last.Less(lastOf(p))
	}
	for bits := first.BitLen(); ; {
		// The shortest prefix that begins at first and does not exceed last is about as long as the
		// one before.
		for !fits(bits) {
			bits++
		}
		for bits > 0 && fits(bits-1) {
			bits--
		}
		p := netip.PrefixFrom(first, bits)
		if err := l.add(number, p); err != nil {
			return err
		}
		end := lastOf(p)
		if end == last {
			return nil
		}
		first = end.Next()
	}
}

// spanned returns the prefix that begins and ends with these addresses; the zero Prefix if there is
// none.
func spanned(first, last netip.Addr) netip.Prefix {
	for bits := 0; bits <= first.BitLen(); bits++ {
		if p, _ := first.Prefix(bits); p.Addr() == first && lastOf(p) == last {
			return p
		}
	}
	return netip.Prefix{}
}

// lastOf returns the last address of a masked prefix.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().As16()
	bits := p.Bits()
	if p.Addr().Is4() {
		bits += 96
	}
	for i := bits; i < 128; {
		if i%8 == 0 {
			b[i/8] = 0xff
			i += 8
		} else {
			b[i/8] |= 1 << (7 - i%8)
			i++
		}
	}
	last := netip.AddrFrom16(b)
	if p.Addr().Is4() {
		return last.Unmap()
	}
	return last
}
