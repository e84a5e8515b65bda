package replay

import (
	"math"
	"math/bits"
)

// A ranking counts how often each of many items occurs, exactly for up to most items.
// Beyond that it is Space-Saving (Metwally, Agrawal, El Abbadi 2005): a new item replaces
// one with the least count and begins at that count. So frequent items are found, and
// their counts are too high by at most over. Items are distinguished only by a seeded
// 64-bit hash.
type ranking[T any] struct {
	most     int
	n        int
	pages    [][]ranked[T]
	slots    []uint32 // index + 1; 0 is free
	hand     int      // where the next search for the least count begins
	least    uint32   // no item has a lower count
	replaced func(*ranked[T])
	seen     sketch // of all items, once there are more than most
}

// A ranked is one item of a ranking.
type ranked[T any] struct {
	hash  uint64
	count uint32 // it saturates
	over  uint32 // by how much count may be too high
	facts T
}

const pageSize = 1 << 10

// newRanking returns a ranking of up to most items. It calls replaced before it replaces
// an item.
func newRanking[T any](most int, replaced func(*ranked[T])) *ranking[T] {
	return &ranking[T]{most: most, slots: make([]uint32, 1<<10), least: 1, replaced: replaced}
}

// full reports whether an item was replaced, so that counts are approximate.
func (r *ranking[T]) full() bool { return r.seen.regs != nil }

// distinct returns the number of different items.
func (r *ranking[T]) distinct() int64 {
	if r.full() {
		return r.seen.estimate()
	}
	return int64(r.n)
}

func (r *ranking[T]) at(i int) *ranked[T] { return &r.pages[i/pageSize][i%pageSize] }

// find returns the item with that hash, or nil.
func (r *ranking[T]) find(hash uint64) *ranked[T] {
	if index := r.slots[r.slot(hash)]; index != 0 {
		return r.at(int(index - 1))
	}
	return nil
}

// expect reads the memory that count will need for at most together hashes.
func (r *ranking[T]) expect(hashes []uint64) (sum uint64) {
	var indexes [together]uint32
	for i, hash := range hashes {
		indexes[i] = r.slots[int(hash)&(len(r.slots)-1)]
	}
	for _, index := range indexes[:len(hashes)] {
		if index != 0 {
			sum += r.at(int(index - 1)).hash
		}
	}
	return sum
}

// slot returns the index of hash in slots, or the free one for it.
func (r *ranking[T]) slot(hash uint64) int {
	mask := len(r.slots) - 1
	i := int(hash) & mask
	for r.slots[i] != 0 && r.at(int(r.slots[i]-1)).hash != hash {
		i = (i + 1) & mask
	}
	return i
}

// count adds one. fresh reports that the item is new: its facts are zero.
func (r *ranking[T]) count(hash uint64) (it *ranked[T], fresh bool) {
	i := r.slot(hash)
	if index := r.slots[i]; index != 0 {
		it = r.at(int(index - 1))
		if it.count != math.MaxUint32 {
			it.count++
		}
		return it, false
	}
	if r.n == r.most {
		return r.replace(hash), true
	}
	if r.n%pageSize == 0 {
		r.pages = append(r.pages, make([]ranked[T], min(pageSize, r.most-r.n)))
	}
	r.n++
	it = r.at(r.n - 1)
	*it = ranked[T]{hash: hash, count: 1}
	r.slots[i] = uint32(r.n)
	if 2*r.n > len(r.slots) {
		r.grow()
	}
	return it, true
}

func (r *ranking[T]) grow() {
	r.slots = make([]uint32, 2*len(r.slots))
	for i := range r.n {
		r.slots[r.slot(r.at(i).hash)] = uint32(i + 1)
	}
}

// replace replaces an item with the least count.
func (r *ranking[T]) replace(hash uint64) *ranked[T] {
	if !r.full() {
		r.seen = newSketch()
		for i := range r.n {
			r.seen.add(r.at(i).hash)
		}
	}
	r.seen.add(hash)
	for looked := 0; r.at(r.hand).count > r.least; {
		r.hand = (r.hand + 1) % r.n
		if looked++; looked == r.n { // no item has that count any more
			looked = 0
			r.least = r.at(0).count
			for i := range r.n {
				r.least = min(r.least, r.at(i).count)
			}
		}
	}
	it := r.at(r.hand)
	r.replaced(it)
	r.remove(r.slot(it.hash))
	r.slots[r.slot(hash)] = uint32(r.hand + 1)
	before := it.count
	*it = ranked[T]{hash: hash, count: before, over: before}
	if it.count != math.MaxUint32 {
		it.count++
	}
	r.hand = (r.hand + 1) % r.n
	return it
}

// remove frees slot i, and moves later entries of the same run to the free slots.
func (r *ranking[T]) remove(i int) {
	mask := len(r.slots) - 1
	for j := i; ; {
		j = (j + 1) & mask
		if r.slots[j] == 0 {
			break
		}
		home := int(r.at(int(r.slots[j]-1)).hash) & mask
		if (j-home)&mask >= (j-i)&mask {
			r.slots[i] = r.slots[j]
			i = j
		}
	}
	r.slots[i] = 0
}

// A sketch estimates the number of different hashes within about one
// in a hundred: HyperLogLog (Flajolet, Fusy, Gandouet, Meunier 2007) with
// 64-bit hashes.
type sketch struct{ regs []uint8 }

const sketchBits = 14

func newSketch() sketch { return sketch{regs: make([]uint8, 1<<sketchBits)} }

func (s *sketch) add(hash uint64) {
	reg := &s.regs[hash>>(64-sketchBits)]
	*reg = max(*reg, uint8(bits.LeadingZeros64(hash<<sketchBits|1<<(sketchBits-1))+1))
}

func (s *sketch) estimate() int64 {
	m := float64(len(s.regs))
	sum, zero := 0.0, 0.0
	for _, reg := range s.regs {
		sum += math.Ldexp(1, -int(reg))
		if reg == 0 {
			zero++
		}
	}
	est := 0.7213 / (1 + 1.079/m) * m * m / sum
	if est <= 2.5*m && zero > 0 {
		est = m * math.Log(m/zero) // linear counting
	}
	return int64(est + 0.5)
}
