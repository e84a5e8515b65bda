package capacity

import (
	"math"
	"time"
)

const (
	ways        = 8   // possible slots of a path or a network
	pathSets    = 512 // 4,096 paths of 32 bytes
	networkSets = 256 // 2,048 networks of 48 bytes

	voteAfter    = 3                // samples after which a path votes,
	settledAfter = 8                // after which it is not replaced while in use,
	learning     = 64               // until which it learns with any number of slots
	learnMost    = 2                // most that one sample moves a usual time, in ln
	keepFor      = 10 * time.Minute // unused entries are settledAfter this long
)

// A path describes one path. n = 0: a free entry.
type path struct {
	id    uint64
	last  int64     // time of its last request
	usual float32   // ln of its ns without a queue, smoothed
	by    [2]uint32 // the networks of its last two samples
	n     uint16    // samples, up to 1024: then 1/n is the weight of a new one
}

// learn moves the usual time by one sample. Once the usual time is settled, a network whose sample
// was among the last two is ignored. So a client that sends many requests has little effect, even
// if it alternates with others.
func (p *path) learn(took float32, s *Sample) {
	by := uint32(s.Network)
	if by != p.by[0] && by != p.by[1] {
		p.by[0], p.by[1] = by, p.by[0]
	} else if p.n >= learning {
		return
	}
	if p.n < 1024 {
		p.n++
	}
	off := took - p.usual
	if p.n > voteAfter {
		off = min(max(off, -learnMost), learnMost)
	}
	p.usual += off / float32(p.n)
}

// paths is a table of fixed size. A new path replaces a path with fewer than settledAfter samples,
// or one that is unused for long; never one in use.
type paths struct{ all [pathSets * ways]path }

func (t *paths) set(id uint64) []path {
	set := id * 0x9e3779b97f4a7c15 >> (64 - 9) * ways
	return t.all[set : set+ways : set+ways]
}

// find returns the entry of a path, a new one if needed, or nil if there is no place.
func (t *paths) find(id uint64, now int64) *path {
	at := t.set(id)
	victim, oldest := -1, int64(math.MaxInt64)
	for i := range at {
		p := &at[i]
		if p.id == id && p.n > 0 {
			p.last = now
			return p
		}
		last := p.last
		switch {
		case p.n == 0:
			last = math.MinInt64
		case p.n >= settledAfter && now-p.last < int64(keepFor):
			continue
		}
		if last < oldest {
			victim, oldest = i, last
		}
	}
	if victim < 0 {
		return nil
	}
	at[victim] = path{id: id, last: now}
	return &at[victim]
}

// A network describes one network in a round. round = 0: a free entry.
type network struct {
	id      uint64
	last    int64   // time of its last sample
	time    float32 // sum of the ns of n requests
	off     float32 // sum of their ln(took/usual)
	n       uint32
	failed  uint32
	round   uint32 // round of these values
	rank    uint8  // the values are only of clients of this rank
	lasting bool   // clients with standing were seen in it
}

// networks is a table of fixed size. A new network replaces one without standing, or one unused for
// long. touched lists the entries of this round.
type networks struct {
	all     [networkSets * ways]network
	round   uint32
	touched []uint16
}

// begin starts a round without touched networks.
func (t *networks) begin() {
	t.round++
	t.touched = t.touched[:0]
}

// find returns the entry of a sample's network, prepared for the round; nil if there is none.
func (t *networks) find(s *Sample) *network {
	set := int(s.Network * 0x9e3779b97f4a7c15 >> (64 - 8) * ways)
	victim, oldest := -1, int64(math.MaxInt64)
	found := -1
	for i := set; i < set+ways; i++ {
		n := &t.all[i]
		if n.id == s.Network && n.round != 0 {
			found = i
			break
		}
		if n.lasting && s.Now-n.last < int64(keepFor) || n.round == t.round {
			continue // it has standing, or a vote in this round
		}
		last := n.last
		if n.round == 0 {
			last = math.MinInt64
		}
		if last < oldest {
			victim, oldest = i, last
		}
	}
	if found < 0 {
		if victim < 0 {
			return nil
		}
		found = victim
		t.all[found] = network{id: s.Network}
	}
	n := &t.all[found]
	if n.round != t.round {
		t.touched = append(t.touched, uint16(found))
	}
	if n.round != t.round || s.rank() > n.rank {
		*n = network{id: n.id, round: t.round, rank: s.rank(), lasting: n.lasting || s.Known}
	}
	n.last = s.Now
	return n
}

// median returns the median, the lower one of two, and reorders v (quickselect,
// Hoare 1961). 0 if v is empty.
func median(v []float32) float32 {
	if len(v) == 0 {
		return 0
	}
	lo, hi, k := 0, len(v)-1, (len(v)-1)/2
	for lo < hi {
		pivot := v[(lo+hi)/2]
		i, j := lo, hi
		for i <= j {
			for v[i] < pivot {
				i++
			}
			for v[j] > pivot {
				j--
			}
			if i <= j {
				v[i], v[j] = v[j], v[i]
				i++
				j--
			}
		}
		switch {
		case k <= j:
			hi = j
		case k >= i:
			lo = i
		default:
			return v[k]
		}
	}
	return v[k]
}
