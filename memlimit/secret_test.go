package memlimit

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"testing"

	"fairshare"
)

// secretOf returns a secret that is the same in each run.
func secretOf(n int) secret {
	var s seed
	binary.LittleEndian.PutUint64(s[:], uint64(n))
	return s.secret()
}

// Each bit of a key moves each bit of the hash as often as not.
func TestHashAvalanche(t *testing.T) {
	samples := 1000
	if raceEnabled || testing.Short() {
		samples = 100
	}
	r := rand.New(rand.NewPCG(1, 1))
	worst := 0.0
	for _, size := range []int{1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 18, 31, 32, 33, 49} {
		key := make([]byte, size)
		for bit := range 8 * size {
			var flips [64]int
			for n := range samples {
				k := secretOf(n)
				for i := range key {
					key[i] = byte(r.Uint32())
				}
				before := k.hash(key)
				key[bit/8] ^= 1 << (bit % 8)
				for moved := before ^ k.hash(key); moved != 0; moved &= moved - 1 {
					flips[bits.TrailingZeros64(moved)]++
				}
			}
			for out, n := range flips {
				off := math.Abs(float64(n)-float64(samples)/2) / math.Sqrt(float64(samples)/4) // standard deviations
				worst = max(worst, off)
				if off > 6 {
					t.Errorf("%d bytes: bit %d of the key moves bit %d of the hash %d times of %d", size, bit, out, n,
						samples)
				}
			}
		}
	}
	t.Logf("at most %.1f standard deviations", worst)
}

// series are keys as they come: those of neighbours, and texts.
var series = []struct {
	name string
	key  func(i int) []byte
}{
	{"IPv4 addresses", func(i int) []byte {
		return addrKey(netip.AddrFrom4([4]byte{203, byte(i >> 16), byte(i >> 8), byte(i)}))
	}},
	{"IPv4 /24", func(i int) []byte {
		return addrKey(
			netip.AddrFrom4([4]byte{byte(i >> 16), byte(i >> 8), byte(i), 0}))
	}},
	{"IPv6 /64", func(i int) []byte { return ipv6(i, 5) }},
	{"IPv6 /48", func(i int) []byte { return ipv6(i, 3) }},
	{"IPv6 addresses", func(i int) []byte { return ipv6(i, 13) }},
	{"paths", func(i int) []byte { return fmt.Appendf([]byte{5, 12}, "/article/%d.html", i) }},
	{"numbers", number},
	{"16 bytes", func(i int) []byte { return binary.BigEndian.AppendUint64(make([]byte, 8), uint64(i)) }},
	{"high bits", func(i int) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(i)<<44) }},
}

func addrKey(a netip.Addr) []byte {
	b := a.As16()
	return append([]byte{1}, b[:]...)
}

// ipv6 returns the key of an address with i at byte at to at+2.
func ipv6(i, at int) []byte {
	b := [16]byte{0x20, 1, 0x0d, 0xb8}
	b[at], b[at+1], b[at+2] = byte(i>>16), byte(i>>8), byte(i)
	return addrKey(netip.AddrFrom16(b))
}

// Keys in a series are spread over the sets as if by chance.
func TestHashSpreads(t *testing.T) {
	const setBits, keys = 12, 1 << 13
	for _, s := range series {
		for n := range 20 {
			k := secretOf(n)
			sets := make([]int, 1<<setBits)
			for i := range keys {
				sets[k.hash(s.key(i))>>(64-setBits)]++
			}
			const mean = keys >> setBits
			chi2, most := 0.0, 0
			for _, n := range sets {
				chi2 += float64((n-mean)*(n-mean)) / mean
				most = max(most, n)
			}
			// Of len(sets)−1 degrees of freedom.
			if off := (chi2 - float64(len(sets))) / math.Sqrt(2*float64(len(sets))); math.Abs(off) > 5 || most > 16 {
				t.Errorf("%s, seed %d: chi² is off by %.1f standard deviations, %d keys are in one set", s.name, n,
					off, most)
			}
		}
	}
}

// Neither the set and part of the tag, nor the tag alone is the same for two
// keys of a series more often than by chance.
func TestHashCollides(t *testing.T) {
	const keys = 1 << 16
	tags, parts := 0, 0
	for n, s := range series {
		k := secretOf(n)
		for _, part := range []func(hash uint64) uint64{
			func(h uint64) uint64 { return h & (1<<tagBits - 1) },
			func(h uint64) uint64 { return h>>52<<12 | h&0xFFF },               // the set, and the tag's low end
			func(h uint64) uint64 { return h>>52<<12 | h>>(tagBits-12)&0xFFF }, // and its high end
		} {
			seen := make(map[uint64]int, keys)
			pairs := 0
			for i := range keys {
				p := part(k.hash(s.key(i)))
				pairs += seen[p]
				seen[p]++
			}
			if seen := part(math.MaxUint64); seen == 1<<tagBits-1 {
				tags += pairs
			} else {
				parts += pairs
				const want = keys * keys / 2 / (1 << 24)
				if off := (float64(pairs) - want) / math.Sqrt(want); math.Abs(off) > 5 {
					t.Errorf("%s: %d pairs share a set and 12 bits of the tag, by chance it would be %d", s.name,
						pairs, want)
				}
			}
		}
	}
	// 9 series of 2^31 pairs: 2^31·9/2^36 is 0.3.
	if tags > 4 {
		t.Errorf("%d pairs share a tag", tags)
	}
	t.Logf("%d pairs share a tag of 36 bits, %d a set of 12 and 12 bits of the tag", tags, parts)
}

// A key is not another that begins alike, however long, and the salt of a
// limit depends on all of what it is.
func TestHashTellsApart(t *testing.T) {
	seen := map[uint64]string{}
	note := func(hash uint64, what string) {
		t.Helper()
		if other, found := seen[hash]; found {
			t.Errorf("%s has the hash of %s", what, other)
		}
		seen[hash] = what
	}
	for n := range 2 {
		k := secretOf(n)
		for size := range 300 {
			key := make([]byte, size)
			note(k.hash(key), fmt.Sprintf("%d zeros under seed %d", size, n))
			for i := range key {
				key[i] = 1
				note(k.hash(key), fmt.Sprintf("%d zeros with a 1 at %d under seed %d", size, i, n))
				key[i] = 0
			}
		}
	}
	limit := perMinute(10)
	limit.By = []fairshare.KeyPart{{Kind: fairshare.ByCookie, Name: "a"}}
	for _, change := range []func(){
		func() {},
		func() { limit.Name = "other" },
		func() { limit.By[0].Name = "b" },
		func() { limit.By = append(limit.By, fairshare.KeyPart{Kind: fairshare.ByHost}) },
		func() { limit.Window++ },
		func() { limit.Resource = fairshare.Errors },
		func() { limit.Algorithm = fairshare.GCRA },
	} {
		change()
		for n := range byte(3) {
			note(seed{n}.salt(identity(&limit)), fmt.Sprintf("%s under seed %d", identity(&limit), n))
		}
	}
	limit.N = 11
	if seed := (seed{}); seed.salt(identity(&limit)) != opened(t, 1<<12, limit).withSeed(seed).limits[0].salt {
		t.Error("the salt depends on more than the seed and what the limit is")
	}
}

func (l *Limiter) withSeed(s seed) *Limiter {
	l.table.plant(s)
	return l
}

// BenchmarkHash compares the hash with hash/maphash, whose seed cannot be
// kept over a restart.
func BenchmarkHash(b *testing.B) {
	k, other := newSeed().secret(), maphash.MakeSeed()
	for _, size := range []int{8, 16, 17, 34, 64} {
		key := make([]byte, size)
		var sum uint64
		b.Run(fmt.Sprintf("%d bytes/ours", size), func(b *testing.B) {
			for b.Loop() {
				key[0] = byte(sum) // one after the other
				sum += k.hash(key)
			}
		})
		b.Run(fmt.Sprintf("%d bytes/maphash", size), func(b *testing.B) {
			for b.Loop() {
				key[0] = byte(sum)
				sum += maphash.Bytes(other, key)
			}
		})
	}
}
