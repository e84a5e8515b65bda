package fairshare

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// A forgotten holds the clients that an operator has forgotten, and when. From
// then on the time is part of each key of such a client, so that counters under
// the former keys are not used again.
type forgotten struct {
	any atomic.Bool // it is not empty

	mu    sync.RWMutex
	lens  [129]int // how many prefixes have that length
	addrs map[forgottenAddr]forgottenAt
	bots  map[string]forgottenAt
	noted int64 // number of calls of note
}

// A forgottenAt says when a client was last forgotten. The clock may have been
// set back since, so the order of the calls of note decides which is the last.
type forgottenAt struct {
	noted int64 // number of calls of note until then
	ns    int64 // Unix ns
}

// A forgottenAddr is a prefix, that of an IPv4 address within ::ffff:0:0/96.
type forgottenAddr struct {
	addr [16]byte
	bits int
}

// maxForgotten bounds the number of clients in a forgotten. When it is full, no
// further client is noted.
const maxForgotten = 1 << 16

var errTooManyForgotten = errors.New("too many forgotten clients: the counters of this one stay until they expire")

// forgottenTag begins the time in a key. No part of a key begins with it.
const forgottenTag = 0x7f

// note notes that a client was forgotten, and reports whether there was room.
func (f *forgotten) note(client ClientID, at time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.addrs == nil {
		f.addrs, f.bots = map[forgottenAddr]forgottenAt{}, map[string]forgottenAt{}
	}
	f.noted++
	last, full := forgottenAt{f.noted, at.UnixNano()}, len(f.addrs)+len(f.bots) >= maxForgotten
	if client.Bot != "" {
		before, known := f.bots[client.Bot]
		if !known && full {
			return false
		}
		if before.ns != last.ns {
			f.bots[client.Bot] = last
		}
	} else if p := client.Prefix; p.IsValid() {
		k := forgottenKey(p.Addr(), mappedBits(p))
		before, known := f.addrs[k]
		if !known && full {
			return false
		}
		if !known {
			f.lens[k.bits]++
		}
		if before.ns != last.ns {
			f.addrs[k] = last
		}
	}
	f.any.Store(true)
	return true
}

// mappedBits returns the length of a prefix whose address is written with 128
// bits.
func mappedBits(p netip.Prefix) int {
	if p.Addr().Is4() {
		return 96 + p.Bits()
	}
	return p.Bits()
}

func forgottenKey(addr netip.Addr, bits int) forgottenAddr {
	k := forgottenAddr{addr: addr.As16(), bits: bits}
	for i := range k.addr {
		k.addr[i] &= ^byte(0xff >> min(max(bits-8*i, 0), 8))
	}
	return k
}

// later returns the one of the two that was noted later.
func (a forgottenAt) later(b forgottenAt) forgottenAt {
	if b.noted > a.noted {
		return b
	}
	return a
}

// ofAddr returns when all addresses that share the first bits with addr were
// last forgotten; zero if they were not.
func (f *forgotten) ofAddr(addr netip.Addr, bits4, bits6 int) (at forgottenAt) {
	if !addr.IsValid() {
		return forgottenAt{}
	}
	least, most := 0, bits6
	if addr.Is4() || addr.Is4In6() {
		least, most = 96, 96+bits4
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	for bits := least; bits <= most; bits++ {
		if f.lens[bits] > 0 {
			at = at.later(f.addrs[forgottenKey(addr, bits)])
		}
	}
	return at
}

// ofBot returns when a bot was last forgotten.
func (f *forgotten) ofBot(name string) forgottenAt {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.bots[name]
}

// ofBanKey returns when the clients that a key stands for were last forgotten.
// The key of a bot does not hold its name, so it compares the keys of all bots.
func (f *forgotten) ofBanKey(key *BanKey, bits4, bits6 int) int64 {
	switch key.Kind() {
	case ByBot:
		f.mu.RLock()
		defer f.mu.RUnlock()
		for name, at := range f.bots {
			if of, _ := NewBanKey(ByBot, ClientID{Bot: name}); of == *key {
				return at.ns
			}
		}
		return 0
	case ByNetwork:
		bits4, bits6 = key.networkBits()
	}
	return f.ofAddr(key.Addr(), bits4, bits6).ns
}

// appendTime appends the time, in Unix ns, at which the client of a key was
// forgotten. 0 means that it was not: the key stays as it is.
func appendTime(b []byte, at int64) []byte {
	if at == 0 {
		return b
	}
	return binary.BigEndian.AppendUint64(append(b, forgottenTag), uint64(at))
}

// Forget ends the bans of a client that began at time at or before, and
// forgets what limits and bans have counted for it: its next request is judged
// as that of a new client. A prefix stands for all clients within it.
//
// Forget keeps what a client shares with others: counters of its network
// (unless the prefix holds it all), of a user agent, cookie or header, and of
// everyone.
//
// From then on the time stored is part of the keys of the client's counters, so
// that older counters are not used. After a restart, pass the same time to
// [History.RestoreForgotten]. It is not compared with the times of requests, so
// it may be of another clock than at and now.
//
// The error is about the limiter, or says that there are too many forgotten
// clients.
func (g *Guard) Forget(ctx context.Context, client ClientID, at, stored, now time.Time) error {
	_, err := g.Lift(ctx, client, at, now)
	if !g.history.forgotten.note(client, stored) && err == nil {
		err = errTooManyForgotten
	}
	return err
}

// RestoreForgotten notes that [Guard.Forget] has forgotten a client before the
// process started, at the time that was stored. Call it before the first
// request, and for the oldest first.
func (h *History) RestoreForgotten(client ClientID, stored time.Time) {
	h.forgotten.note(client, stored)
}
