package policyfile

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"fairshare"
	"fairshare/internal/network"
	"fairshare/internal/prose"

	"github.com/gaissmai/bart"
)

// An AddrSet is a set of prefixes, looked up by longest match without
// allocating. It is safe for concurrent use.
type AddrSet struct {
	table    atomic.Pointer[bart.Lite] // its own prefixes, never changed once stored; nil means none
	prefixes []netip.Prefix            // as written

	lists []*AddrSet // lists that are part of the set; they have no lists themselves
	names []string   // names of lists

	external bool        // its prefixes come from outside the policy file: see Replace
	replaced atomic.Bool // Replace was called
}

var _ fairshare.AddrSet = (*AddrSet)(nil)

// Contains reports whether an unmapped address without zone is in the set.
func (s *AddrSet) Contains(addr netip.Addr) bool {
	if t := s.table.Load(); t != nil && t.Contains(addr) {
		return true
	}
	for _, list := range s.lists {
		if t := list.table.Load(); t != nil && t.Contains(addr) {
			return true
		}
	}
	return false
}

// Overlaps reports whether the set contains an address of a masked prefix.
func (s *AddrSet) Overlaps(p netip.Prefix) bool {
	return slices.ContainsFunc(s.tables(), func(t *bart.Lite) bool { return t.OverlapsPrefix(p) })
}

// Replace replaces the set's own prefixes. The change takes effect at once, also
// for sets that contain this set as a list. It is for the sets of [File.Sources].
// IPv4-mapped prefixes count as IPv4, and invalid ones are ignored.
func (s *AddrSet) Replace(prefixes []netip.Prefix) {
	t := &bart.Lite{}
	for _, p := range prefixes {
		t.Insert(network.Canonical(p))
	}
	s.table.Store(t)
	s.replaced.Store(true)
}

// isLoaded reports whether the prefixes of the set itself are known.
func (s *AddrSet) isLoaded() bool { return !s.external || s.replaced.Load() }

// Prefixes returns the prefixes of the set, masked and in order, each once.
func (s *AddrSet) Prefixes() []netip.Prefix {
	var all bart.Lite
	for _, t := range s.tables() {
		all.Union(t)
	}
	return slices.AppendSeq([]netip.Prefix(nil), all.AllSorted())
}

// Lists returns the names of the lists that are part of the set.
func (s *AddrSet) Lists() []string { return slices.Clone(s.names) }

// String lists the set's lists and prefixes, shortened.
func (s *AddrSet) String() string { return addrText(s) }

// tables returns the current prefixes of the set and of its lists.
func (s *AddrSet) tables() []*bart.Lite {
	var tables []*bart.Lite
	for _, part := range append([]*AddrSet{s}, s.lists...) {
		if t := part.table.Load(); t != nil {
			tables = append(tables, t)
		}
	}
	return tables
}

// size returns the number of prefixes, with those of the lists.
func (s *AddrSet) size() int {
	n := 0
	for _, t := range s.tables() {
		n += t.Size()
	}
	return n
}

// add adds a prefix. It is only for sets that are not in use yet.
func (s *AddrSet) add(p netip.Prefix) {
	t := s.table.Load()
	if t == nil {
		t = &bart.Lite{}
		s.table.Store(t)
	}
	t.Insert(p)
	s.prefixes = append(s.prefixes, p)
}

func (s *AddrSet) addList(name string, list *AddrSet) {
	if slices.Contains(s.names, name) {
		return
	}
	s.lists = append(s.lists, list)
	s.names = append(s.names, name)
}

// addrs reads prefixes and addresses, and names of lists unless lists is nil.
func (r *reader) addrs(n *node, what string, lists map[string]*AddrSet) *AddrSet {
	set := &AddrSet{}
	for _, item := range r.list(n, what) {
		s, ok := r.text(item, what)
		if !ok {
			continue
		}
		if r.tooManyFaults() && lists[s] == nil {
			r.omitted++ // no hint is searched for
			continue
		}
		if list := lists[s]; list != nil {
			set.addList(s, list)
		} else if prefix, err := parsePrefix(s); err == nil {
			set.add(prefix)
		} else if looksLikeAddr(s) && !strings.Contains(s, ",") {
			r.fault(item, "", "%s: %v", what, err)
		} else if lists == nil {
			r.fault(item, "", "%s: %s is neither an address nor a prefix", what, quote(s))
		} else if !r.broken {
			hint := prose.DidYouMean(s, slices.Sorted(maps.Keys(lists)))
			if _, dns := r.file.DNS.Lists[s]; dns {
				hint = "listed: " + s
			} else if listFile(s) {
				hint = "lists: {NAME: {file: " + shorten(s) + "}}, then addr: NAME"
			} else if strings.Contains(s, ",") {
				hint = "write several values in brackets: [a, b]"
			}
			r.fault(item, hint, "%s: %s is not an address, a prefix or the name of a list", what, quote(s))
		}
	}
	return set
}

func looksLikeAddr(s string) bool {
	return strings.ContainsAny(s, ":/") || s != "" && strings.Trim(s, "0123456789./*xX-") == ""
}

// parsePrefix reads a prefix or an address: see [network.Parse].
func parsePrefix(s string) (netip.Prefix, error) {
	p, err := network.Parse(s)
	switch {
	case errors.Is(err, network.ErrZone):
		err = fmt.Errorf("%s has a zone: remove everything from %% on", quote(s))
	case errors.Is(err, network.ErrMapped):
		err = fmt.Errorf("%s is wider than all of IPv4: 0.0.0.0/0 is meant, or ::/0", quote(s))
	case err != nil:
		err = fmt.Errorf("%s is neither an address nor a prefix", quote(s))
	}
	return p, err
}
