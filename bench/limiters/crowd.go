package main

import (
	"encoding/binary"
	"math/rand"
)

// A crowd is a sequence of requests of n clients. The keys stand one after
// another in the order of asking, as a server has the address of a request at
// hand: no subject waits for them.
type crowd struct {
	name string
	n    int
	keys []byte
}

const keyLen = 16

// key writes client's key, as long as an IPv6 address.
func key(to []byte, client uint64) {
	binary.BigEndian.PutUint64(to, 0x20010db8<<32|client>>32)
	binary.BigEndian.PutUint64(to[8:], client*0x9E3779B97F4A7C15)
}

// newCrowd returns a sequence of that length by Zipf's law with exponent s,
// or even if s is 0.
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

// ask lets the requests from the i-th on ask, and returns how many passed.
func (c *crowd) ask(ask func([]byte) bool, from, count int) int {
	passed, at := 0, from*keyLen%len(c.keys)
	for range count {
		if ask(c.keys[at : at+keyLen : at+keyLen]) {
			passed++
		}
		if at += keyLen; at == len(c.keys) {
			at = 0
		}
	}
	return passed
}
