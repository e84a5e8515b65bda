package memlimit

import "iter"

// holdings maps keys under limits to what requests in progress have of them:
// slots, or what is held; above zero, and at most twice what a limit allows. It
// is a hash table with linear probing (Knuth, The Art of Computer Programming,
// vol. 3, section 6.4, algorithms L and R), which is several times as fast as a
// map for keys that are hashes already. The zero holdings is empty.
type holdings struct {
	entries []holding // none, or a power of two
	n       int       // entries in use
}

// A holding is what the requests of one key have. Of 0 it is not in use.
type holding struct {
	slotKey
	held int64
}

// fewestHoldings is the length of the smallest table.
const fewestHoldings = 16

// find returns the index of k's entry, or of the free entry where it belongs.
// There is at least one free entry.
func (h *holdings) find(k *slotKey) int {
	mask := len(h.entries) - 1
	i := int(k.first) & mask
	for h.entries[i].held != 0 && h.entries[i].slotKey != *k {
		i = (i + 1) & mask
	}
	return i
}

// get returns what the requests of k have.
func (h *holdings) get(k *slotKey) int64 {
	if h.n == 0 {
		return 0
	}
	return h.entries[h.find(k)].held
}

// add adds n, which is above zero.
func (h *holdings) add(k *slotKey, n int64) {
	if 4*h.n >= 3*len(h.entries) {
		h.resize(max(fewestHoldings, 2*len(h.entries)))
	}
	e := &h.entries[h.find(k)]
	if e.held == 0 {
		e.slotKey = *k
		h.n++
	}
	e.held += n
}

// giveBack subtracts n, or all that there is if that is less.
func (h *holdings) giveBack(k *slotKey, n int64) {
	if n <= 0 || h.n == 0 {
		return
	}
	i := h.find(k)
	if e := &h.entries[i]; e.held > n {
		e.held -= n
	} else if e.held > 0 {
		h.remove(i)
	}
}

// remove frees entry i and moves those entries back that would not be found
// any more.
func (h *holdings) remove(i int) {
	mask := len(h.entries) - 1
	for j := (i + 1) & mask; h.entries[j].held != 0; j = (j + 1) & mask {
		if home := int(h.entries[j].first) & mask; (j-home)&mask >= (j-i)&mask {
			h.entries[i] = h.entries[j]
			i = j
		}
	}
	h.entries[i] = holding{}
	if h.n--; len(h.entries) > fewestHoldings && 8*h.n < len(h.entries) {
		h.resize(len(h.entries) / 2)
	}
}

// resize moves all entries to a table of another length.
func (h *holdings) resize(length int) {
	old := h.entries
	h.entries = make([]holding, length)
	for i := range old {
		if old[i].held != 0 {
			h.entries[h.find(&old[i].slotKey)] = old[i]
		}
	}
}

// all returns the entries in use. The table must not change meanwhile.
func (h *holdings) all() iter.Seq2[slotKey, int64] {
	return func(yield func(slotKey, int64) bool) {
		for i := range h.entries {
			if e := &h.entries[i]; e.held != 0 && !yield(e.slotKey, e.held) {
				return
			}
		}
	}
}
