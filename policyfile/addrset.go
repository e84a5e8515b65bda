package policyfile

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairshare"

	"github.com/gaissmai/bart"
)

// An AddrSet is a set of prefixes, looked up by longest match without
// allocating. It does not change once its file is read.
type AddrSet struct {
	own    bart.Lite
	tables []*bart.Lite // own, unless it is empty, and those of the lists

	prefixes []netip.Prefix // its own, as written
	lists    []string       // names of lists that are part of it
}

var _ fairshare.AddrSet = (*AddrSet)(nil)

// Contains reports whether an unmapped address without zone is in the set.
func (s *AddrSet) Contains(addr netip.Addr) bool {
	for _, t := range s.tables {
		if t.Contains(addr) {
			return true
		}
	}
	return false
}

// Prefixes returns the prefixes of the set, masked and in order, each once.
func (s *AddrSet) Prefixes() []netip.Prefix {
	var all bart.Lite
	for _, t := range s.tables {
		all.Union(t)
	}
	return slices.AppendSeq([]netip.Prefix(nil), all.AllSorted())
}

// Lists returns the names of the lists that are part of the set.
func (s *AddrSet) Lists() []string { return slices.Clone(s.lists) }

// String names what the set is made of, shortened.
func (s *AddrSet) String() string { return addrWords(s) }

// size returns how many prefixes there are in all.
func (s *AddrSet) size() int {
	n := 0
	for _, t := range s.tables {
		n += t.Size()
	}
	return n
}

func (s *AddrSet) add(p netip.Prefix) {
	if len(s.prefixes) == 0 {
		s.tables = append(s.tables, &s.own)
	}
	s.own.Insert(p)
	s.prefixes = append(s.prefixes, p)
}

func (s *AddrSet) addList(name string, list *AddrSet) {
	if slices.Contains(s.lists, name) {
		return
	}
	s.tables = append(s.tables, list.tables...)
	s.lists = append(s.lists, name)
}

// addrs reads prefixes and addresses, and names of lists when lists is given.
func (r *reader) addrs(n *node, what string, lists map[string]*AddrSet) *AddrSet {
	set := &AddrSet{}
	for _, item := range r.list(n, what) {
		s, ok := r.text(item, what)
		if !ok {
			continue
		}
		if list := lists[s]; list != nil {
			set.addList(s, list)
		} else if prefix, err := parsePrefix(s); err == nil {
			set.add(prefix)
		} else if looksLikeAddr(s) && !strings.Contains(s, ",") {
			r.fault(item, "", "%s: %v", what, err)
		} else if lists == nil {
			r.fault(item, "", "%s: %s is no address and no prefix", what, quote(s))
		} else if !r.broken {
			known := make([]string, 0, len(lists))
			for name := range lists {
				known = append(known, name)
			}
			slices.Sort(known)
			hint := didYouMean(s, known)
			if strings.Contains(s, ",") {
				hint = "several values stand in brackets: [a, b]"
			}
			r.fault(item, hint, "%s: %s is no address, no prefix, and no list has this name", what, quote(s))
		}
	}
	return set
}

func looksLikeAddr(s string) bool {
	return strings.ContainsAny(s, ":/") || s != "" && strings.Trim(s, "0123456789./*xX-") == ""
}

// parsePrefix reads a prefix or an address; an IPv4-mapped one is IPv4, and
// bits behind the length are dropped.
func parsePrefix(s string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(s); err == nil {
		if addr.Zone() != "" {
			return netip.Prefix{}, fmt.Errorf("%s has a zone: leave out all from %% on", quote(s))
		}
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%s is no address and no prefix", quote(s))
	}
	if p.Addr().Is4In6() {
		if p.Bits() < 96 {
			return netip.Prefix{}, fmt.Errorf("%s is wider than all of IPv4: 0.0.0.0/0 is meant, or ::/0", quote(s))
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), nil
}
