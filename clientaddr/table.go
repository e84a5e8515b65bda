package clientaddr

import (
	"maps"
	"net/netip"
	"sync"
	"sync/atomic"
)

// A table holds what is known of some addresses. Looking one up takes no lock.
type table[T any] struct {
	n    atomic.Int64 // entries
	m    atomic.Pointer[map[netip.Addr]*T]
	lock sync.Mutex // while a copy is made
}

// get returns the entry of an address, nil when there is none.
func (t *table[T]) get(addr netip.Addr) *T {
	if m := t.m.Load(); m != nil {
		return (*m)[addr]
	}
	return nil
}

// add returns the entry of an address, made if need be; nil when there is none
// and most others are there.
func (t *table[T]) add(addr netip.Addr, most int) *T {
	if t.n.Load() >= int64(most) {
		return t.get(addr)
	}
	t.lock.Lock()
	defer t.lock.Unlock()
	if e := t.get(addr); e != nil {
		return e
	}
	if t.n.Load() >= int64(most) {
		return nil
	}
	e := new(T)
	t.change(func(m map[netip.Addr]*T) { m[addr] = e })
	return e
}

// all returns the entries as they are now; the map is not to be changed.
func (t *table[T]) all() map[netip.Addr]*T {
	if m := t.m.Load(); m != nil {
		return *m
	}
	return nil
}

// drop takes entries out.
func (t *table[T]) drop(addrs []netip.Addr) {
	if len(addrs) == 0 {
		return
	}
	t.lock.Lock()
	defer t.lock.Unlock()
	t.change(func(m map[netip.Addr]*T) {
		for _, addr := range addrs {
			delete(m, addr)
		}
	})
}

// change puts a changed copy in place. The lock is held.
func (t *table[T]) change(edit func(map[netip.Addr]*T)) {
	m := map[netip.Addr]*T{}
	maps.Copy(m, t.all())
	edit(m)
	t.m.Store(&m)
	t.n.Store(int64(len(m)))
}

// A distinct counts different hashes up to hidingAgents. A zero place is free;
// those in use come first.
type distinct [hidingAgents]atomic.Uint64

// add notes a hash and returns how many different ones there are.
func (d *distinct) add(hash uint64) int {
	if hash == 0 {
		hash = 1
	}
	for i := range d {
		there := d[i].Load()
		if there == 0 {
			if d[i].CompareAndSwap(0, hash) {
				return i + 1
			}
			there = d[i].Load()
		}
		if there == hash {
			return d.len()
		}
	}
	return len(d)
}

func (d *distinct) len() int {
	for i := range d {
		if d[i].Load() == 0 {
			return i
		}
	}
	return len(d)
}
