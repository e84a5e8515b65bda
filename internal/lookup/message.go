package lookup

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/net/dns/dnsmessage"
)

// Bounds on one answer.
const (
	maxNames   = 5   // most PTR names of one address
	maxNamed   = 512 // most bytes of these names together
	maxAliases = 8   // most CNAME steps in one answer
)

// records are the records that answer the question, after following aliases. None, without an
// error: the server says that there are none.
type records struct {
	names []string     // of PTR records: valid host names, lower case, no final dot; at most maxNames
	addrs []netip.Addr // of A and AAAA records, unmapped
}

var (
	errForeign   = errors.New("not an answer to the question")
	errMalformed = errors.New("malformed answer")
	errAliases   = errors.New("endless aliases")
	errReferral  = errors.New("the server does not resolve names for us")
	errTruncated = errors.New("truncated answer")
)

// An rcodeError is the error code with which a server refuses or fails to answer.
type rcodeError dnsmessage.RCode

func (e rcodeError) Error() string {
	switch dnsmessage.RCode(e) {
	case dnsmessage.RCodeFormatError:
		return "the server answers FORMERR"
	case dnsmessage.RCodeServerFailure:
		return "the server answers SERVFAIL"
	case dnsmessage.RCodeNotImplemented:
		return "the server answers NOTIMP"
	case dnsmessage.RCodeRefused:
		return "the server answers REFUSED"
	}
	return fmt.Sprintf("the server answers code %d", uint16(e))
}

// appendQuery appends the message with the question q.
func appendQuery(b []byte, id uint16, q dnsmessage.Question) ([]byte, error) {
	builder := dnsmessage.NewBuilder(b, dnsmessage.Header{ID: id, RecursionDesired: true})
	if err := builder.StartQuestions(); err != nil {
		return nil, err
	}
	if err := builder.Question(q); err != nil {
		return nil, err
	}
	return builder.Finish()
}

// parse reads a message as the answer to q. errForeign: it does not answer q, and the answer may
// still come. errTruncated: ask again over TCP.
func parse(message []byte, id uint16, q dnsmessage.Question) (records, error) {
	var p dnsmessage.Parser
	h, err := p.Start(message)
	if err != nil || h.ID != id || !h.Response || h.OpCode != 0 {
		return records{}, errForeign
	}
	asked, err := p.Question()
	if err != nil || asked.Type != q.Type || asked.Class != q.Class || lower(asked.Name) != lower(q.Name) {
		return records{}, errForeign
	}
	if p.SkipQuestion() != dnsmessage.ErrSectionDone {
		return records{}, errForeign
	}
	switch {
	case h.Truncated:
		return records{}, errTruncated
	case h.RCode == dnsmessage.RCodeNameError:
		return records{}, nil
	case h.RCode != dnsmessage.RCodeSuccess:
		return records{}, rcodeError(h.RCode)
	}
	owner, aliased, err := target(p, lower(q.Name))
	if err != nil {
		return records{}, err
	}
	found, err := collect(p, owner, q.Type)
	if err != nil {
		return records{}, err
	}
	none := len(found.names) == 0 && len(found.addrs) == 0
	if none && !h.RecursionAvailable && (aliased || !h.Authoritative) {
		return records{}, errReferral // it only refers to another server
	}
	return found, nil
}

// target follows the aliases of name in the answer section.
func target(p dnsmessage.Parser, name string) (owner string, aliased bool, err error) {
	var aliases [maxAliases + 1][2]string
	n := 0
	for {
		h, err := p.AnswerHeader()
		if err == dnsmessage.ErrSectionDone {
			break
		}
		if err != nil {
			return "", false, errMalformed
		}
		if h.Type != dnsmessage.TypeCNAME || h.Class != dnsmessage.ClassINET {
			if p.SkipAnswer() != nil {
				return "", false, errMalformed
			}
			continue
		}
		alias, err := p.CNAMEResource()
		if err != nil {
			return "", false, errMalformed
		}
		if n == len(aliases) {
			return "", false, errAliases
		}
		aliases[n] = [2]string{lower(h.Name), lower(alias.CNAME)}
		n++
	}
	for range maxAliases {
		next := name
		for _, a := range aliases[:n] {
			if a[0] == name {
				next, aliased = a[1], true
				break
			}
		}
		if next == name {
			for _, a := range aliases[:n] {
				if a[0] == name { // an alias of itself
					return "", false, errAliases
				}
			}
			return name, aliased, nil
		}
		name = next
	}
	return "", false, errAliases
}

// collect returns owner's records of one kind from the answer section. PTR records without a valid
// host name are skipped.
func collect(p dnsmessage.Parser, owner string, kind dnsmessage.Type) (records, error) {
	var found records
	size := 0
	for {
		h, err := p.AnswerHeader()
		if err == dnsmessage.ErrSectionDone {
			return found, nil
		}
		if err != nil {
			return records{}, errMalformed
		}
		if h.Type != kind || h.Class != dnsmessage.ClassINET || lower(h.Name) != owner {
			if p.SkipAnswer() != nil {
				return records{}, errMalformed
			}
			continue
		}
		switch kind {
		case dnsmessage.TypePTR:
			ptr, err := p.PTRResource()
			if err != nil { // for example a dot within a label
				if p.SkipAnswer() != nil {
					return records{}, errMalformed
				}
				continue
			}
			host, ok := hostname(lower(ptr.PTR))
			if ok && len(found.names) < maxNames && size+len(host) <= maxNamed && !contains(found.names, host) {
				found.names = append(found.names, host)
				size += len(host)
			}
		case dnsmessage.TypeA:
			a, err := p.AResource()
			if err != nil {
				return records{}, errMalformed
			}
			found.addrs = append(found.addrs, netip.AddrFrom4(a.A))
		case dnsmessage.TypeAAAA:
			a, err := p.AAAAResource()
			if err != nil {
				return records{}, errMalformed
			}
			found.addrs = append(found.addrs, netip.AddrFrom16(a.AAAA).Unmap())
		default:
			if p.SkipAnswer() != nil {
				return records{}, errMalformed
			}
		}
	}
}

func contains(names []string, name string) bool {
	for _, n := range names {
		if n == name {
			return true
		}
	}
	return false
}

// lower returns a name with only the letters A to Z changed to lower case.
func lower(n dnsmessage.Name) string {
	b := n.Data[:n.Length]
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// hostname strips the final dot of a lower-case name, and reports whether it is a host name. A host
// name has at most 253 bytes, and labels of letters, digits, hyphens and underscores. The last
// label is not a number, so an address is not a host name.
func hostname(name string) (string, bool) {
	if n := len(name); n > 0 && name[n-1] == '.' {
		name = name[:n-1]
	}
	if name == "" || len(name) > 253 {
		return "", false
	}
	label, digits := 0, true // state of the current label
	for i := range len(name) {
		c := name[i]
		switch {
		case c == '.':
			if label == 0 || name[i-1] == '-' {
				return "", false
			}
			label, digits = 0, true
			continue
		case '0' <= c && c <= '9':
		case 'a' <= c && c <= 'z', c == '_':
			digits = false
		case c == '-' && label > 0:
			digits = false
		default:
			return "", false
		}
		if label++; label > 63 {
			return "", false
		}
	}
	return name, label > 0 && !digits && name[len(name)-1] != '-'
}

const hexDigits = "0123456789abcdef"

// appendReversed appends the DNS labels of an address, each with its dot. They are octets of IPv4
// or nibbles of IPv6, the last one first (RFC 1035 §3.5, RFC 3596 §2.5, RFC 5782 §2.1 and §2.4).
func appendReversed(b []byte, addr netip.Addr) []byte {
	if addr.Is4() {
		octets := addr.As4()
		for i := len(octets) - 1; i >= 0; i-- {
			b = fmt.Append(b, octets[i])
			b = append(b, '.')
		}
		return b
	}
	octets := addr.As16()
	for i := len(octets) - 1; i >= 0; i-- {
		b = append(b, hexDigits[octets[i]&15], '.', hexDigits[octets[i]>>4], '.')
	}
	return b
}

// reverseName returns the name, with its final dot, whose PTR records name addr.
func reverseName(addr netip.Addr) string {
	b := appendReversed(make([]byte, 0, 80), addr)
	if addr.Is4() {
		return string(append(b, "in-addr.arpa."...))
	}
	return string(append(b, "ip6.arpa."...))
}
