package memlimit

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"math/bits"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"fairshare"
)

func snapshotOf(t testing.TB, l *Limiter, now time.Time) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := l.Save(&b, now); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// allKinds has a limit of each way to store states.
var allKinds = []fairshare.Limit{
	{Name: "narrow", Resource: fairshare.Requests, N: 50, Window: time.Minute},
	{Name: "packed", Resource: fairshare.Bytes, N: 1 << 20, Window: time.Minute},
	{Name: "wide", Resource: fairshare.Bytes, N: 1 << 42, Window: time.Minute},
	{Name: "tiny", Resource: fairshare.Requests, N: 20, Window: 2 * time.Millisecond},
	{Name: "gcra", Resource: fairshare.Requests, N: 7, Window: time.Minute, Algorithm: fairshare.GCRA, Burst: 40},
	{Name: "gcra wide", Resource: fairshare.Bytes, N: 1<<40 + 1, Window: time.Minute, Algorithm: fairshare.GCRA},
	{Name: "quiet", Resource: fairshare.Requests, N: 50, Window: time.Minute, Algorithm: fairshare.Quiet},
	{Name: "bans", Resource: fairshare.Refusals, N: 20, Window: 10 * time.Minute},
	{Name: "seven percent", Resource: fairshare.CPU, N: 4.2e6, Window: 15 * time.Second},
	{Name: "steady time", Resource: fairshare.Time, N: 3e7, Window: time.Minute, Algorithm: fairshare.GCRA},
	{Name: "cost", Resource: fairshare.Cost, N: fairshare.MaxBytes, Window: time.Hour},
	{Name: "slots", Resource: fairshare.Concurrent, N: 3},
}

func TestAllKindsAreOfAllKinds(t *testing.T) {
	seen := map[kind]bool{}
	for _, l := range opened(t, 1<<10, allKinds...).limits {
		seen[l.kind] = true
	}
	if len(seen) != int(concurrent)+1 {
		t.Errorf("only %v", seen)
	}
}

// turn makes a random request under allKinds and returns its tallies.
func turn(t *testing.T, r *rand.Rand, now time.Time, l *Limiter, keys int) []fairshare.Tally {
	t.Helper()
	var takes []fairshare.Take
	var charges []fairshare.Charge
	for _, i := range r.Perm(len(allKinds) - 1)[:1+r.IntN(3)] {
		key := number(r.IntN(keys))
		takes = append(takes, fairshare.Take{Limit: i, Key: key, Cost: 1 + r.Int64N(allKinds[i].N)/5})
		if allKinds[i].Resource.Settled() {
			charges = append(charges, fairshare.Charge{Limit: i, Key: key, Cost: 1 + r.Int64N(allKinds[i].N)/5})
		}
	}
	tallies := make([]fairshare.Tally, len(takes))
	if err := l.Take(ctx, now, takes, tallies); err != nil {
		t.Fatal(err)
	}
	for i := range takes { // a snapshot does not hold who is in progress
		charges = append(charges, fairshare.Charge{Limit: takes[i].Limit, Key: takes[i].Key, Held: tallies[i].Held})
		tallies[i].Held = 0
	}
	if err := l.Settle(ctx, now, charges); err != nil {
		t.Fatal(err)
	}
	return tallies
}

// A crowded table, with guests, wide states and losses, goes on as if nothing
// had happened.
func TestLoadCrowded(t *testing.T) {
	for round := range uint64(24) {
		sets := int64(2 + round%6)
		before := opened(t, sets*setBytes, allKinds...)
		r := rand.New(rand.NewPCG(round, 1))
		now, keys := start, int(10+20*round)
		for range 1000 {
			now = now.Add(time.Duration(r.Int64N(int64(time.Second / 10))))
			turn(t, r, now, before, keys)
		}
		for i := range before.table.sets {
			s := &before.table.sets[i]
			if got := s.copy(); got.ids != s.ids || got.slot != s.slot || got.head != s.head {
				t.Fatalf("copy of set %d: %+v, want %+v", i, got, *s)
			}
		}
		after := opened(t, sets*setBytes, allKinds...)
		loaded, err := after.Load(iotest.OneByteReader(bytes.NewReader(snapshotOf(t, before, now))), now)
		if err != nil {
			t.Fatal(err)
		}
		if want := before.Stats(now).Live; int64(loaded.States) != want || after.Stats(now).Live != want {
			t.Fatalf("%d sets: %d states of %d", sets, loaded.States, want)
		}
		check(t, after.table)
		lost := before.Stats(now).Lost
		for n := range 1000 {
			pause := time.Duration(n) * 10 * time.Millisecond
			seed1, seed2 := r.Uint64(), r.Uint64()
			want := turn(t, rand.New(rand.NewPCG(seed1, seed2)), now.Add(pause), before, keys)
			got := turn(t, rand.New(rand.NewPCG(seed1, seed2)), now.Add(pause), after, keys)
			if !slices.Equal(got, want) {
				t.Fatalf("%d sets, %d keys, request %d: %+v, want %+v", sets, keys, n, got, want)
			}
		}
		end := now.Add(10 * time.Second)
		if got, want := after.Stats(end).Lost, before.Stats(end).Lost-lost; got != want || keys > 400 && want == 0 {
			t.Errorf("%d sets, %d keys: %d are lost, want %d", sets, keys, got, want)
		}
		check(t, after.table)
	}
}

// With clients.memory changed, nobody is forgiven either.
func TestLoadIntoOtherMemory(t *testing.T) {
	const clients, large = 2000, 200
	before := opened(t, 1<<18, allKinds...)
	for i := range clients {
		take(t, before, 0, number(i), int64(1+i%50), start)
	}
	for i := range large {
		if err := before.Settle(ctx, start, []fairshare.Charge{{Limit: 2, Key: number(i),
			Cost: int64(1 + i)}}); err != nil {
			t.Fatal(err)
		}
	}
	snapshot := snapshotOf(t, before, start)
	for _, sets := range []int64{2048, 2049, 2050, 2047, 1900, 1025, 4096, 5000, 8191} {
		after := opened(t, sets*setBytes, allKinds...)
		loaded, err := after.Load(bytes.NewReader(snapshot), start)
		if err != nil || loaded.States < (clients+large)*99/100 {
			t.Fatalf("%d sets: %+v, %v", sets, loaded, err)
		}
		check(t, after.table)
		lost, wrong := after.Stats(start).Lost, int64(0)
		for i := range clients {
			if got := used(t, after, 0, number(i), start); got != used(t, before, 0, number(i), start) {
				wrong++
			}
		}
		for i := range large {
			if got := after.limits[2].load(stateOf(after, 2, i)).
				cur; got != before.limits[2].load(stateOf(before, 2, i)).cur {
				wrong++
			}
		}
		if wrong > lost || wrong > clients/50 {
			t.Errorf("%d sets: %d counts are wrong, %d states are lost", sets, wrong, lost)
		}
	}
}

func TestLoadIntoFarMoreMemory(t *testing.T) {
	before := opened(t, 1<<18, allKinds...)
	take(t, before, 0, number(1), 1, start)
	l, twin := twins(t, 5<<18, allKinds...)
	_, err := l.Load(bytes.NewReader(snapshotOf(t, before, start)), start)
	if !errors.Is(err, ErrUnusable) || !strings.HasSuffix(err.Error(),
		": it is of a table of 0.25 MiB, too small for one of 1.25 MiB") {
		t.Errorf("%v", err)
	}
	asNew(t, l, twin, "too small")
}

// stateOf returns where the state of number i is, or an empty place.
func stateOf(l *Limiter, limit, i int) (*set, int, int64) {
	lim := &l.limits[limit]
	p := l.table.reach(lim, l.table.secret.hash(number(i))^lim.salt, start.UnixNano())
	p.release()
	if p.slot < 0 {
		return &set{}, 0, start.UnixNano()
	}
	return p.in, p.slot, start.UnixNano()
}

func TestHomeHashes(t *testing.T) {
	for _, homes := range []uint64{1, 2, 3, 7, 8191, 8192, 524287, 1<<40 + 1} {
		for _, home := range []uint64{0, 1, 2, homes / 3, homes / 2, homes - 2, homes - 1} {
			if home >= homes {
				continue
			}
			least, greatest := homeHashes(home, homes)
			of := func(hash uint64) uint64 { hi, _ := bits.Mul64(hash, homes); return hi }
			if of(least) != home || of(greatest) != home || home > 0 && of(least-1) != home-1 ||
				home < homes-1 && of(greatest+1) != home+1 {
				t.Errorf("home %d of %d: %d to %d", home, homes, least, greatest)
			}
			if (home == 0) != (least == 0) || (home == homes-1) != (greatest == math.MaxUint64) {
				t.Errorf("home %d of %d: %d to %d", home, homes, least, greatest)
			}
		}
	}
}

func TestLoadedTells(t *testing.T) {
	before := opened(t, 1<<12, allKinds...)
	for i := range allKinds {
		if allKinds[i].Resource.Settled() {
			if err := before.Settle(ctx, start, []fairshare.Charge{{Limit: i, Key: []byte("k"), Cost: 3}}); err != nil {
				t.Fatal(err)
			}
		} else {
			take(t, before, i, []byte("k"), 3, start)
		}
	}
	snapshot := snapshotOf(t, before, start)
	edited := slices.Clone(allKinds)
	edited[0].N = 5                      // goes on
	edited[1].N = 1 << 41                // needs more room
	edited[2].N = 7                      // fits
	edited[3].Name = "renamed"           //
	edited[4].Burst, edited[4].N = 4, 7  // goes on
	edited[6].Window = 61 * time.Second  //
	edited[7].Name = "other bans"        // is not named
	edited[8].N = 100                    // goes on
	edited[11].N = 4                     // goes on, though no slot is taken any more
	edited = slices.Delete(edited, 5, 6) // gone
	slices.Reverse(edited)
	after := opened(t, 1<<12, edited...)
	loaded, err := after.Load(bytes.NewReader(snapshot), start.Add(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	want := Loaded{
		States: 5, At: start, // but slots, and steady time, which is fresh after a second
		Limits: []string{"slots", "cost", "steady time", "seven percent", "gcra", "wide", "narrow"},
		Fresh:  []string{"quiet", "renamed", "packed"},
	}
	if !loaded.At.Equal(want.At) {
		t.Errorf("of %v", loaded.At)
	}
	if loaded.At = want.At; !reflect.DeepEqual(loaded, want) {
		t.Errorf("got %+v, want %+v", loaded, want)
	}
	if got := after.Fresh(); !slices.Equal(got, want.Fresh) {
		t.Errorf("fresh are %q", got)
	}
	for i, l := range edited {
		want := map[string]int64{"narrow": 3, "wide": 3, "gcra": 3}[l.Name]
		tally := take(t, after, i, []byte("k"), l.Allowed()+1, start.Add(time.Second))
		if got := tally.Used; got != want && !l.Resource.Settled() {
			t.Errorf("%s: %d are counted, want %d", l.Name, got, want)
		}
	}
	// A reload after a restart is one like any other.
	next, err := after.With(allKinds)
	if err != nil {
		t.Fatal(err)
	}
	if got := next.Fresh(); !slices.Equal(got, []string{"tiny", "gcra wide", "quiet"}) {
		t.Errorf("fresh after the reload are %q", got)
	}
	if got := used(t, next, 0, []byte("k"), start.Add(2*time.Second)); got != 3 {
		t.Errorf("after the reload: %d are counted", got)
	}
}

func TestFreshStatesAreNotSaved(t *testing.T) {
	l := opened(t, 1<<14, perMinute(10))
	empty := len(snapshotOf(t, l, start))
	for i := range 100 {
		take(t, l, 0, number(i), 1, start)
	}
	full := len(snapshotOf(t, l, start))
	if each := float64(full-empty) / 100; each < 17 || each > 20 {
		t.Errorf("%.1f bytes a state", each)
	}
	if got := len(snapshotOf(t, l, start.Add(2*time.Minute))); got != empty {
		t.Errorf("%d bytes when all is fresh again, %d when it was empty", got, empty)
	}
	for later, want := range map[time.Duration]int{59 * time.Second: 100, 2 * time.Minute: 0, 300 * 24 * time.Hour: 0} {
		after := opened(t, 1<<14, perMinute(10))
		loaded, err := after.Load(bytes.NewReader(snapshotOf(t, l, start)), start.Add(later))
		if err != nil || loaded.States != want {
			t.Errorf("%v later: %+v, %v", later, loaded, err)
		}
	}
}

// asNew fails unless l is as New made it.
func asNew(t *testing.T, l, twin *Limiter, name string) {
	t.Helper()
	if l.table.seed != twin.table.seed || l.table.secret != twin.table.secret {
		t.Errorf("%s: another seed", name)
	}
	for i := range l.limits {
		got, want := l.limits[i], twin.limits[i]
		if got != want {
			t.Errorf("%s: limit %+v was %+v", name, got, want)
		}
	}
	if !slices.Equal(l.fresh, twin.fresh) {
		t.Errorf("%s: fresh are %q", name, l.fresh)
	}
	for i := range l.table.sets {
		if s := &l.table.sets[i]; s.head&^versionBits != 0 || s.ids != 0 || s.slot != (set{}).slot {
			t.Errorf("%s: set %d is %+v", name, i, *s)
		}
	}
	for n := range l.table.used.all() {
		t.Errorf("%s: set %d is marked", name, n)
	}
	for i := range l.table.answers {
		for n := range l.table.answers[i].entries {
			if word := l.table.answers[i].entries[n].Load(); word != 0 {
				t.Errorf("%s: keys are marked: %x", name, word)
			}
		}
	}
	if got := l.Stats(start); got.Lost != 0 || got.Needed != 0 || got.Live != 0 {
		t.Errorf("%s: %+v", name, got)
	}
}

// twins returns a Limiter, and another that is made alike.
func twins(t testing.TB, memory int64, limits ...fairshare.Limit) (l, twin *Limiter) {
	l, twin = opened(t, memory, limits...), opened(t, 2*setBytes, limits...)
	twin.table.plant(l.table.seed)
	return l, twin
}

// Whatever is done to a snapshot is found out, and nothing of it remains.
func TestDamage(t *testing.T) {
	before := opened(t, 8*setBytes, allKinds...)
	r := rand.New(rand.NewPCG(5, 5))
	for range 300 {
		turn(t, r, start, before, 100)
	}
	good := snapshotOf(t, before, start)
	bitsTried := 8
	if raceEnabled || testing.Short() {
		bitsTried = 1
	}
	for _, memory := range []int64{8 * setBytes, 5 * setBytes} {
		l, twin := twins(t, memory, allKinds...)
		try := func(name string, b []byte) {
			t.Helper()
			loaded, err := l.Load(bytes.NewReader(b), start)
			if !errors.Is(err, ErrUnusable) || !reflect.DeepEqual(loaded, Loaded{}) {
				t.Fatalf("%s: %+v, %v", name, loaded, err)
			}
			asNew(t, l, twin, name)
		}
		for i := range good {
			for bit := range bitsTried {
				good[i] ^= 1 << bit
				try(fmt.Sprintf("bit %d of byte %d", bit, i), good)
				good[i] ^= 1 << bit
			}
			try(fmt.Sprintf("cut at byte %d", i), good[:i])
		}
		try("one byte more", append(slices.Clone(good), 0))
		try("twice", append(slices.Clone(good), good...))
		if loaded, err := l.Load(bytes.NewReader(good), start); err != nil || loaded.States == 0 {
			t.Errorf("after all that: %+v, %v", loaded, err)
		}
	}
}

func TestUnusable(t *testing.T) {
	before := opened(t, 1<<12, perMinute(10))
	take(t, before, 0, []byte("k"), 10, start)
	good := snapshotOf(t, before, start)
	for _, c := range []struct {
		name string
		b    []byte
		at   time.Time
		want string
	}{
		{"empty", nil, start, "it is cut short"},
		{"something else", []byte("SQLite format 3\x00 and so on"), start, "it is something else"},
		{"newer", []byte("fairshare counters 2\nand more"), start, "it is of another version of fairshare"},
		{"from the future", good, start.Add(-2 * time.Minute),
			"it is of 2027-01-15T08:00:00Z, which is yet to come: has a clock been set?"},
	} {
		l, twin := twins(t, 1<<12, perMinute(10))
		_, err := l.Load(bytes.NewReader(c.b), c.at)
		if !errors.Is(err, ErrUnusable) || !strings.HasSuffix(err.Error(), ": "+c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
		asNew(t, l, twin, c.name)
	}
	// A step back of a minute happens; the state's own time counts then.
	l := opened(t, 1<<12, perMinute(10))
	if _, err := l.Load(bytes.NewReader(good), start.Add(-time.Minute)); err != nil {
		t.Error(err)
	}
	if got := take(t, l, 0, []byte("k"), 1, start.Add(-time.Minute)); !got.Over {
		t.Errorf("a minute earlier: %+v", got)
	}
	// What cannot be read is not at fault.
	l, twin := twins(t, 1<<12, perMinute(10))
	fault := errors.New("input/output error")
	if _, err := l.Load(io.MultiReader(bytes.NewReader(good[:len(good)-20]), iotest.ErrReader(fault)),
		start); !errors.Is(err, fault) || errors.Is(err, ErrUnusable) {
		t.Errorf("%v", err)
	}
	asNew(t, l, twin, "faulty disk")
}

// Saving among requests loses nothing that ended before it began, and charges
// nothing that was not.
func TestSaveAmongTakes(t *testing.T) {
	const workers, keys = 4, 50
	const enough = fairshare.MaxN // however slow the other side is
	limits := []fairshare.Limit{perMinute(enough), {Name: "bytes", Resource: fairshare.Bytes, N: 1 << 40,
		Window: time.Hour}}
	l := opened(t, 4*setBytes, limits...) // often in the way of one another
	earlier, later := [keys]int64{}, [keys]int64{}
	var (
		mu    sync.Mutex
		ended [keys]int64 // takes that have ended
		began [keys]int64
		all   sync.WaitGroup
		stop  = make(chan struct{})
	)
	for w := range workers {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 3))
			tallies := make([]fairshare.Tally, 1)
			for {
				select {
				case <-stop:
					return
				default:
				}
				i := r.IntN(2 * setSlots) // so many have places wherever they belong: none is lost
				mu.Lock()
				began[i]++
				mu.Unlock()
				if err := l.Take(ctx, start, []fairshare.Take{{Key: number(i), Cost: 1}}, tallies); err != nil ||
					tallies[0].Over {
					t.Errorf("%+v, %v", tallies[0], err)
					return
				}
				mu.Lock()
				ended[i]++
				mu.Unlock()
			}
		})
	}
	for range 200 {
		mu.Lock()
		earlier = ended
		mu.Unlock()
		snapshot := snapshotOf(t, l, start)
		mu.Lock()
		later = began
		mu.Unlock()
		after := opened(t, 4*setBytes, limits...)
		if _, err := after.Load(bytes.NewReader(snapshot), start); err != nil {
			t.Fatal(err)
		}
		for i := range keys {
			tally := take(t, after, 0, number(i), enough, start)
			if tally.Used < earlier[i] || tally.Used > later[i] {
				t.Fatalf("key %d: %d are counted, %d were when saving began and %d when it was done", i, tally.Used,
					earlier[i], later[i])
			}
		}
	}
	close(stop)
	all.Wait()
	check(t, l.table)
}

// withSum returns b with a checksum that is right.
func withSum(b []byte) []byte {
	return binary.LittleEndian.AppendUint32(slices.Clone(b), crc32.Checksum(b, castagnoli))
}

func FuzzLoad(f *testing.F) {
	for _, sets := range []int64{2, 9} {
		l := opened(f, sets*setBytes, allKinds...)
		for i := range 10 {
			for j := range allKinds {
				if allKinds[j].Resource.Settled() {
					if err := l.Settle(ctx, start, []fairshare.Charge{{Limit: j, Key: number(i),
						Cost: int64(1 + i)}}); err != nil {
						f.Fatal(err)
					}
				} else {
					take(f, l, j, number(i), 1, start)
				}
			}
		}
		b := snapshotOf(f, l, start)
		f.Add(b[:len(b)-4], uint16(len(b)/2), int64(0))
		f.Add(b[:len(b)-4], uint16(60), int64(math.MinInt64))
	}
	f.Fuzz(func(t *testing.T, b []byte, at uint16, word int64) {
		if i := int(at); i+8 <= len(b) && word != 0 {
			b = slices.Clone(b)
			binary.LittleEndian.PutUint64(b[i:], uint64(word))
		}
		l, twin := twins(t, 9*setBytes, allKinds...)
		for _, b := range [][]byte{b, withSum(b)} {
			if _, err := l.Load(bytes.NewReader(b), start); err != nil {
				if !errors.Is(err, ErrUnusable) {
					t.Fatal(err)
				}
				asNew(t, l, twin, "bad")
				continue
			}
			check(t, l.table)
			// What has been loaded is loaded again from what it is saved as.
			again := opened(t, 9*setBytes, allKinds...)
			first := snapshotOf(t, l, start)
			if _, err := again.Load(bytes.NewReader(first), start); err != nil {
				t.Fatal(err)
			}
			if second := snapshotOf(t, again, start); !bytes.Equal(first, second) {
				t.Fatalf("%x\nis saved as\n%x", first, second)
			}
			for n := range 4 {
				now := start.Add(time.Duration(n*n) * 30 * time.Second)
				for i := range 10 {
					for j := range allKinds {
						if got := take(t, l, j, number(i), 1, now); got.Wait < 0 || got.Used < 0 || got.Reset < 0 {
							t.Fatalf("%s: %+v", allKinds[j].Name, got)
						}
						if err := l.Settle(ctx, now, []fairshare.Charge{{Limit: j, Key: number(i),
							Cost: int64(2*n) - 3, At: start}}); err != nil {
							t.Fatal(err)
						}
					}
				}
				l.Stats(now)
			}
			check(t, l.table)
			break
		}
	})
}

// million returns a Limiter with a million clients, as a network attack or a
// busy day would leave it.
func million(b *testing.B) *Limiter {
	l := opened(b, DefaultMemory, perMinute(100))
	for i := range 1_000_000 {
		take(b, l, 0, number(i), int64(1+i%100), start)
	}
	return l
}

func BenchmarkSave(b *testing.B) {
	l := million(b)
	var size countWriter
	for b.Loop() {
		size = 0
		if err := l.Save(&size, start); err != nil || size < 16_000_000 {
			b.Fatal(size, err)
		}
	}
	b.ReportMetric(float64(size)/1e6, "MB")
}

type countWriter int64

func (c *countWriter) Write(b []byte) (int, error) {
	*c += countWriter(len(b))
	return len(b), nil
}

func BenchmarkLoad(b *testing.B) {
	snapshot := snapshotOf(b, million(b), start)
	for name, memory := range map[string]int64{"same memory": DefaultMemory, "twice the memory": 2 * DefaultMemory,
		"half the memory": DefaultMemory / 2} {
		b.Run(name, func(b *testing.B) {
			l := opened(b, memory, perMinute(100))
			for b.Loop() {
				loaded, err := l.Load(bytes.NewReader(snapshot), start)
				if err != nil || loaded.States < 980_000 {
					b.Fatal(loaded, err)
				}
				b.StopTimer()
				l.Reset()
				b.StartTimer()
			}
		})
	}
}
