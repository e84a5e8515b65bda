package memlimit

import (
	"iter"
	"math/bits"
)

// holdings maps keys to what requests in progress have of them under each limit:
// slots, or what is held; above zero, and at most twice what the limit allows. It is
// a hash table with linear probing (Knuth, The Art of Computer Programming, vol. 3,
// section 6.4, algorithms L and R). The zero holdings is empty.
//
// Most requests have several limits of the same key. So a cell holds four of them,
// and a key with more has several cells.
type holdings struct {
	cells []cell // none, or a power of two
	n     int    // cells in use
}

// A cell is what the requests of one key have under up to cellLanes limits.
type cell struct {
	keyName
	ids  uint64 // of the limits, 16 bits each, 0 if nothing is held; a cell of 0 is not in use
	held [cellLanes]int64
}

// A keyName stands for a key. It is a hash of 128 bits, so that holding something
// copies no key.
type keyName struct{ first, second uint64 }

// A holder is a key on its way through holdings. cellIndex is the index of one of its
// cells if there is one there, and else means nothing.
type holder struct {
	keyName
	cellIndex int
}

const (
	cellLanes   = 4
	fewestCells = 16 // the length of the smallest table
)

// lane returns the lane of a limit, or of the first free one if id is 0; cellLanes if
// there is none. Ids have 12 bits, so that adding 0x7FFF sets the highest bit of all
// lanes of ids^id that are not zero.
func (c *cell) lane(id uint16) int {
	const each = 1<<48 | 1<<32 | 1<<16 | 1
	return bits.TrailingZeros64(^((c.ids^uint64(id)*each)+0x7FFF*each)&(0x8000*each)) / 16
}

// has reports whether a lane is that of a limit. No cell has any.
func (c *cell) has(lane int, id uint16) bool {
	return c != nil && lane < cellLanes && uint16(c.ids>>(16*lane&63)) == id
}

// find returns the cell and lane that a key has under a limit. Without one, lane is
// cellLanes, and i the free cell behind those of the key. It notes the first cell of the
// key. There is at least one free cell.
func (h *holdings) find(k *holder, id uint16) (i, lane int) {
	if i = k.cellIndex; uint(i) < uint(len(h.cells)) && h.cells[i].keyName == k.keyName {
		if lane = h.cells[i].lane(id); lane < cellLanes {
			return i, lane
		}
	}
	k.cellIndex = -1
	mask := len(h.cells) - 1
	for i = int(k.first) & mask; h.cells[i].ids != 0; i = (i + 1) & mask {
		c := &h.cells[i]
		if c.keyName != k.keyName {
			continue
		}
		if k.cellIndex < 0 {
			k.cellIndex = i
		}
		if lane = c.lane(id); lane < cellLanes {
			return i, lane
		}
	}
	return i, cellLanes
}

// first returns the first cell of a key, nil if it has none, and notes its index. There
// is at least one free cell.
func (h *holdings) first(k *holder) *cell {
	mask := len(h.cells) - 1
	for i := int(k.first) & mask; h.cells[i].ids != 0; i = (i + 1) & mask {
		if c := &h.cells[i]; c.keyName == k.keyName {
			k.cellIndex = i
			return c
		}
	}
	return nil
}

// get returns what the requests of k have under a limit.
func (h *holdings) get(k *holder, id uint16) int64 {
	if h.n == 0 {
		return 0
	}
	if i, lane := h.find(k, id); lane < cellLanes {
		return h.cells[i].held[lane]
	}
	return 0
}

// add adds n, which is above zero.
func (h *holdings) add(k *holder, id uint16, n int64) {
	if h.n > 0 {
		if i, lane := h.find(k, id); lane < cellLanes {
			h.cells[i].held[lane] += n
			return
		}
	}
	h.begin(k, id, n)
}

// begin is add for a limit under which k has nothing.
func (h *holdings) begin(k *holder, id uint16, n int64) {
	if i := k.cellIndex; uint(i) < uint(len(h.cells)) && h.cells[i].keyName == k.keyName {
		if c := &h.cells[i]; c.ids != 0 && c.lane(0) < cellLanes {
			c.set(c.lane(0), id, n)
			return
		}
	}
	mask := len(h.cells) - 1
	for i := int(k.first) & mask; h.n > 0 && h.cells[i].ids != 0; i = (i + 1) & mask {
		if c := &h.cells[i]; c.keyName == k.keyName && c.lane(0) < cellLanes {
			c.set(c.lane(0), id, n)
			k.cellIndex = i
			return
		}
	}
	h.insert(k).set(0, id, n)
}

// insert returns a new cell for a key, which is not yet in use.
func (h *holdings) insert(k *holder) *cell {
	if 4*h.n >= 3*len(h.cells) {
		h.resize(max(fewestCells, 2*len(h.cells)))
	}
	mask := len(h.cells) - 1
	i := int(k.first) & mask
	for h.cells[i].ids != 0 {
		i = (i + 1) & mask
	}
	h.n++
	k.cellIndex, h.cells[i].keyName = i, k.keyName
	return &h.cells[i]
}

// set gives a free lane to a limit.
func (c *cell) set(lane int, id uint16, n int64) {
	c.ids |= uint64(id) << (16 * lane)
	c.held[lane] = n
}

// giveBack subtracts n, or all that there is if that is less.
func (h *holdings) giveBack(k *holder, id uint16, n int64) {
	if n <= 0 || h.n == 0 {
		return
	}
	i, lane := h.find(k, id)
	if lane == cellLanes {
		return
	}
	c := &h.cells[i]
	if c.held[lane] > n {
		c.held[lane] -= n
	} else if c.ids &^= 0xFFFF << (16 * lane); c.ids == 0 {
		h.remove(i)
	}
}

// remove frees cell i and moves those cells back that would not be found any more.
func (h *holdings) remove(i int) {
	mask := len(h.cells) - 1
	for j := (i + 1) & mask; h.cells[j].ids != 0; j = (j + 1) & mask {
		if home := int(h.cells[j].first) & mask; (j-home)&mask >= (j-i)&mask {
			h.cells[i] = h.cells[j]
			i = j
		}
	}
	h.cells[i] = cell{}
	if h.n--; len(h.cells) > fewestCells && 8*h.n < len(h.cells) {
		h.resize(len(h.cells) / 2)
	}
}

// resize moves all cells to a table of another length.
func (h *holdings) resize(length int) {
	old := h.cells
	h.cells = make([]cell, length)
	for i := range old {
		if old[i].ids == 0 {
			continue
		}
		j := int(old[i].first) & (length - 1)
		for h.cells[j].ids != 0 {
			j = (j + 1) & (length - 1)
		}
		h.cells[j] = old[i]
	}
}

// A holding says what a key has under a limit.
type holding struct {
	keyName
	id uint16
}

// all returns what is held. The table must not change meanwhile.
func (h *holdings) all() iter.Seq2[holding, int64] {
	return func(yield func(holding, int64) bool) {
		for i := range h.cells {
			c := &h.cells[i]
			for lane, n := range c.held {
				id := uint16(c.ids >> (16 * lane))
				if id != 0 && !yield(holding{c.keyName, id}, n) {
					return
				}
			}
		}
	}
}
