package cputime

// A path is what is known of the requests for one path.
type path struct {
	hash uint64
	uses uint32
	rate float64 // cores that one request uses while it is worked on, in (0, 1]
	vari float64 // of rate
}

// paths is a bounded table of paths by hash.
type paths struct {
	m       map[uint64]*path
	unknown path
	known   int
}

func newPaths() paths {
	return paths{m: map[uint64]*path{}, unknown: path{rate: 1}}
}

func (p *paths) find(hash uint64) *path {
	if known := p.m[hash]; known != nil {
		return known
	}
	return &p.unknown
}

func (p *paths) learn(open []*request, used, foreseen, length float64) {}
