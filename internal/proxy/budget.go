package proxy

import (
	"sync"
	"sync/atomic"
)

// A budget bounds the memory of many users together, in bytes.
type budget struct {
	max  int64
	used atomic.Int64
}

// take takes n bytes, or reports that they do not fit. The caller returns them by
// give.
func (b *budget) take(n int) bool {
	if b.used.Add(int64(n)) > b.max {
		b.used.Add(int64(-n))
		return false
	}
	return true
}

func (b *budget) give(n int) { b.used.Add(int64(-n)) }

// chunkSize is how many bytes of an answer one read takes at most.
const chunkSize = 32 << 10

// A chunk holds a part of an answer: space[from:to] was read and not yet written.
type chunk struct {
	from, to int
	space    []byte
}

// chunks reuses chunks.
type chunks struct{ pool sync.Pool }

func (c *chunks) get() *chunk {
	if k, ok := c.pool.Get().(*chunk); ok {
		k.from, k.to = 0, 0
		return k
	}
	return &chunk{space: make([]byte, chunkSize)}
}

func (c *chunks) put(k *chunk) { c.pool.Put(k) }

// bodySizes are the sizes of the memory for the beginning of a request's body. It
// grows with the bytes that arrive, not with the announced length.
var bodySizes = [...]int{4 << 10, 16 << 10, bodyAhead + bodyWatch}

// spaces reuses the memory of bodies, with one pool for each of bodySizes.
type spaces [len(bodySizes)]sync.Pool

func (s *spaces) get(class int) *[]byte {
	if space, ok := s[class].Get().(*[]byte); ok {
		return space
	}
	space := make([]byte, bodySizes[class])
	return &space
}

func (s *spaces) put(class int, space *[]byte) { s[class].Put(space) }
