package redislimit

import (
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/dchest/siphash"
	"github.com/redis/rueidis"
)

//go:embed slots.lua
var slotsScript string

// A SlotsRequest asks for slots of an upstream that the members of a group have
// together. All numbers are of requests.
type SlotsRequest struct {
	Upstream string        // names it: the same at all members
	Capacity int           // of the upstream, for all members
	InUse    int           // that the upstream processes for this member
	Has      int           // that the member may let in now
	Wants    int           // that it should let in
	For      time.Duration // how long the lease lasts, 1 ms to 1 minute
	Report   []byte        // for the other members, at most 16 KiB
}

// A SlotsLease is the answer.
type SlotsLease struct {
	ID     string // of this member
	Slots  int    // that this member has from now on: at least 1, at most what it wants
	Since  int64  // when it joined, in ms of the store's clock
	Others []SlotsMember
}

// A SlotsMember is another member with a lease of the same upstream.
type SlotsMember struct {
	ID     string
	Since  int64 // when it joined, in ms of the store's clock
	Report []byte
}

const reportMost = 16 << 10

var errSlots = errors.New("the store gave an unknown answer about the slots of an upstream")

// LeaseSlots stores a report and leases slots, in one round trip. All members together
// have at most the capacity, or 1 each if that is more. A member has what it was given or
// what its requests use, whichever is more, until its lease ends. If no lease is in
// force, the store may have lost them: then nobody gets more than it has, for the time
// of one lease.
//
// The caller must not let more requests in once the lease may have ended: For after it
// called LeaseSlots.
func (l *Limiter) LeaseSlots(ctx context.Context, r *SlotsRequest) (*SlotsLease, error) {
	if len(r.Report) > reportMost || r.For < time.Millisecond || r.For > time.Minute {
		return nil, errors.New("a report is at most 16 KiB, and a lease lasts 1ms to 1m")
	}
	reply, err := l.slots(ctx, r.Upstream, r.Capacity, r.InUse, r.Has, r.Wants, int(r.For.Milliseconds()),
		rueidis.BinaryString(r.Report))
	if err != nil {
		return nil, err
	}
	if len(reply) < 2 || (len(reply)-2)%3 != 0 {
		return nil, errSlots
	}
	lease := &SlotsLease{ID: l.core.id()}
	slots, err := reply[0].AsInt64()
	since, err2 := reply[1].AsInt64()
	if err := errors.Join(err, err2); err != nil {
		return nil, errSlots
	}
	lease.Slots, lease.Since = int(slots), since
	for i := 2; i < len(reply); i += 3 {
		id, err := reply[i].ToString()
		since, err2 := reply[i+1].AsInt64()
		report, err3 := reply[i+2].AsBytes()
		if errors.Join(err, err2, err3) != nil || len(report) > reportMost {
			continue
		}
		lease.Others = append(lease.Others, SlotsMember{ID: id, Since: since, Report: report})
	}
	return lease, nil
}

// ReleaseSlots ends the lease of this member.
func (l *Limiter) ReleaseSlots(ctx context.Context, upstream string) error {
	_, err := l.slots(ctx, upstream, 0, 0, 0, 0, 0, "")
	return err
}

// slots runs the script.
func (l *Limiter) slots(ctx context.Context, upstream string, capacity, inside, has, wants, lease int,
	report string) ([]rueidis.RedisMessage, error) {
	c := l.core
	client, err := c.store.Client()
	if err != nil {
		return nil, err
	}
	return run(ctx, client, slotsScript, []string{c.prefix + metaTag + "slots:" + upstream}, c.id(),
		strconv.Itoa(capacity), strconv.Itoa(inside), strconv.Itoa(has), strconv.Itoa(wants), strconv.Itoa(lease),
		report)
}

// A groupKey is the key of GroupHash for a secret.
type groupKey struct {
	of   *secret
	a, b uint64
}

// GroupHash is a hash that all members have in common and that nobody else can compute. It
// changes if this program has counted by itself and then joins a group.
func (l *Limiter) GroupHash(b []byte) uint64 { return l.core.groupKey.hash(l.core.secret.Load(), b) }

type groupHash struct{ key atomic.Pointer[groupKey] }

func (h *groupHash) hash(s *secret, b []byte) uint64 {
	k := h.key.Load()
	if k == nil || k.of != s {
		k = &groupKey{of: s}
		k.a, k.b = siphash.Hash128(binary.LittleEndian.Uint64(s[:]), binary.LittleEndian.Uint64(s[8:]),
			[]byte("slots of an upstream"))
		h.key.Store(k)
	}
	return siphash.Hash(k.a, k.b, b)
}

// MembersRecently returns how many members were alive at most in the last five minutes, with
// this one, as far as this member knows.
func (l *Limiter) MembersRecently() int { return int(l.core.most.Load()) }
