package main

import (
	"encoding/binary"
	"math/rand"
)

// A crowd is a sequence of requests of n clients. The keys are in memory in the order of
// the requests, since a server has just read the address: no subject waits for them.
type crowd struct {
	name string
	n    int
	keys []byte
}

const keyLen = 16

// key writes a client's key, which has the length of an IPv6 address.
func key(to []byte, client uint64) {
	binary.BigEndian.PutUint64(to, 0x20010db8<<32|client>>32)
	binary.BigEndian.PutUint64(to[8:], client*0x9E3779B97F4A7C15)
}

// newCrowd returns a sequence of that length by Zipf's law with exponent s, or uniform if
// s is 0.
func newCrowd(name string, n int, s float64, length int) *crowd {
	c := &crowd{name: name, n: n, keys: make([]byte, keyLen*length)}
	r := rand.New(rand.NewSource(1))
	next := func() uint64 { return uint64(r.Intn(n)) }
	if s > 0 {
		next = rand.NewZipf(r, s, 1, uint64(n-1)).Uint64
	}
	for i := range length {
		key(c.keys[i*keyLen:][:keyLen], next())
	}
	return c
}

// take calls take for count requests, beginning with number from, and returns how many
// passed.
func (c *crowd) take(take func([]byte) bool, from, count int) int {
	passed, at := 0, from*keyLen%len(c.keys)
	for range count {
		if take(c.keys[at : at+keyLen : at+keyLen]) {
			passed++
		}
		if at += keyLen; at == len(c.keys) {
			at = 0
		}
	}
	return passed
}
