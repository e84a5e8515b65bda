package memlimit

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/binary"
	"math/bits"
)

// A seed is what hashes of keys depend on. Who does not know it cannot choose
// keys that share a counter or a set.
type seed [16]byte

func newSeed() (s seed) {
	rand.Read(s[:]) // never fails
	return s
}

// salt returns what keeps a limit's states apart from those of other limits.
// It depends on the seed and on what the limit is, and so outlives a restart.
func (s seed) salt(identity string) uint64 {
	sum := sha256.Sum256(append(s[:], identity...))
	return binary.LittleEndian.Uint64(sum[:])
}

// A secret hashes keys. A key is cut into words. A secret number is added to each
// word, and then pairs of words are multiplied (NH of UMAC, RFC 4418 §5.2).
// Different keys of up to 17 bytes give the same sum of products with a
// probability of at most 2^-64. The sum of 128 bits is then multiplied with itself in the
// same way and folded, as wyhash does it.
//
// A product says nothing about one of its factors when the other is 0. Each
// factor has a secret number of its own in it, so nobody can bring that about
// but by a chance of 2^-64.
type secret [8]uint64

func (s seed) secret() (k secret) {
	sum := sha512.Sum512(s[:])
	for i := range k {
		k[i] = binary.LittleEndian.Uint64(sum[8*i:])
	}
	return k
}

// hash returns 64 bits. Most keys are a tag and 16 bytes of an address.
func (k *secret) hash(key []byte) uint64 {
	if len(key) == 17 {
		return k.fold(k.sum(binary.LittleEndian.Uint64(key), binary.LittleEndian.Uint64(key[8:]),
			17<<8|uint64(key[16])))
	}
	return k.hashOther(key)
}

func (k *secret) hashOther(key []byte) uint64 {
	n := uint64(len(key))
	var hi, lo uint64 // of what was before the last 1 to 16 bytes
	for len(key) > 16 {
		h, l := bits.Mul64(binary.LittleEndian.Uint64(key)+k[0], binary.LittleEndian.Uint64(key[8:])+k[1])
		hi, lo = bits.Mul64(hi+k[6], lo+k[7])
		hi, lo = add128(hi, lo, h, l)
		key = key[16:]
	}
	var a, b uint64
	switch rest := len(key); {
	case rest >= 8:
		a, b = binary.LittleEndian.Uint64(key), binary.LittleEndian.Uint64(key[rest-8:])
	case rest >= 4:
		a, b = uint64(binary.LittleEndian.Uint32(key)), uint64(binary.LittleEndian.Uint32(key[rest-4:]))
	case rest > 0:
		a = uint64(key[0])<<16 | uint64(key[rest>>1])<<8 | uint64(key[rest-1])
	}
	h, l := k.sum(a, b, n<<8)
	if n > 16 {
		hi, lo = bits.Mul64(hi+k[6], lo+k[7])
		h, l = add128(hi, lo, h, l)
	}
	return k.fold(h, l)
}

// sum returns (a+k0)·(b+k1) + (c+k2)·k3 mod 2^128.
func (k *secret) sum(a, b, c uint64) (hi, lo uint64) {
	hi, lo = bits.Mul64(a+k[0], b+k[1])
	h, l := bits.Mul64(c+k[2], k[3])
	return add128(hi, lo, h, l)
}

func (k *secret) fold(hi, lo uint64) uint64 {
	hi, lo = bits.Mul64(hi+k[4], lo+k[5])
	return hi ^ lo
}

func add128(hi, lo, h, l uint64) (uint64, uint64) {
	lo, carry := bits.Add64(lo, l, 0)
	hi, _ = bits.Add64(hi, h, carry)
	return hi, lo
}
