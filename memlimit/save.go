package memlimit

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
	"io"
	"runtime"
	"sync/atomic"
	"time"
)

// A snapshot is, integers in little endian:
//
//	the line "fairshare counters 1\n", where 1 is the format
//	the seed of the table's hashes      16 bytes
//	the number of sets                   8 bytes
//	the time, ns since the Unix epoch    8 bytes
//	the number of limits                 2 bytes
//	each limit: SHA-256 of its identity 32 bytes, kind 1 byte, countLen 1 byte
//	each set that holds states, in ascending order:
//	    how far it is from the one before (the first: from −1)   uvarint
//	    its slots with a state, or the first half of one         a bit each
//	    those whose state is at home in the set before           a bit each
//	    each state: its limit's place above   uvarint
//	                its slot, or both         16 or 32 bytes
//	0, the number of states              1 + 8 bytes
//	CRC-32C of all before                4 bytes
const (
	snapshotName   = "fairshare counters "
	snapshotFormat = "1\n"
	identityBytes  = sha256.Size
	maxRecord      = binary.MaxVarintLen64 + 2 + setSlots*(2+slotBytes)
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Save writes all states that are not fresh at time now, in at most about 18
// bytes a slot, and what [Limiter.Load] needs to go on with them. The time
// must be of the clock that requests are judged by. What belongs to requests in
// progress is left out: slots of concurrent limits and what others hold.
//
// Requests go on meanwhile and do not wait. Each state is written as it was
// at some moment between the beginning and the end of Save. What Save writes
// holds the secret of the hashes, so others must not read it.
func (l *Limiter) Save(w io.Writer, now time.Time) error {
	t, at := l.table, now.UnixNano()
	defer runtime.KeepAlive(t)
	sum := &summed{w: w}
	out := bufio.NewWriterSize(sum, 64<<10)
	limits, places := t.named()

	b := append([]byte(snapshotName+snapshotFormat), t.seed[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(t.sets)))
	b = binary.LittleEndian.AppendUint64(b, uint64(at))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(limits)))
	for _, lim := range limits {
		identity := sha256.Sum256([]byte(lim.identity))
		b = append(append(b, identity[:]...), byte(lim.kind), byte(lim.countLen))
	}
	if _, err := out.Write(b); err != nil {
		return err
	}

	states, before, copies := 0, -1, 0
	for n := range t.used.all() {
		if copies++; copies%1024 == 0 {
			runtime.Gosched() // there may be one processor only, and requests
		}
		copied := t.sets[n].copy()
		var live int
		if b, live = t.appendSet(b[:0], n-before, &copied, places, at); live == 0 {
			continue
		}
		states, before = states+live, n
		if _, err := out.Write(b); err != nil {
			return err
		}
	}
	b = binary.LittleEndian.AppendUint64(append(b[:0], 0), uint64(states))
	if _, err := out.Write(b); err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return err
	}
	_, err := w.Write(binary.LittleEndian.AppendUint32(nil, sum.crc))
	return err
}

// named returns all limits that a policy could name again, and for each id
// their place, or −1.
func (t *table) named() (limits []*limit, places []int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, l := range *t.limits.Load() {
		places = append(places, -1)
		if l == nil {
			continue
		}
		if named, ok := t.names[l.identity]; ok && int(named) == id {
			places[id] = len(limits)
			limits = append(limits, l)
		}
	}
	return limits, places
}

// appendSet appends the record of a set, and tells how many states are in it.
func (t *table) appendSet(b []byte, delta int, s *set, places []int, at int64) ([]byte, int) {
	b = binary.AppendUvarint(b, uint64(delta))
	masks := len(b)
	b = append(b, 0, 0)
	states := 0
	for i := 0; i < setSlots; {
		u := t.unit(s, i, at)
		i = u.first + u.slots
		if u.fresh() || int(u.l.id) >= len(places) || places[u.l.id] < 0 {
			continue
		}
		states++
		b[masks] |= 1 << u.first
		if s.guest(u.first) {
			b[masks+1] |= 1 << u.first
		}
		b = binary.AppendUvarint(b, uint64(places[u.l.id]))
		for j := u.first; j < i; j++ {
			b = binary.LittleEndian.AppendUint64(b, s.slot[j][0])
			b = binary.LittleEndian.AppendUint64(b, s.slot[j][1])
		}
	}
	return b, states
}

// copy returns s as it is at one moment. It locks s only if others come in
// between again and again.
func (s *set) copy() (c set) {
	for range 16 {
		head := atomic.LoadUint64(&s.head)
		if head&lockBit != 0 {
			continue
		}
		c.read(s)
		if c.head == head && atomic.LoadUint64(&s.head) == head {
			return c
		}
	}
	s.lock()
	c.read(s)
	s.unlock()
	c.head &^= lockBit
	return c
}

func (c *set) read(s *set) {
	c.head = atomic.LoadUint64(&s.head)
	c.ids = atomic.LoadUint64(&s.ids)
	for i := range s.slot {
		c.slot[i][0] = atomic.LoadUint64(&s.slot[i][0])
		c.slot[i][1] = atomic.LoadUint64(&s.slot[i][1])
	}
}

// summed keeps the checksum of what is written.
type summed struct {
	w   io.Writer
	crc uint32
}

func (s *summed) Write(b []byte) (int, error) {
	s.crc = crc32.Update(s.crc, castagnoli, b)
	return s.w.Write(b)
}
