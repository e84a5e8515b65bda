package share

import "fairshare/share/capacity"

// slots says how many requests the upstream works on at once.
type slots interface {
	Slots() int
	Sample(capacity.Sample)
}

var _ slots = (*capacity.Capacity)(nil)

// fixed is a capacity that an operator has set.
type fixed int

func (f fixed) Slots() int           { return int(f) }
func (fixed) Sample(capacity.Sample) {}

// capacityOf returns what opts ask for; what was found stays.
func capacityOf(opts Options, last slots) slots {
	if opts.Capacity > 0 {
		return fixed(opts.Capacity)
	}
	bounds := capacity.Options{Min: opts.Min, Max: opts.Max}
	if found, ok := last.(*capacity.Capacity); ok {
		found.Replace(bounds)
		return found
	}
	return capacity.New(bounds)
}
