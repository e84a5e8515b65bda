// Package prefixes reads lists of addresses from files and in the formats of operators, and keeps
// them up to date.
//
// Parse reads one list. A Keeper holds many, from files and URLs. It detects changes, keeps the
// last valid version of each list, and logs problems.
package prefixes

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"unicode/utf8"
)

const (
	// MaxSize is the most unpacked bytes of a list.
	MaxSize = 64 << 20
	// MaxPrefixes is the most prefixes of a list; each takes 32 bytes here, and about as much in a
	// table.
	MaxPrefixes = 2_000_000

	maxFaults = 3 // of a list are described
)

// A Fault is a line of a list that cannot be read.
type Fault struct {
	Line int // from 1
	Text string
}

// A ParseError says why a whole list was refused. One broken line is enough: it may mean an HTML
// page, half a file or another format, and a list that silently lacks entries is dangerous.
type ParseError struct {
	Faults []Fault // the first ones
	More   int     // further faults
}

func (e *ParseError) Error() string {
	var b strings.Builder
	for i, fault := range e.Faults {
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "line %d: %s", fault.Line, fault.Text)
	}
	switch {
	case e.More == 1:
		b.WriteString("; and 1 more line")
	case e.More > 1:
		fmt.Fprintf(&b, "; and %d more lines", e.More)
	}
	return b.String()
}

// Hint describes the valid formats.
func (e *ParseError) Hint() string {
	return "a list has one address, prefix or FIRST-LAST a line, with comments after # or ;, or is JSON in an operator's format"
}

var (
	errHTML  = errors.New("a page of HTML or XML, not a list of addresses")
	errUTF16 = errors.New("it is UTF-16: save it as UTF-8")
)

// Parse reads a list: text, or JSON if it begins with { or [, with or without gzip. Prefixes keep
// their order, are unmapped and masked, and may repeat. An empty list is not an error here.
//
// Text has one address, prefix or range (FIRST-LAST) a line. Text after
// # or ; is a comment; words and columns after the first are ignored, so that
// geofeeds (RFC 8805), DROP lists and the columns of other feeds can be read.
//
// Parse refuses a whole list (with *ParseError or another error) if it has a broken line or is
// beyond MaxSize or MaxPrefixes. It also refuses a prefix shorter than /8 with public addresses,
// which must be a mistake.
func Parse(data []byte) ([]netip.Prefix, error) {
	data, err := unpack(data, MaxSize)
	if err != nil {
		return nil, err
	}
	if bytes.HasPrefix(data, []byte{0xff, 0xfe}) || bytes.HasPrefix(data, []byte{0xfe, 0xff}) {
		return nil, errUTF16
	}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	var l list
	switch first := bytes.TrimLeft(data, "\xef\xbb\xbf\x00 \t\r\n"); {
	case len(first) == 0:
	case first[0] == '<':
		return nil, errHTML
	case first[0] == '{', first[0] == '[':
		err = l.json(data)
	default:
		err = l.text(string(data))
	}
	if err == nil && len(l.faults) > 0 {
		err = &ParseError{Faults: l.faults, More: l.more}
	}
	if err != nil {
		return nil, err
	}
	return l.prefixes, nil
}

// unpack decompresses gzip, recognized by its first bytes.
func unpack(data []byte, most int) ([]byte, error) {
	if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		r, err := gzip.NewReader(bytes.NewReader(data))
		if err == nil {
			data, err = io.ReadAll(io.LimitReader(r, int64(most)+1))
		}
		if err != nil {
			return nil, fmt.Errorf("gzip: %v", err)
		}
	}
	if len(data) > most {
		return nil, errSize(most)
	}
	return data, nil
}

func errSize(most int) error { return fmt.Errorf("it is larger than %d MiB", most>>20) }

// A list is the state of Parse.
type list struct {
	prefixes []netip.Prefix
	faults   []Fault
	more     int
}

func (l *list) fault(line int, format string, args ...any) {
	if len(l.faults) == maxFaults {
		l.more++
		return
	}
	l.faults = append(l.faults, Fault{line, fmt.Sprintf(format, args...)})
}

var errMany = errors.New("it has more than 2,000,000 prefixes, the most that a list may have") // MaxPrefixes

// add adds a masked prefix.
func (l *list) add(line int, p netip.Prefix) error {
	if tooWide(p) {
		l.fault(line, "%s is shorter than /8: such a large part of the Internet must be a mistake", p)
		return nil
	}
	if len(l.prefixes) == MaxPrefixes {
		return errMany
	}
	l.prefixes = append(l.prefixes, p)
	return nil
}

var globalUnicast = netip.MustParsePrefix("2000::/3")

// tooWide reports whether p is shorter than /8 and contains addresses that clients can have. Lists
// of reserved space ("bogons") contain 224.0.0.0/3 and fc00::/7, which are harmless.
func tooWide(p netip.Prefix) bool {
	switch {
	case p.Bits() >= 8:
		return false
	case p.Addr().Is4():
		return p.Addr().As4()[0] < 224
	}
	return p.Overlaps(globalUnicast)
}

// parseAddr reads an address without zone, unmapped.
func parseAddr(s string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(s)
	return addr.Unmap(), err == nil && addr.Zone() == ""
}

// quote shortens text of a list for a message.
func quote(s string) string {
	const most = 40
	if len(s) > most {
		cut := most
		for cut > 0 && !utf8.RuneStart(s[cut]) {
			cut--
		}
		return fmt.Sprintf("%q…", s[:cut])
	}
	return fmt.Sprintf("%q", s)
}
