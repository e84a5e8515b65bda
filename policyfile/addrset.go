package policyfile

import (
	"net/netip"
	"slices"

	"github.com/gaissmai/bart"
)

// An AddrSet is a set of prefixes, looked up by longest match without
// allocating. It does not change once its file is read.
type AddrSet struct {
	table    bart.Lite
	prefixes []netip.Prefix // its own, as written
	lists    []string       // names of lists that are part of it
}

// Contains reports whether an unmapped address without zone is in the set.
func (s *AddrSet) Contains(addr netip.Addr) bool { return s.table.Contains(addr) }

// Len returns how many prefixes the set holds, each counted once.
func (s *AddrSet) Len() int { return s.table.Size() }

// Prefixes returns all prefixes of the set in order, masked.
func (s *AddrSet) Prefixes() []netip.Prefix {
	return slices.Collect(func(yield func(netip.Prefix) bool) {
		s.table.AllSorted()(yield)
	})
}

// Lists returns the names of the lists that are part of the set.
func (s *AddrSet) Lists() []string { return slices.Clone(s.lists) }

func (s *AddrSet) add(p netip.Prefix) {
	s.table.Insert(p)
	s.prefixes = append(s.prefixes, p)
}

func (s *AddrSet) addList(name string, list *AddrSet) {
	s.table.Union(&list.table)
	s.lists = append(s.lists, name)
}
