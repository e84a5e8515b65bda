package share

import "fairshare/share/capacity"

// slots is the number of requests that the upstream processes at once.
type slots interface {
	Slots() int
	Workers() int // of these, in use at once without a queue inside the upstream
	Sample(capacity.Sample)
}

var _ slots = (*capacity.Capacity)(nil)

// fixed is a capacity set by an operator.
type fixed int

func (f fixed) Slots() int           { return int(f) }
func (f fixed) Workers() int         { return int(f) }
func (fixed) Sample(capacity.Sample) {}

// useCapacity puts the capacity that opts demand in force.
func (q *Queue) useCapacity(opts Options) {
	s := q.schedule
	switch g := s.group; {
	case opts.Hash == nil && g == nil:
		q.capacity = capacityOf(opts, q.capacity)
	case opts.Hash == nil:
		g.alone(s, 1)
		s.group, q.capacity = nil, capacityOf(opts, g.of)
	case g == nil:
		for _, n := range s.nodes {
			n.heavy = false
		}
		s.group = newGroup(capacityOf(opts, q.capacity))
		q.capacity = s.group
	default:
		g.use(capacityOf(opts, g.of))
	}
}

// useSlots puts the present slots of the capacity in force. It is called with the lock held.
func (q *Queue) useSlots() {
	q.schedule.slots, q.schedule.workers = q.capacity.Slots(), q.capacity.Workers()
}

// capacityOf returns the capacity that opts demand; a capacity that was found is kept.
func capacityOf(opts Options, last slots) slots {
	if opts.Capacity > 0 {
		return fixed(opts.Capacity)
	}
	bounds := capacity.Options{Min: opts.Min, Max: opts.Max}
	if opts.Hash != nil {
		bounds.Lag = leaseLag
	}
	if found, ok := last.(*capacity.Capacity); ok {
		found.Replace(bounds)
		return found
	}
	return capacity.New(bounds)
}
