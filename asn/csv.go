package asn

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"fairshare"
)

// columns says where a row has its values; −1 where it has none.
type columns struct {
	first, last, network, number, name, kind int
}

// columnNames are names of columns that publishers use, in lower case.
var columnNames = []struct {
	place func(*columns) *int
	names []string
}{
	{func(c *columns) *int { return &c.network }, []string{"network", "prefix", "cidr", "range"}},
	{func(c *columns) *int { return &c.first },
		[]string{"start_ip", "ip_range_start", "range_start", "start", "first"}},
	{func(c *columns) *int { return &c.last }, []string{"end_ip", "ip_range_end", "range_end", "end", "last"}},
	{func(c *columns) *int { return &c.number },
		[]string{"autonomous_system_number", "asn", "as_number", "as"}},
	{func(c *columns) *int { return &c.name },
		[]string{"autonomous_system_organization", "as_name", "as_organization", "organization", "org", "name",
			"as_description", "description", "entity"}},
	{func(c *columns) *int { return &c.kind }, []string{"type", "as_type", "asn_type", "usage_type"}},
}

// maxName bounds the name of an owner, in bytes.
const maxName = 200

// readCSV reads a table with a row for each range of addresses:
//
//	first, last, number, name
//	first, last, number, country, name
//	network, number, name
//
// or with the columns that the first row names. The separator is a comma, a tab
// or a semicolon.
func (b *builder) readCSV(r *bufio.Reader) error {
	if mark, _ := r.Peek(3); string(mark) == "\uFEFF" {
		r.Discard(3)
	}
	rows := csv.NewReader(r)
	rows.Comma, rows.Comment, rows.ReuseRecord, rows.FieldsPerRecord = separator(r), '#', true, -1
	rows.LazyQuotes, rows.TrimLeadingSpace = true, rows.Comma != '\t'
	var where columns
	for n := 0; ; n++ {
		row, err := rows.Read()
		if err == io.EOF {
			return nil
		}
		if broken := (*csv.ParseError)(nil); errors.As(err, &broken) {
			return fmt.Errorf("line %d: %w", broken.Line, broken.Err)
		}
		if err != nil {
			return err
		}
		line, _ := rows.FieldPos(0)
		if n == 0 {
			header, err := where.find(row)
			if err != nil {
				return fmt.Errorf("line %d: %w", line, err)
			}
			if header {
				continue
			}
		}
		if err := b.addRow(row, &where); err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
	}
}

// separator returns the separator of the first line.
func separator(r *bufio.Reader) rune {
	begin, _ := r.Peek(r.Size())
	first, _, _ := strings.Cut(string(begin), "\n")
	for _, c := range "\t,;" {
		if strings.ContainsRune(first, c) {
			return c
		}
	}
	return ','
}

// find finds the columns by the first row, and reports whether it is a header.
func (c *columns) find(row []string) (header bool, err error) {
	*c = columns{-1, -1, -1, -1, -1, -1}
	if _, _, err := parseRange(row[0]); err == nil {
		return false, c.guess(row)
	}
	for _, column := range columnNames {
		for _, name := range column.names {
			i := slices.IndexFunc(row, func(s string) bool { return strings.EqualFold(strings.TrimSpace(s), name) })
			if i >= 0 {
				*column.place(c) = i
				break
			}
		}
	}
	if c.network < 0 && (c.first < 0 || c.last < 0) || c.number < 0 {
		return false, fmt.Errorf("%w: %s begins neither with an address nor does it name the columns: "+
			"network (or start_ip and end_ip), asn and name", errNoOwners, quote(strings.Join(row, ",")))
	}
	return true, nil
}

// guess finds the columns of a table without a header.
func (c *columns) guess(row []string) error {
	rest := 1
	c.network = 0
	if len(row) > 2 && !strings.Contains(row[0], "/") {
		if _, err := netip.ParseAddr(row[1]); err == nil {
			c.network, c.first, c.last, rest = -1, 0, 1, 2
		}
	}
	if len(row) <= rest {
		return errors.New("the number of the autonomous system is missing")
	}
	c.number = rest
	switch rest++; {
	case len(row) == rest+2 && (len(row[rest]) == 2 || row[rest] == "None" || row[rest] == ""): // a country
		c.name = rest + 1
	case len(row) > rest:
		c.name = rest
	}
	return nil
}

// at returns the value of a column, "" if the row has none.
func at(row []string, column int) string {
	if column < 0 || column >= len(row) {
		return ""
	}
	return strings.TrimSpace(row[column])
}

// addRow adds the owner of one row. Rows without an owner are passed over.
func (b *builder) addRow(row []string, where *columns) error {
	var first, last netip.Addr
	var err error
	if where.network >= 0 {
		first, last, err = parseRange(at(row, where.network))
	} else if first, err = parseAddr(at(row, where.first)); err == nil {
		last, err = parseAddr(at(row, where.last))
	}
	if err != nil {
		return err
	}
	text := at(row, where.number)
	if text == "" || text == "-" || strings.EqualFold(text, "none") {
		return nil
	}
	number, ok := fairshare.ASNumber(text)
	if !ok {
		return fmt.Errorf("%s is not the number of an autonomous system, such as AS13335", quote(text))
	}
	if number == 0 { // RFC 7607: nobody routes it
		return nil
	}
	return b.add(first, last, b.owner(newOwner(number, at(row, where.name), at(row, where.kind))))
}

// newOwner returns an owner whose texts are fit to be shown.
func newOwner(number uint32, name, kind string) fairshare.Owner {
	return fairshare.Owner{ASN: number, Name: clean(name), Type: strings.ToLower(clean(kind))}
}

// clean cuts a text, and removes control characters and invalid UTF-8.
func clean(s string) string {
	if len(s) > maxName {
		s = s[:maxName]
	}
	s = strings.ToValidUTF8(s, "")
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7F && r < 0xA0 || r == '\u2028' || r == '\u2029' {
			return -1
		}
		return r
	}, s))
}

func parseAddr(s string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(s)
	if err != nil {
		return addr, fmt.Errorf("%s is not an address", quote(s))
	}
	return addr, nil
}

// parseRange reads a prefix, an address, or "first-last".
func parseRange(s string) (first, last netip.Addr, err error) {
	if from, to, ok := strings.Cut(s, "-"); ok {
		if first, err = parseAddr(strings.TrimSpace(from)); err == nil {
			last, err = parseAddr(strings.TrimSpace(to))
		}
		return first, last, err
	}
	if !strings.Contains(s, "/") {
		first, err = parseAddr(s)
		return first, first, err
	}
	prefix, err := netip.ParsePrefix(s)
	if err != nil {
		return first, last, fmt.Errorf("%s is not a network", quote(s))
	}
	first, last = ends(prefix)
	return first, last, nil
}

// ends returns the first and the last address of a prefix.
func ends(p netip.Prefix) (first, last netip.Addr) {
	first = p.Masked().Addr()
	b := first.AsSlice()
	for i := range b {
		if bits := p.Bits() - 8*i; bits < 8 {
			b[i] |= 0xFF >> max(bits, 0)
		}
	}
	last, _ = netip.AddrFromSlice(b)
	return first, last
}
