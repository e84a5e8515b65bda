package redislimit

import (
	"crypto/sha1"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"

	"fairshare/memlimit"
)

// The script gets one message, integers and floats in little endian:
//
//	token of this message 6 bytes, member 4 bytes
//	whether what the members remember is merged by maximum, 1 byte
//	number of limits 2 bytes, each:
//	    field 6 bytes, kind, settled and held 1 byte each
//	    9 floats: W in ns (of concurrent 0), what is allowed, units of 1 µs, burst·T and 2·burst·T in µs and
//	    rest, how far a state may be ahead, T in units
//	for each key the number of its states 1 byte, each:
//	    place of the limit above 2 bytes, what follows (bits) 1 byte, token that the view is based on 6 bytes
//	    2 floats: now
//	    bit 0: 3 floats: the view without what is asked
//	    bit 1: 3 floats: what was charged and is not reported
//	    bit 2: 1 float: what requests in progress of this member have
//	    bit 3: the view is merged by maximum
//	    bit 4: some decisions were prepared by a view before the last one
//	number of decisions 2 bytes, each:
//	    number of parts, and of those in dry run, which are the last, 1 byte each
//	    each part: place of its state above 2 bytes, 2 floats: cost
//
// The reply is:
//
//	how many states were unreadable, 1 byte
//	each decision: 0 refused, 1 the dry run refused, 2 passed
//	each state: what follows (bits), 1 byte
//	    bit 0 or bit 3: 3 floats: the state
//	    bit 1: 1 float: what requests in progress of other members have
//	    bit 0 without bit 2: its token 6 bytes
//	    bit 3: where its record begins, counted from 1, or 0, 2 bytes; when the key ends, 4 bytes; and how many
//	    records its value has, or 0: too many or some with members, 1 byte
//	    bit 0: the view is based on another state
//	    bit 2: it was written, so its token is that of the message
//
// The value of a key is the second of the Unix epoch when it ends, 4 bytes, and for each limit:
//
//	field 6 bytes, token 6 bytes, number of members with requests in progress 1 byte, 3 floats: the state
//	each member: its id 4 bytes, 1 float: what its requests have, the second when it said so 4 bytes
//
//go:embed take.lua
var takeScript string

var takeDigest = digest(takeScript)

func digest(script string) string {
	sum := sha1.Sum([]byte(script))
	return hex.EncodeToString(sum[:])
}

const (
	hasView = 1 << iota
	hasDelta
	hasOwn
	hasFloor
	hasTest
)

func appendFloats(b []byte, f ...float64) []byte {
	for _, x := range f {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
	}
	return b
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// appendSpec appends a limit.
func appendSpec(b []byte, s *spec) []byte {
	b = append(b, s.field[:]...)
	b = append(b, byte(s.kind), flag(s.settled), flag(s.held))
	return appendFloats(b, float64(s.w), float64(s.allowed), s.unit(), s.burst.us, s.burst.rest, s.ceiling.us,
		s.ceiling.rest, s.far, float64(s.wg))
}

// A stated is one state of a message.
type stated struct {
	spec  *spec
	index uint16 // of its limit in the message
	base  [tokenBytes]byte
	at    int64
	view  memlimit.State
	delta delta
	noted bool
	own   int64
	floor bool
	test  bool
}

func (st *stated) append(b []byte) []byte {
	has := byte(0)
	view := st.spec.figures(st.view)
	if st.view != (memlimit.State{}) {
		has |= hasView
	}
	if st.spec.kind != concurrent && (st.delta.any || st.noted) {
		has |= hasDelta
	}
	if st.spec.tracked {
		has |= hasOwn
	}
	if st.floor {
		has |= hasFloor
	}
	if st.test {
		has |= hasTest
	}
	b = append(binary.LittleEndian.AppendUint16(b, st.index), has)
	b = append(b, st.base[:]...)
	n1, n2 := float64(0), float64(0)
	if st.spec.kind != concurrent {
		n1, n2 = st.spec.now(st.at)
	}
	b = appendFloats(b, n1, n2)
	if has&hasView != 0 {
		b = appendFloats(b, view[:]...)
	}
	if has&hasDelta != 0 {
		d := st.delta
		switch {
		case st.spec.kind != window && st.noted:
			d.num = max(d.num, st.at)
		case !d.any:
			d.num, _ = st.spec.windowOf(st.at)
		}
		figures := d.figures(st.spec)
		b = appendFloats(b, figures[:]...)
	}
	if has&hasOwn != 0 {
		b = appendFloats(b, float64(st.own))
	}
	return b
}

// A reply is what a script answers about one state.
type reply struct {
	differs bool // the view is not based on it
	stored  memlimit.State
	others  int64
	written bool
	token   [tokenBytes]byte // if it differs and was not written
	offset  uint16           // of its record, or 0
	ends    uint32           // when the key ends, in seconds of the Unix epoch
	records uint8            // that its value has, or 0
}

var errReply = errors.New("the reply of the script is cut short")

func (t *reply) parse(b []byte, s *spec) (rest []byte, err error) {
	*t = reply{}
	if len(b) < 1 {
		return nil, errReply
	}
	has := b[0]
	t.differs, t.written = has&1 != 0, has&4 != 0
	token := t.differs && !t.written
	size := 1
	for _, part := range [...]struct {
		is   bool
		size int
	}{{has&9 != 0, 24}, {has&2 != 0, 8}, {token, tokenBytes}, {has&8 != 0, 7}} {
		if part.is {
			size += part.size
		}
	}
	if len(b) < size {
		return nil, errReply
	}
	b, rest = b[1:], b[size:]
	float := func() float64 {
		f := math.Float64frombits(binary.LittleEndian.Uint64(b))
		b = b[8:]
		return f
	}
	if has&9 != 0 {
		t.stored = s.state([3]float64{float(), float(), float()})
	}
	if has&2 != 0 {
		t.others = int64(float())
	}
	if token {
		b = b[copy(t.token[:], b):]
	}
	if has&8 != 0 {
		t.offset, t.ends, t.records = binary.LittleEndian.Uint16(b), binary.LittleEndian.Uint32(b[2:]), b[6]
	}
	return rest, nil
}
