package asn

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"net/netip"
	"slices"
	"sort"

	"fairshare"
)

// MaxRanges is how many ranges of addresses a table may have, in each family.
const MaxRanges = 4 << 20

// A Table holds the owners of addresses. It never changes and is safe for
// concurrent use.
type Table struct {
	owners []fairshare.Owner // 0 is nobody
	v4     family4
	v6     family6
	ranges int // as read
}

// Owner returns who owns an address; the zero Owner if nobody is known. It
// allocates nothing.
func (t *Table) Owner(addr netip.Addr) fairshare.Owner {
	if t == nil {
		return fairshare.Owner{}
	}
	addr = addr.Unmap()
	switch {
	case addr.Is4():
		a := addr.As4()
		return t.owners[t.v4.find(binary.BigEndian.Uint32(a[:]))]
	case addr.Is6():
		a := addr.As16()
		return t.owners[t.v6.find(addr6{binary.BigEndian.Uint64(a[:8]), binary.BigEndian.Uint64(a[8:])})]
	}
	return fairshare.Owner{}
}

// Ranges returns how many ranges of addresses the files hold.
func (t *Table) Ranges() int { return t.ranges }

// Owners returns all owners, in no order.
func (t *Table) Owners() iter.Seq[fairshare.Owner] { return slices.Values(t.owners[1:]) }

// Len returns the number of owners.
func (t *Table) Len() int { return len(t.owners) - 1 }

// A family4 holds where owners change, in order. The range from starts[i] to
// the next start is of the owner owners[i], which is 0 for a gap.
type family4 struct {
	starts []uint32
	owners []uint32
	index  []uint32 // for each 16 bits, the first start with these bits or greater ones
}

func (f *family4) find(a uint32) uint32 {
	if len(f.starts) == 0 {
		return 0
	}
	low, high := f.index[a>>16], f.index[a>>16+1]
	for low < high { // the first start above a
		if mid := (low + high) / 2; f.starts[mid] <= a {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low == 0 {
		return 0
	}
	return f.owners[low-1]
}

type addr6 struct{ high, low uint64 }

func (a addr6) compare(b addr6) int {
	if c := cmp.Compare(a.high, b.high); c != 0 {
		return c
	}
	return cmp.Compare(a.low, b.low)
}

// A family6 is a family4 for IPv6. The index is of the 16 bits after the first
// three, which are the same in all global addresses (2000::/3).
type family6 struct {
	starts []addr6
	owners []uint32
	index  []uint32
}

const globalBits = 3 // 2000::/3, RFC 4291 §2.4

func (f *family6) find(a addr6) uint32 {
	if len(f.starts) == 0 {
		return 0
	}
	low, high := uint32(0), uint32(len(f.starts))
	if a.high>>(64-globalBits) == 1 {
		slot := a.high << globalBits >> 48
		low, high = f.index[slot], f.index[slot+1]
	}
	for low < high {
		if mid := (low + high) / 2; f.starts[mid].compare(a) <= 0 {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low == 0 {
		return 0
	}
	return f.owners[low-1]
}

// A span is a range of addresses of one family and its owner.
type span struct {
	first, last addr6 // of IPv4: low only
	owner       uint32
}

// A builder collects the rows of files.
type builder struct {
	owners  []fairshare.Owner
	numbers map[fairshare.Owner]uint32
	v4, v6  []span
	hosting map[uint32]bool // numbers whose type is "hosting" if the files do not say
}

func newBuilder(hosting map[uint32]bool) *builder {
	return &builder{owners: make([]fairshare.Owner, 1), numbers: map[fairshare.Owner]uint32{}, hosting: hosting}
}

// owner returns the place of an owner.
func (b *builder) owner(o fairshare.Owner) uint32 {
	if o.Type == "" && b.hosting[o.ASN] {
		o.Type = Hosting
	}
	place, known := b.numbers[o]
	if !known {
		place = uint32(len(b.owners))
		o.Name, o.Type = string([]byte(o.Name)), string([]byte(o.Type)) // not a part of a whole line
		b.owners, b.numbers[o] = append(b.owners, o), place
	}
	return place
}

var errFamilies = errors.New("the first and the last address are not of one family")

// add adds the addresses from first to last.
func (b *builder) add(first, last netip.Addr, owner uint32) error {
	first, last = first.Unmap().WithZone(""), last.Unmap().WithZone("")
	if first.Is4() != last.Is4() {
		return errFamilies
	}
	if last.Less(first) {
		return fmt.Errorf("the last address %s is before the first, %s", last, first)
	}
	s := span{owner: owner}
	into := &b.v6
	if first.Is4() {
		into = &b.v4
		x, y := first.As4(), last.As4()
		s.first.low, s.last.low = uint64(binary.BigEndian.Uint32(x[:])), uint64(binary.BigEndian.Uint32(y[:]))
	} else {
		x, y := first.As16(), last.As16()
		s.first = addr6{binary.BigEndian.Uint64(x[:8]), binary.BigEndian.Uint64(x[8:])}
		s.last = addr6{binary.BigEndian.Uint64(y[:8]), binary.BigEndian.Uint64(y[8:])}
	}
	if len(*into) == MaxRanges {
		return fmt.Errorf("more than %d ranges of addresses", MaxRanges)
	}
	*into = append(*into, s)
	return nil
}

// table returns the table of all rows.
func (b *builder) table() (*Table, error) {
	if len(b.v4)+len(b.v6) == 0 {
		return nil, errNothing
	}
	t := &Table{owners: slices.Clip(b.owners), ranges: len(b.v4) + len(b.v6)}
	changes(b.v4, math.MaxUint32, func(at addr6, owner uint32) {
		if n := len(t.v4.starts); n > 0 && t.v4.starts[n-1] == uint32(at.low) {
			t.v4.owners[n-1] = owner
			return
		}
		t.v4.starts, t.v4.owners = append(t.v4.starts, uint32(at.low)), append(t.v4.owners, owner)
	})
	changes(b.v6, 0, func(at addr6, owner uint32) {
		if n := len(t.v6.starts); n > 0 && t.v6.starts[n-1] == at {
			t.v6.owners[n-1] = owner
			return
		}
		t.v6.starts, t.v6.owners = append(t.v6.starts, at), append(t.v6.owners, owner)
	})
	t.v4.starts, t.v4.owners = slices.Clip(t.v4.starts), slices.Clip(t.v4.owners)
	t.v6.starts, t.v6.owners = slices.Clip(t.v6.starts), slices.Clip(t.v6.owners)
	t.v4.index = index(func(slot uint64) uint32 {
		return uint32(sort.Search(len(t.v4.starts), func(i int) bool { return uint64(t.v4.starts[i]) >= slot<<16 }))
	})
	t.v6.index = index(func(slot uint64) uint32 {
		at := addr6{high: 1<<(64-globalBits) + slot<<(48-globalBits)}
		return uint32(sort.Search(len(t.v6.starts), func(i int) bool { return t.v6.starts[i].compare(at) >= 0 }))
	})
	return t, nil
}

// index returns the place of the first start in each slot, and in the one after
// the last.
func index(place func(slot uint64) uint32) []uint32 {
	all := make([]uint32, 1<<16+1)
	for slot := range all {
		all[slot] = place(uint64(slot))
	}
	return all
}

// changes calls put, in order, for each address from which the owner is another
// one. Where ranges overlap, the one that begins later counts, and of those that
// begin together the one that ends first: published tables have a few such.
// most is the last IPv4 address; 0 for IPv6.
func changes(spans []span, most uint64, put func(at addr6, owner uint32)) {
	slices.SortStableFunc(spans, func(a, b span) int {
		return cmp.Or(a.first.compare(b.first), b.last.compare(a.last))
	})
	var open []span // around the present address, the one that counts last
	owner := uint32(0)
	set := func(at addr6, next uint32) {
		if next != owner {
			put(at, next)
			owner = next
		}
	}
	// end ends the ranges before an address, or all of them.
	end := func(before addr6, all bool) {
		for len(open) > 0 && (all || open[len(open)-1].last.compare(before) < 0) {
			after, ok := open[len(open)-1].last.next(most)
			if !ok {
				return // nothing is behind the last address
			}
			for len(open) > 0 && open[len(open)-1].last.compare(after) < 0 {
				open = open[:len(open)-1]
			}
			if len(open) == 0 {
				if all || after != before {
					set(after, 0)
				}
			} else {
				set(after, open[len(open)-1].owner)
			}
		}
	}
	for _, s := range spans {
		end(s.first, false)
		set(s.first, s.owner)
		open = append(open, s)
	}
	end(addr6{}, true)
}

// next returns the address after a; ok is false if there is none.
func (a addr6) next(most uint64) (after addr6, ok bool) {
	after = addr6{a.high, a.low + 1}
	if after.low == 0 {
		after.high++
	}
	return after, after != addr6{} && (most == 0 || after.low <= most)
}
