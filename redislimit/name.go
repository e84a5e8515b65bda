package redislimit

import (
	"encoding/base64"
	"encoding/binary"

	"fairshare"
	"github.com/dchest/siphash"
	"github.com/redis/rueidis"
)

// A secret is what names in the store depend on. All members have the same, so
// nobody else can find out which client a name is of, or aim at a name.
type secret [32]byte

// A name stands for a key: 128 bits of SipHash-2-4 (Aumasson and Bernstein 2012).
type name struct{ a, b uint64 }

func (s *secret) name(key []byte) name {
	a, b := siphash.Hash128(binary.LittleEndian.Uint64(s[:]), binary.LittleEndian.Uint64(s[8:]), key)
	return name{a, b}
}

// localKey is the length of keys of the view. Those of 17 bytes are hashed fastest there.
const localKey = 17

// bytes returns n as a key of the view.
func (n *name) bytes() (b [localKey]byte) {
	binary.LittleEndian.PutUint64(b[:], n.a)
	binary.LittleEndian.PutUint64(b[8:], n.b)
	return b
}

const (
	tagBits  = 48
	plainKey = 1 + 16 // a kind and an address
)

// tag returns what decides where a key is in a cluster: a hash of the client's
// network, an IPv4 /24 or IPv6 /48, so that all keys of one client are together.
// Keys that do not begin with an address have tags of their own.
func (s *secret) tag(key []byte) uint64 {
	part := key
	if len(key) >= plainKey {
		switch kind := fairshare.KeyKind(key[0] & 0x1f); kind {
		case fairshare.ByAddr, fairshare.ByNetwork:
			part = key[1 : 1+6]
			if binary.BigEndian.Uint64(key[1:]) == 0 && binary.BigEndian.Uint32(key[9:]) == 0xffff {
				part = key[1 : 1+15]
			}
		}
	}
	return siphash.Hash(binary.LittleEndian.Uint64(s[16:]), binary.LittleEndian.Uint64(s[24:]), part) & (1<<tagBits - 1)
}

// tagText returns a tag as keys contain it.
func tagText(tag uint64) string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], tag)
	return base64.RawURLEncoding.EncodeToString(b[2:])
}

// keyOf returns the key of a name in the store: 96 bits of it.
func keyOf(prefix string, tag uint64, n name) string {
	b := n.bytes()
	var t [8]byte
	binary.BigEndian.PutUint64(t[:], tag)
	key := append(make([]byte, 0, len(prefix)+26), prefix...)
	key = append(base64.RawURLEncoding.AppendEncode(append(key, '{'), t[2:]), '}')
	return rueidis.BinaryString(base64.RawURLEncoding.AppendEncode(key, b[:12]))
}

// slotOf returns the slot of a cluster that a hash tag is in (CRC-16/XMODEM).
func slotOf(tag string) int {
	var crc uint16
	for i := range len(tag) {
		crc = addCRC(crc, tag[i])
	}
	return int(crc) % slots
}

// slotOfTag is slotOf of the text of a tag.
func slotOfTag(tag uint64) int {
	var crc uint16
	for shift := tagBits - 6; shift >= 0; shift -= 6 {
		crc = addCRC(crc, base64Digits[tag>>shift&63])
	}
	return int(crc) % slots
}

const base64Digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

func addCRC(crc uint16, b byte) uint16 { return crc<<8 ^ crcs[byte(crc>>8)^b] }

// crcs are those of each byte.
var crcs = func() (t [256]uint16) {
	for i := range t {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		t[i] = crc
	}
	return t
}()

const slots = 16384
