package proxy

import (
	"sync"
	"sync/atomic"
)

// A budget bounds what many take together, in bytes.
type budget struct {
	max  int64
	used atomic.Int64
}

// take reports whether n more fit. What was taken is to be given back.
func (b *budget) take(n int) bool {
	if b.used.Add(int64(n)) > b.max {
		b.used.Add(int64(-n))
		return false
	}
	return true
}

func (b *budget) give(n int) { b.used.Add(int64(-n)) }

// chunkSize is how much of an answer is read at once.
const chunkSize = 32 << 10

// A chunk holds a part of an answer: what was read and not yet written is
// space[from:to].
type chunk struct {
	from, to int
	space    []byte
}

// chunks are used again.
type chunks struct{ pool sync.Pool }

func (c *chunks) get() *chunk {
	if k, ok := c.pool.Get().(*chunk); ok {
		k.from, k.to = 0, 0
		return k
	}
	return &chunk{space: make([]byte, chunkSize)}
}

func (c *chunks) put(k *chunk) { c.pool.Put(k) }

// Sizes of the space that the beginning of a request's body is read into. It
// grows with what comes, not with what is announced.
var bodySizes = [...]int{4 << 10, 16 << 10, bodyAhead + bodyWatch}

// spaces are used again, one pool for each of bodySizes.
type spaces [len(bodySizes)]sync.Pool

func (s *spaces) get(class int) *[]byte {
	if space, ok := s[class].Get().(*[]byte); ok {
		return space
	}
	space := make([]byte, bodySizes[class])
	return &space
}

func (s *spaces) put(class int, space *[]byte) { s[class].Put(space) }
