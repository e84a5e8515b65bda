package replay

import "time"

// A chart counts requests over time in bins of equal width. When the times no
// longer fit, neighbouring bins are joined.
type chart struct {
	width int64 // ns, see wider; 0 before the first request
	base  int64 // number of the first bin, counted from the Unix epoch
	bins  [chartBins]bin
}

const (
	chartBins  = 1024
	mostSlices = 64 // in a report
)

type bin struct{ requests, refused int64 }

// wider returns the next width: a usual one that is a multiple of this one. Beyond a day
// it doubles.
func wider(width int64) int64 {
	for _, step := range []struct{ below, by int64 }{
		{2, 2}, {10, 5}, {30, 3}, {60, 2}, {300, 5}, {900, 3}, {1800, 2}, {3600, 2}, {7200, 2}, {21600, 3},
	} {
		if width < step.below*int64(time.Second) {
			return width * step.by
		}
	}
	return width * 2
}

func (c *chart) add(at int64, refused bool) {
	if c.width == 0 {
		c.width = int64(time.Second)
		c.base = floorDiv(at, c.width)
	}
	i := floorDiv(at, c.width) - c.base
	if uint64(i) >= chartBins {
		i = c.widen(at)
	}
	c.bins[i].requests++
	if refused {
		c.bins[i].refused++
	}
}

// widen makes room for time at and returns its bin.
func (c *chart) widen(at int64) int64 {
	n := floorDiv(at, c.width)
	lowest, highest := n, n
	for i := range c.bins {
		if c.bins[i].requests > 0 {
			lowest, highest = min(lowest, c.base+int64(i)), max(highest, c.base+int64(i))
		}
	}
	by := c.joining(lowest, highest, chartBins)
	c.move(floorDiv(lowest, by), by)
	return floorDiv(n, by) - c.base
}

// joining returns how many bins must be joined to one, so that there are at most most
// from lowest to highest.
func (c *chart) joining(lowest, highest, most int64) int64 {
	by := int64(1)
	for floorDiv(highest, by)-floorDiv(lowest, by) >= most {
		by = wider(c.width*by) / c.width
	}
	return by
}

// move joins by bins to one; the first new one has the number base.
func (c *chart) move(base, by int64) {
	old, oldBase := c.bins, c.base
	c.bins = [chartBins]bin{}
	c.width *= by
	c.base = base
	for i, b := range old {
		if b.requests > 0 {
			to := &c.bins[floorDiv(oldBase+int64(i), by)-base]
			to.requests += b.requests
			to.refused += b.refused
		}
	}
}

// slices returns at most most bins, from the first to the last that is not
// empty.
func (c *chart) slices(most int64) []Slice {
	first, last := -1, -1
	for i := range c.bins {
		if c.bins[i].requests > 0 {
			if first < 0 {
				first = i
			}
			last = i
		}
	}
	if first < 0 {
		return []Slice{}
	}
	lowest, highest := c.base+int64(first), c.base+int64(last)
	by := c.joining(lowest, highest, most)
	begin := floorDiv(lowest, by)
	out := make([]Slice, floorDiv(highest, by)-begin+1)
	for i := range out {
		out[i].From = time.Unix(0, (begin+int64(i))*by*c.width).UTC()
	}
	for i := first; i <= last; i++ {
		s := &out[floorDiv(c.base+int64(i), by)-begin]
		s.Requests += c.bins[i].requests
		s.Refused += c.bins[i].refused
	}
	return out
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
