package memlimit

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"math/bits"
	"slices"
	"time"

	"fairshare"
)

// Loaded tells what a snapshot brought.
type Loaded struct {
	States int       // that are not fresh at the time of loading
	Limits []string  // names of the limits that go on with what was counted
	Fresh  []string  // names of those that start from zero
	At     time.Time // of the snapshot
}

// ErrUnusable is what the error of [Limiter.Load] is when the snapshot, and
// not the reading of it, is at fault.
var ErrUnusable = errors.New("the snapshot of the counters cannot be used")

func unusable(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrUnusable, fmt.Sprintf(format, args...))
}

var (
	errCutShort = unusable("it is cut short")
	errDamaged  = unusable("it is damaged")
)

const (
	clockStep = time.Minute         // that a clock may be set back between Save and Load
	mostAhead = fairshare.MaxWindow // that a state's own time may be after the snapshot's: far more than Save takes

	// mostGrowth bounds how much larger the table may be than the snapshot's:
	// beyond that a state might be in so many places that to put it there
	// takes longer than it is worth.
	mostGrowth = 4
)

// Load takes over the states that [Limiter.Save] wrote. It comes right after
// [New], before any request.
//
// As with [Limiter.With], a limit that is in both keeps its counters, whatever
// its N, unless they need more room now. All other limits start from zero. The
// table may have another size than before, up to four times as large. The set of
// a state depends on more bits of its key's hash than the snapshot holds. So the
// state is put into each set where it may belong. If there is not enough room,
// the states nearest to fresh are lost.
//
// After an error the Limiter is as New made it.
func (l *Limiter) Load(r io.Reader, now time.Time) (loaded Loaded, err error) {
	t, limits := l.table, slices.Clone(l.limits)
	was := t.seed
	defer func() {
		if err != nil {
			loaded = Loaded{}
			l.Reset()
			for i := range t.lost {
				t.lost[i].Store(0)
			}
			copy(l.limits, limits)
			t.plant(was)
		}
	}()
	in := &snapshot{r: bufio.NewReaderSize(r, 64<<10), table: t, now: now.UnixNano()}
	if err := in.header(l); err != nil {
		return loaded, err
	}
	if in.at > in.now && uint64(in.at)-uint64(in.now) > uint64(clockStep) {
		return loaded, unusable("it is of %s, which is yet to come: has a clock been set?",
			time.Unix(0, in.at).UTC().Format(time.RFC3339))
	}
	for {
		more, err := in.set()
		if err != nil {
			return loaded, err
		}
		if !more {
			break
		}
	}
	if err := in.end(); err != nil {
		return loaded, err
	}
	loaded = in.loaded
	loaded.At = time.Unix(0, in.at)
	l.fresh = loaded.Fresh
	return loaded, nil
}

// A snapshot is one on its way into a table.
type snapshot struct {
	r     *bufio.Reader
	crc   uint32
	table *table
	now   int64

	at     int64
	sets   uint64
	limits []saved

	index  uint64 // of the next set
	states uint64
	loaded Loaded
}

// A saved limit is one of a snapshot.
type saved struct {
	layout
	l *limit // that goes on with its states; nil: none does
}

// next reads n bytes, which hold until the next call.
func (in *snapshot) next(n int) ([]byte, error) {
	b, err := in.r.Peek(n)
	if err != nil {
		return nil, cutShort(err)
	}
	in.pass(n)
	return b, nil
}

// pass leaves n bytes behind that were looked at.
func (in *snapshot) pass(n int) {
	b, _ := in.r.Peek(n)
	in.crc = crc32.Update(in.crc, castagnoli, b)
	in.r.Discard(n)
}

func mebibytes(sets uint64) float64 { return float64(sets) * setBytes / (1 << 20) }

func cutShort(err error) error {
	if err == io.EOF {
		return errCutShort
	}
	return fmt.Errorf("reading the snapshot of the counters: %w", err)
}

// header reads up to the first set, and has l go on with what is the same
// limit.
func (in *snapshot) header(l *Limiter) error {
	b, err := in.next(len(snapshotName) + len(snapshotFormat))
	if err != nil {
		return err
	}
	format, ok := bytes.CutPrefix(b, []byte(snapshotName))
	switch {
	case !ok:
		return unusable("it is something else")
	case string(format) != snapshotFormat:
		return unusable("it is of another version of fairshare")
	}
	if b, err = in.next(len(seed{}) + 8 + 8 + 2); err != nil {
		return err
	}
	s := seed(b)
	b = b[len(s):]
	in.sets = binary.LittleEndian.Uint64(b)
	in.at = int64(binary.LittleEndian.Uint64(b[8:]))
	n := int(binary.LittleEndian.Uint16(b[16:]))
	if in.sets < 2 || in.sets > math.MaxInt64/setBytes || n > maxLimits {
		return errDamaged
	}
	if mine := uint64(len(in.table.sets)); mine/mostGrowth > in.sets {
		return unusable("it is of a table of %.4g MiB, too small for one of %.4g MiB", mebibytes(in.sets),
			mebibytes(mine))
	}
	mine := map[[identityBytes]byte]*limit{}
	for i := range l.limits {
		mine[sha256.Sum256([]byte(l.limits[i].identity))] = &l.limits[i]
	}
	kept := map[*limit]bool{}
	for range n {
		if b, err = in.next(identityBytes + 2); err != nil {
			return err
		}
		k, countLen := kind(b[identityBytes]), uint(b[identityBytes+1])
		packed := k == windowPacked
		if k > concurrent || packed != (countLen != 0) || packed && (countLen < 32 || countLen > 42) {
			return errDamaged
		}
		old := saved{layout: newLayout(k, countLen)}
		if lim := mine[[identityBytes]byte(b)]; lim != nil && !kept[lim] && lim.mayHave(old.layout) &&
			lim.keepLayout(old.layout) {
			old.l, kept[lim] = lim, true
		}
		in.limits = append(in.limits, old)
	}
	for i := range l.limits {
		switch lim := &l.limits[i]; {
		case lim.silent:
		case kept[lim]:
			in.loaded.Limits = append(in.loaded.Limits, lim.name)
		default:
			in.loaded.Fresh = append(in.loaded.Fresh, lim.name)
		}
	}
	in.table.plant(s)
	return nil
}

// mayHave reports whether states of this limit, whatever its N, may be stored
// like that.
func (l *limit) mayHave(old layout) bool {
	switch old.kind {
	case windowNarrow, windowPacked, windowWide:
		return l.kind <= windowWide && old.numMask >= tenYears/3*4/l.w
	case gcraNarrow, gcraWide:
		return l.kind == gcraNarrow || l.kind == gcraWide
	}
	return l.kind == old.kind
}

// set reads a set, and reports whether there was one more.
func (in *snapshot) set() (more bool, err error) {
	b, err := in.r.Peek(maxRecord)
	if err != nil && err != io.EOF {
		return false, cutShort(err)
	}
	rest := b
	delta, n := binary.Uvarint(rest)
	switch {
	case n == 0:
		return false, errCutShort
	case n < 0:
		return false, errDamaged
	}
	rest = rest[n:]
	if delta == 0 {
		in.pass(n)
		return false, nil
	}
	if delta > in.sets-in.index {
		return false, errDamaged
	}
	in.index += delta
	if len(rest) < 2 {
		return false, errCutShort
	}
	slots, guests := rest[0], rest[1]
	rest = rest[2:]
	if slots == 0 || (slots|guests)>>setSlots != 0 || guests&^slots != 0 {
		return false, errDamaged
	}
	for ; slots != 0; slots &= slots - 1 {
		i := bits.TrailingZeros8(slots)
		place, n := binary.Uvarint(rest)
		if n == 0 {
			return false, errCutShort
		}
		if n < 0 || place >= uint64(len(in.limits)) {
			return false, errDamaged
		}
		rest = rest[n:]
		old := &in.limits[place]
		count := 1
		if old.wide {
			count = 2
		}
		if old.kind == concurrent || old.wide && (i&1 != 0 || i+1 == setSlots || slots>>(i+1)&1 != 0) {
			return false, errDamaged
		}
		if len(rest) < count*slotBytes {
			return false, errCutShort
		}
		var half set
		for j := range count {
			half.slot[i+j] = [2]uint64{binary.LittleEndian.Uint64(rest), binary.LittleEndian.Uint64(rest[8:])}
			rest = rest[slotBytes:]
		}
		if err := in.state(old.l, &half, i, guests>>i&1 != 0); err != nil {
			return false, err
		}
	}
	in.pass(len(b) - len(rest))
	return true, nil
}

// state takes over the state at slot i of s, which is of the present set.
func (in *snapshot) state(l *limit, s *set, i int, guest bool) error {
	n := in.index - 1
	home := n
	if guest {
		if n == 0 {
			return errDamaged
		}
		home--
	}
	if home == in.sets-1 {
		return errDamaged
	}
	in.states++
	if l == nil {
		return nil
	}
	at := in.at
	v := l.load(s, i, at)
	if !l.plausible(&v, at) {
		return errDamaged
	}
	if l.rewound(s.slot[i][0], s.slot[i][1], &v) {
		at = in.now // it continues as of now, not as of the snapshot
		v = l.load(s, i, at)
	}
	if later := l.load(s, i, in.now); l.fresh(&later) {
		return nil
	}
	in.loaded.States++
	tag := s.slot[i][0] &^ lowMask
	if in.sets != uint64(len(in.table.sets)) {
		in.table.spread(l, home, in.sets-1, tag, &v, at, in.now)
		return nil
	}
	if l.countsAnswers() {
		first, last := homeHashes(home, in.sets-1)
		in.table.answers[l.marks()].addAll(first, last, l.salt, in.now, l.freshAt(&v, at))
	}
	in.table.noteUse(int(home), guest)
	to := &in.table.sets[n]
	to.own(i, l.id, guest)
	if l.wide {
		to.own(i+1, secondHalf, guest)
	}
	l.store(to, i, tag, &v)
	if guest {
		in.table.sets[home].mark(true)
	}
	return nil
}

// plausible reports whether v can have come about. All others could lead the
// arithmetic astray.
func (l *limit) plausible(v *view, at int64) bool {
	switch l.kind {
	case gcraNarrow, gcraWide:
		return v.ns <= farthest+uint64(mostAhead)
	case quiet:
		return v.num <= at || uint64(v.num)-uint64(at) <= uint64(mostAhead)
	}
	windows := v.num - l.blank(at).num
	return v.prev <= l.most && v.cur <= l.most && uint64(windows) <= uint64(mostAhead)/l.w+1
}

// spread puts a state of a table with another number of homes into each set
// where a look-up may expect it. The lower bits of its hash are its tag; of the
// upper bits only its home in the other table is known. The copies that no
// look-up finds take room until they are fresh.
func (t *table) spread(l *limit, home, homes, tag uint64, v *view, at, now int64) {
	tag >>= lowBits
	lowest, highest := homeHashes(home, homes)
	if l.countsAnswers() {
		t.answers[l.marks()].addAll(lowest, highest, l.salt, now, l.freshAt(v, at))
	}
	for n := t.home(lowest); n <= t.home(highest); n++ {
		first, last := homeHashes(uint64(n), uint64(len(t.sets)-1))
		first, last = max(first, lowest), min(last, highest)
		hash := first&^(1<<tagBits-1) | tag
		if hash < first {
			hash += 1 << tagBits
		}
		if hash < first || hash > last {
			continue // no hash with that tag has both homes
		}
		p := t.reach(l, hash, now)
		if p.slot < 0 || l.newer(v, p.in, p.slot, at) {
			t.storeAt(&p, l, hash, v, now)
		}
		p.release()
	}
}

// newer reports whether v came about after the state at slot i of s: of the
// places where a state was put, only one has been looked at since.
func (l *limit) newer(v *view, s *set, i int, at int64) bool {
	old := l.load(s, i, at)
	if a, b := l.stamp(v), l.stamp(&old); a != b {
		return a > b
	}
	return l.debt(v) > l.debt(&old)
}

// homeHashes returns the least and the greatest hash whose home is that of so
// many.
func homeHashes(home, homes uint64) (least, greatest uint64) {
	least, rest := bits.Div64(home, 0, homes)
	if rest > 0 {
		least++
	}
	if home+1 == homes {
		return least, math.MaxUint64
	}
	greatest, rest = bits.Div64(home+1, 0, homes)
	if rest == 0 {
		greatest--
	}
	return least, greatest
}

// end reads what comes after the sets.
func (in *snapshot) end() error {
	b, err := in.next(8)
	if err != nil {
		return err
	}
	if binary.LittleEndian.Uint64(b) != in.states {
		return errDamaged
	}
	crc := in.crc
	if b, err = in.next(4); err != nil {
		return err
	}
	if binary.LittleEndian.Uint32(b) != crc {
		return errDamaged
	}
	switch _, err := in.r.ReadByte(); err {
	case io.EOF:
		return nil
	case nil:
		return unusable("there is more behind its end")
	default:
		return cutShort(err)
	}
}
