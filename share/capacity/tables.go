package capacity

import (
	"math"
	"time"
)

const (
	ways        = 8   // places that a path or a network may take
	pathSets    = 512 // 4,096 paths of 32 bytes
	networkSets = 256 // 2,048 networks of 48 bytes

	taught    = 3                // samples after which a path votes,
	kept      = 8                // after which it keeps its place,
	learning  = 64               // and until which it learns whatever the slots do
	learnMost = 2                // one sample's pull on a usual time, in ln
	keep      = 10 * time.Minute // what is known is kept so long unused
)

// A path is what is known of one path. n = 0: a free place.
type path struct {
	id    uint64
	last  int64     // when it was asked last
	usual float32   // ln of its ns without a queue, smoothed
	by    [2]uint32 // the networks that taught last
	n     uint16    // samples, up to 1024: then 1/n is the weight of a new one
}

// learn moves the usual time by one sample. Once it is settled, a network that
// was among the last two to teach does not teach: nobody does who asks often,
// and who alternates with others less than they.
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
	if p.n > taught {
		off = min(max(off, -learnMost), learnMost)
	}
	p.usual += off / float32(p.n)
}

// paths is a table of fixed size. A new path takes the place of another that
// was asked less than kept times, or not for long; never of one in use.
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
		case p.n >= kept && now-p.last < int64(keep):
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

// A network is what one network did in a round. round = 0: a free place.
type network struct {
	id      uint64
	last    int64   // when it was seen last
	time    float32 // ns that n requests took
	off     float32 // sum of their ln(took/usual)
	n       uint32
	failed  uint32
	round   uint32 // of which this tells
	known   bool   // this tells only of clients with standing
	lasting bool   // clients with standing were seen in it
}

// networks is a table of fixed size. A new network takes the place of another
// without standing, or not seen for long. touched are the places of this round.
type networks struct {
	all     [networkSets * ways]network
	round   uint32
	touched []uint16
}

// begin starts a round: nobody is touched.
func (t *networks) begin() {
	t.round++
	t.touched = t.touched[:0]
}

// find returns the place of a sample's network, made ready for the round; nil
// if there is none.
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
		if n.lasting && s.Now-n.last < int64(keep) || n.round == t.round {
			continue // known, or it has a vote already
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
	if n.round != t.round || s.Known && !n.known {
		*n = network{id: n.id, round: t.round, known: s.Known, lasting: n.lasting || s.Known}
	}
	n.last = s.Now
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
