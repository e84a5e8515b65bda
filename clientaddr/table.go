package clientaddr

import (
	"maps"
	"net/netip"
	"sync"
	"sync/atomic"
)

// A table maps addresses to entries. A lookup takes no lock.
type table[T any] struct {
	n    atomic.Int64 // entries
	m    atomic.Pointer[map[netip.Addr]*T]
	lock sync.Mutex // held by writers, which replace the map
}

// get returns the entry of an address, nil if there is none.
func (t *table[T]) get(addr netip.Addr) *T {
	if m := t.m.Load(); m != nil {
		return (*m)[addr]
	}
	return nil
}

// add returns the entry of an address and creates it if necessary. It returns nil
// if there is none and the table has most entries already.
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

// all returns the present entries. The caller must not change the map.
func (t *table[T]) all() map[netip.Addr]*T {
	if m := t.m.Load(); m != nil {
		return *m
	}
	return nil
}

// drop removes entries.
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

// change replaces the map by an edited copy. The lock is held.
func (t *table[T]) change(edit func(map[netip.Addr]*T)) {
	m := map[netip.Addr]*T{}
	maps.Copy(m, t.all())
	edit(m)
	t.m.Store(&m)
	t.n.Store(int64(len(m)))
}

// A distinct counts different hashes up to hidingAgents. A zero element is free;
// the used ones come first.
type distinct [hidingAgents]atomic.Uint64

// add records a hash and returns how many different ones there are.
func (d *distinct) add(hash uint64) int {
	if hash == 0 {
		hash = 1
	}
	for i := range d {
		present := d[i].Load()
		if present == 0 {
			if d[i].CompareAndSwap(0, hash) {
				return i + 1
			}
			present = d[i].Load()
		}
		if present == hash {
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

// clear removes all hashes.
func (d *distinct) clear() {
	for i := range d {
		d[i].Store(0)
	}
}
