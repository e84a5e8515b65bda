package capacity

import (
	"math"
	"time"
)

const (
	ways        = 8
	pathSets    = 512 // 4,096 paths of 32 bytes
	networkSets = 256 // 2,048 networks of 48 bytes

	taught    = 8                // samples after which a path votes
	learnMost = 2                // one sample's pull on ln usual
	keep      = 10 * time.Minute // what is known is kept so long unused
)

// A path is what is known of one path. n = 0: a free place.
type path struct {
	id    uint64
	last  int64   // when it was asked last
	usual float32 // ns without a queue, geometric mean
	log   float32 // ln usual
	by    uint32  // the network that taught last
	n     uint16  // samples, up to 128: then 1/n is the weight of a new one
}

// learn moves the usual time by one sample; a network that comes again and
// again weighs an eighth.
func (p *path) learn(log float32, s *Sample) {
	if p.n < 128 {
		p.n++
	}
	w := 1 / float32(p.n)
	if p.n > taught && p.by == uint32(s.Network) {
		w /= 8
	}
	p.by = uint32(s.Network)
	off := log - p.log
	if p.n > taught {
		off = min(max(off, -learnMost), learnMost)
	}
	p.log += w * off
	p.usual = float32(math.Exp(float64(p.log)))
}

// paths is a table of fixed size. A new path takes the place of another that
// was asked less than taught times, or not for long; never of one in use.
type paths struct{ all [pathSets * ways]path }

// find returns the place of a path, nil if there is none.
func (t *paths) find(id uint64, now int64) *path {
	set := id * 0x9e3779b97f4a7c15 >> (64 - 9) * ways
	at := t.all[set : set+ways : set+ways]
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
		case p.n >= taught && now-p.last < int64(keep):
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

// A network is what one network did in a round.
type network struct {
	id      uint64
	last    int64  // when it was last seen; 0: a free place
	knownAt int64  // when a client with standing was last seen in it
	round   uint32 // of which the following tells
	n       uint32 // requests in took and base
	failed  uint32
	took    float32 // ns
	base    float32 // the usual ns of the same paths
	known   bool    // only requests of clients with standing are in it
}

// networks is a table of fixed size. A new network takes the place of another
// without standing, or not seen for long. touched are the places of this round.
type networks struct {
	all     [networkSets * ways]network
	touched []uint16
}

// find returns the place of a sample's network, made ready for the round; nil
// if there is none.
func (t *networks) find(s *Sample, round uint32) *network {
	set := int(s.Network * 0x9e3779b97f4a7c15 >> (64 - 8) * ways)
	victim, oldest := -1, int64(math.MaxInt64)
	found := -1
	for i := set; i < set+ways; i++ {
		n := &t.all[i]
		if n.id == s.Network && n.last != 0 {
			found = i
			break
		}
		if n.knownAt != 0 && s.Now-n.last < int64(keep) || n.round == round {
			continue // known, or it has a vote already
		}
		if n.last < oldest {
			victim, oldest = i, n.last
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
	n.last = s.Now
	if s.Known {
		n.knownAt = s.Now
	}
	if n.round != round {
		n.round = round
		n.n, n.failed, n.took, n.base, n.known = 0, 0, 0, 0, s.Known
		t.touched = append(t.touched, uint16(found))
	} else if s.Known && !n.known {
		n.n, n.failed, n.took, n.base, n.known = 0, 0, 0, 0, true
	}
	return n
}

// middle returns the median, the lower one of two, and reorders v (quickselect,
// Hoare 1961). 0 if v is empty.
func middle(v []float32) float32 {
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
