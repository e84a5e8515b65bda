package policyfile

import (
	"net/netip"
	"slices"

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
