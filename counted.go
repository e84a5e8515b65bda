package fairshare

import (
	"encoding/binary"
	"hash/fnv"
	"hash/maphash"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"fairshare/internal/offheap"
)

// A Distinct says which requests a limit of requests counts.
type Distinct uint8

const (
	// EveryRequest counts every request. The zero Distinct.
	EveryRequest Distinct = iota
	// DistinctPaths counts a request only if its key has sent no request for the
	// same host and path within the window.
	DistinctPaths
	// DistinctQueries is DistinctPaths for a path with its query.
	DistinctQueries
)

// String returns the word in a policy file.
func (d Distinct) String() string {
	switch d {
	case DistinctPaths:
		return "paths"
	case DistinctQueries:
		return "queries"
	}
	return "every request"
}

// MinDistinctWindow is the shortest window of a limit with Distinct.
const MinDistinctWindow = time.Second

// A countedTable remembers which paths and queries the keys of limits with
// Distinct were charged for. Its memory is at most 8 MiB, of which the system provides
// a page when a path is first noted there.
//
// A cell is a word:
//
//	28 bits  of the hash of limit, key and path, never 0; a word of 0 is empty
//	36 bits  when the path counts again, in units of 2^26 ns (67 ms)
//
// The hash selects a set of countedSetSize cells, one cache line. A new path takes
// the cell of one that counts again anyway, else any cell of its set. So F paths
// of other keys erase a cell with a chance of at most 1−e^(−F/countedCells), about:
// less than two thirds for as many paths as there are cells. Only paths that were
// charged have a cell, so an attacker needs F/N keys for that. A path without its
// cell counts again: a flood can make a limit count all requests, and never fewer
// paths than were sent. Two paths of one key count as one with a chance of 2^-25.
type countedTable struct {
	once  sync.Once
	seed  maphash.Seed
	cells []atomic.Uint64
}

const (
	countedSets    = 1 << 17
	countedSetSize = 8
	countedCells   = countedSets * countedSetSize
	untilBits      = 36
	untilMask      = 1<<untilBits - 1
	untilUnit      = 26 // bits of a time in ns that a cell lacks
)

func countedTime(t time.Time) uint64 { return uint64(t.UnixNano()) >> untilUnit & untilMask }

// open takes the memory of the table at the first call.
func (c *countedTable) open() *countedTable {
	c.once.Do(func() {
		c.seed, c.cells = maphash.MakeSeed(), offheap.Slice[atomic.Uint64](c, countedCells)
	})
	return c
}

// set returns the cells that may hold a mark, and what its cell begins with.
func (c *countedTable) set(mark uint64) (set []atomic.Uint64, tag uint64) {
	first := mark & (countedSets - 1) * countedSetSize
	return c.cells[first:][:countedSetSize:countedSetSize], max(mark>>untilBits, 1)
}

// has reports whether a mark was set less than a window ago.
func (c *countedTable) has(mark uint64, now time.Time, window time.Duration) bool {
	defer runtime.KeepAlive(c)
	set, tag := c.set(mark)
	for i := range set {
		if cell := set[i].Load(); cell>>untilBits == tag {
			left := (cell - countedTime(now)) & untilMask
			return left > 0 && left <= uint64(window)>>untilUnit+1
		}
	}
	return false
}

// add sets a mark for a window that begins at time at.
func (c *countedTable) add(mark uint64, at time.Time, window time.Duration) {
	set, tag := c.set(mark)
	const longest = uint64(MaxWindow)>>untilUnit + 1
	place, begun := int(mark>>(64-3)), countedTime(at) // the set is chosen by other bits
	for i := range set {
		cell := set[i].Load()
		if cell>>untilBits == tag {
			place = i
			break
		}
		if left := (cell - begun) & untilMask; cell == 0 || left == 0 || left > longest {
			place = i
		}
	}
	set[place].Store(tag<<untilBits | countedTime(at.Add(window)))
	runtime.KeepAlive(c)
}

// distinctID returns what stands for a limit in marks: the guards of several
// policies know the same limit by it.
func (l *Limit) distinctID() uint64 {
	h := fnv.New64a()
	for _, part := range l.By {
		h.Write([]byte(part.String()))
		h.Write([]byte{0})
	}
	h.Write(binary.BigEndian.AppendUint64([]byte{byte(l.Algorithm), byte(l.Distinct)}, uint64(l.Window)))
	h.Write([]byte(l.Name))
	return h.Sum64()
}

// distinctMark reports whether the request counts under a key of a limit with Distinct.
// If it does, mark is to be set once the request was charged. A request without a
// path always counts, and sets no mark: mark is 0.
func (d *decision) distinctMark(limit int, key []byte) (mark uint64, counts bool) {
	if d.req.Path == "" {
		return 0, true
	}
	g := d.guard
	lim, table := &g.limits[limit], g.history.counted.open()
	page, query := d.pageHash(table.seed), uint64(0)
	if lim.Distinct == DistinctQueries {
		query = d.queryHash(table.seed)
	}
	b := binary.LittleEndian.AppendUint64(d.value[:0], g.distinct[limit])
	b = binary.LittleEndian.AppendUint64(b, page)
	b = binary.LittleEndian.AppendUint64(b, query)
	d.value = append(b, key...)
	mark = max(maphash.Bytes(table.seed, d.value), 1)
	return mark, !table.has(mark, d.now, lim.Window)
}

// pageHash returns a hash of host and path. Different paths that some servers take
// for the same page have different hashes, otherwise "/index.php/a" and
// "/index.php/b" would count as one path. Only a slash at the end does not
// matter, nor does case if the policy folds it.
func (d *decision) pageHash(seed maphash.Seed) uint64 {
	if d.hashes.page == 0 {
		path := d.req.Path
		if d.req.OddPath {
			path = d.req.rawPath
		}
		path = trimSlash(path)
		if d.guard.policy.FoldPaths {
			path = d.fold(path)
		}
		page := maphash.String(seed, path)
		host := maphash.String(seed, d.fold(plainHost(d.req.Host)))
		d.hashes.page = max(fold(page, host|1)^page, 1)
	}
	return d.hashes.page
}

// queryHash returns a hash of the query. Queries with the same parameters in
// another order have the same hash, unless servers may disagree about what the
// parameters are, or the order of two matters because they may have the same name.
func (d *decision) queryHash(seed maphash.Seed) uint64 {
	if d.hashes.query == 0 {
		sum, ok := d.parameterSum(seed)
		if !ok {
			sum = maphash.String(seed, d.req.Query) ^ 1
		}
		d.hashes.query = max(sum, 1)
	}
	return d.hashes.query
}

// mostParameters is how many parameters of a query may come in any order.
const mostParameters = 32

// parameterSum returns the sum of the hashes of all parameters. ok is false if
// their order may matter.
func (d *decision) parameterSum(seed maphash.Seed) (sum uint64, ok bool) {
	var names [mostParameters]uint64
	n := 0
	for query := d.req.Query; query != ""; {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		if pair == "" {
			continue
		}
		if n == mostParameters {
			return 0, false
		}
		if d.value, ok = appendParameter(d.value[:0], pair); !ok {
			return 0, false
		}
		sum += maphash.Bytes(seed, d.value)
		sent, _, _ := strings.Cut(unsafe.String(unsafe.SliceData(d.value), len(d.value)), "=")
		d.buf = appendLooseName(d.buf[:0], sent)
		names[n] = maphash.Bytes(seed, d.buf)
		for _, other := range names[:n] {
			if other == names[n] {
				return 0, false
			}
		}
		n++
	}
	return sum, true
}

// appendParameter appends a parameter in a spelling that every server reads like
// the one that was sent. It decodes escapes where that cannot change the meaning
// (RFC 3986 §6.2.2.2, and characters beyond ASCII). ok is false if servers may
// read other parameters in it.
func appendParameter(b []byte, sent string) (out []byte, ok bool) {
	for i := 0; i < len(sent); i++ {
		c := sent[i]
		switch {
		case c == ';' || c == '#' || c <= ' ' || c == 0x7F:
			return b, false
		case c != '%':
		case i+2 >= len(sent) || !ishex(sent[i+1]) || !ishex(sent[i+2]):
			return b, false
		default:
			c = unhex(sent[i+1])<<4 | unhex(sent[i+2])
			i += 2
			switch {
			case c == '%' || c == '&' || c == ';' || c == '#' || c < ' ' || c == 0x7F: // other servers decode twice
				return b, false
			case c == '=' || c == '+' || c == ' ':
				const hex = "0123456789ABCDEF"
				b = append(b, '%', hex[c>>4], hex[c&0xF])
				continue
			}
		}
		b = append(b, c)
	}
	return b, true
}

// appendLooseName appends of a parameter's name what no server ignores: its
// letters and digits in lower case, up to "[". Names of different parameters may
// become equal, those of one parameter never differ.
func appendLooseName(b []byte, name string) []byte {
	for i := 0; i < len(name); i++ {
		switch c := name[i]; {
		case c == '[' && len(b) > 0:
			return b
		case c == '%': // of "+", "=" or a space
			i += 2
		case c >= 'A' && c <= 'Z':
			b = append(b, c+0x20)
		case alphanumeric(c):
			b = append(b, c)
		}
	}
	return b
}
