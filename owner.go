package fairshare

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// An Owner is the organization that an address belongs to: the autonomous
// system (AS) that announces it. The zero Owner is nobody known.
type Owner struct {
	ASN  uint32 // number of the autonomous system; 0: nobody is known
	Name string // as the table of owners spells it; "" when not known
	Type string // in lower case, as "hosting" or "isp"; "" when not known
}

// String returns the owner as reports spell it: "AS64500 Example Hosting".
func (o Owner) String() string {
	if o.ASN == 0 {
		return ""
	}
	return strings.TrimSpace(fmt.Sprintf("AS%d %s", o.ASN, o.Name))
}

// asn returns the number of the owner by which requests are counted; 0: the
// address is not proved, or nobody is known to own it.
func (r *Request) asn() uint32 {
	if r.Via.IsValid() || r.Proxy {
		return 0
	}
	return r.Owner.ASN
}

// An ownerTest is a compiled Match.ASN.
type ownerTest struct {
	numbers []uint32  // sorted
	texts   []pattern // of types and names
}

// ASNumber reads the number of an autonomous system as [Match.ASN] spells it:
// "AS64500" or "64500".
func ASNumber(s string) (number uint32, ok bool) {
	if len(s) > 2 && strings.EqualFold(s[:2], "as") {
		s = s[2:]
	}
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err == nil && s[0] != '+'
}

var errASNZero = errors.New("AS0 owns no address")

func newOwnerTest(texts []string) (*ownerTest, error) {
	t := &ownerTest{}
	var words []string
	for _, text := range texts {
		number, ok := ASNumber(text)
		switch {
		case !ok:
			words = append(words, text)
		case number == 0:
			return t, errASNZero
		default:
			t.numbers = append(t.numbers, number)
		}
	}
	slices.Sort(t.numbers)
	var err error
	t.texts, err = newPatterns(words, globFold)
	return t, err
}

// holds reports whether one of the texts fits an owner. fold returns a text in
// lower case.
func (t *ownerTest) holds(o *Owner, fold func(string) string) bool {
	if o.ASN == 0 {
		return false
	}
	if _, found := slices.BinarySearch(t.numbers, o.ASN); found {
		return true
	}
	return len(t.texts) > 0 &&
		(o.Type != "" && matchAny(t.texts, o.Type, o.Type) || matchAny(t.texts, o.Name, fold(o.Name)))
}

// holdsOwner looks at the owner of a provisional address too, but not in a
// permission: its peer may have made it up.
func (c *condition) holdsOwner(d *decision) bool {
	req := d.req
	if req.Proxy || req.unnamed() || c.favorable && req.Via.IsValid() {
		return false
	}
	return c.owner.holds(&req.Owner, d.fold)
}

// Fits reports whether one of the texts, as in [Match.ASN], fits the owner.
func (o Owner) Fits(texts []string) (bool, error) {
	t, err := newOwnerTest(texts)
	if err != nil {
		return false, err
	}
	return t.holds(&o, strings.ToLower), nil
}
