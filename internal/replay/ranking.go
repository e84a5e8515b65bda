package replay

import (
	"math"
	"math/bits"
)

// A ranking counts how often each of many things came, exactly for as many as
// it has places. Beyond that it is Space-Saving (Metwally, Agrawal, El Abbadi
// 2005): something new takes the place of one of the least and begins at its
// count, so that what comes often is found, and counted too high by over at
// most. Things are distinguished by a seeded 64-bit hash alone.
type ranking[T any] struct {
	most  int
	n     int
	pages [][]ranked[T]
	slots []uint32 // place + 1; 0 is free
	hand  int      // where the search for the least goes on
	least uint32   // nothing has less
	gone  func(*ranked[T])
	seen  sketch // of all things, once there are more than places
}

// A ranked is one thing of a ranking.
type ranked[T any] struct {
	hash  uint64
	count uint32 // it saturates
	over  uint32 // by how much count may be too high
	facts T
}

const pageSize = 1 << 10

// newRanking returns a ranking with that many places. gone is told of what
// loses its place.
func newRanking[T any](most int, gone func(*ranked[T])) *ranking[T] {
	return &ranking[T]{most: most, slots: make([]uint32, 1<<10), least: 1, gone: gone}
}

// full reports whether something lost its place, so that counts are
// approximate.
func (r *ranking[T]) full() bool { return r.seen.regs != nil }

// distinct returns how many different things came.
func (r *ranking[T]) distinct() int64 {
	if r.full() {
		return r.seen.estimate()
	}
	return int64(r.n)
}

func (r *ranking[T]) at(i int) *ranked[T] { return &r.pages[i/pageSize][i%pageSize] }

// find returns the thing with that hash, or nil.
func (r *ranking[T]) find(hash uint64) *ranked[T] {
	if place := r.slots[r.slot(hash)]; place != 0 {
		return r.at(int(place - 1))
	}
	return nil
}

// touch fetches what count will look at. Between calls for many hashes the
// processor need not wait for memory, as it must between counts.
func (r *ranking[T]) touch(hash uint64) uint64 {
	if place := r.slots[int(hash)&(len(r.slots)-1)]; place != 0 {
		return r.at(int(place - 1)).hash
	}
	return 0
}

// slot returns where hash stands in slots, or where it would.
func (r *ranking[T]) slot(hash uint64) int {
	mask := len(r.slots) - 1
	i := int(hash) & mask
	for r.slots[i] != 0 && r.at(int(r.slots[i]-1)).hash != hash {
		i = (i + 1) & mask
	}
	return i
}

// count adds one. fresh tells that the thing is new, and its facts are zero.
func (r *ranking[T]) count(hash uint64) (it *ranked[T], fresh bool) {
	i := r.slot(hash)
	if place := r.slots[i]; place != 0 {
		it = r.at(int(place - 1))
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

// replace gives the place of one of the least to hash.
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
		if looked++; looked == r.n { // nobody has that little any more
			looked = 0
			r.least = r.at(0).count
			for i := range r.n {
				r.least = min(r.least, r.at(i).count)
			}
		}
	}
	it := r.at(r.hand)
	r.gone(it)
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

// remove frees slot i and moves up what was put behind it for want of room.
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

// A sketch estimates how many different hashes were added, within about one
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
