package fairshare

import (
	"fmt"
	"hash/maphash"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"fairshare/internal/offheap"
)

// A Unit is what counts as one request of a limit.
type Unit uint8

const (
	// EachRequest counts every request. The zero Unit.
	EachRequest Unit = iota
	// Pages counts a page together with its parts as one. A request that counts covers
	// up to [PageParts] later requests of the same key within [PageTime]. Parts are GET
	// and HEAD of assets and of data for scripts; within the first second all GET and
	// HEAD that do not open another page. See [Request.Kind]. The client makes up what a
	// request is for, so a limit of N allows up to N·(1+PageParts) requests.
	Pages
)

// String returns the unit's name in a policy file.
func (u Unit) String() string {
	switch u {
	case EachRequest:
		return "requests"
	case Pages:
		return "pages"
	}
	return fmt.Sprintf("count %d", uint8(u))
}

// Bounds of a page.
const (
	PageParts = 100              // requests that a page covers, at most
	PageTime  = 10 * time.Second // for so long it covers requests
	burstTime = time.Second      // for so long it covers requests of unknown kind
)

// pageTable stores for each limit and key with Count Pages which page was the last. It has
// a fixed size of 4 MiB, allocated at first use, and no pointers. It consists of
// sets of eight cells, one cache line each. A cell is
//
//	32 bits  of the hash of limit and key; other bits choose the set
//	25 bits  when the page began, in ticks (24 days, after which they begin again)
//	 7 bits  requests that it has covered
//
// A new page takes the place of the one in its set that began first. If a page is
// forgotten, the next request counts.
type pageTable struct {
	once  sync.Once
	seed  maphash.Seed
	cells []atomic.Uint64
}

const (
	pageSets    = 1 << 16
	pageSetSize = 8
	pageTick    = time.Second / 16

	coveredBits = 7
	coveredMask = 1<<coveredBits - 1
	beganBits   = 25
	beganMask   = 1<<beganBits - 1
)

// pageTicks returns a time in ticks.
func pageTicks(at time.Time) uint64 { return uint64(at.UnixNano()/int64(pageTick)) & beganMask }

// set returns the cells of a limit and key, and what the cell begins with.
func (t *pageTable) set(limit int, key []byte) (set []atomic.Uint64, name uint64) {
	t.once.Do(func() {
		t.seed = maphash.MakeSeed()
		t.cells = offheap.Slice[atomic.Uint64](t, pageSets*pageSetSize)
	})
	hash := fold(maphash.Bytes(t.seed, key)^uint64(limit), 0x9E3779B97F4A7C15)
	return t.cells[hash%pageSets*pageSetSize:][:pageSetSize:pageSetSize], max(hash>>32, 1) << (beganBits + coveredBits)
}

// cover counts a request as a part of the last page of a key, if that covers it.
// It returns the cell and what is in it now; nil if the request counts by itself.
func (t *pageTable) cover(limit int, key []byte, at time.Time, clear bool) (cell *atomic.Uint64, now uint64) {
	defer runtime.KeepAlive(t)
	set, name := t.set(limit, key)
	for i := range set {
		w := set[i].Load()
		if w&^(beganMask<<coveredBits|coveredMask) != name {
			continue
		}
		within := uint64(PageTime / pageTick)
		if !clear {
			within = uint64(burstTime / pageTick)
		}
		for w&coveredMask < PageParts && (pageTicks(at)-w>>coveredBits)&beganMask < within {
			if set[i].CompareAndSwap(w, w+1) {
				return &set[i], w + 1
			}
			if w = set[i].Load(); w&^(beganMask<<coveredBits|coveredMask) != name {
				break
			}
		}
		return nil, 0
	}
	return nil, 0
}

// begin notes that a request has counted and begins a page.
func (t *pageTable) begin(limit int, key []byte, at time.Time) {
	set, name := t.set(limit, key)
	began := pageTicks(at)
	victim, old, longest := 0, uint64(0), uint64(0)
	for i := range set {
		w := set[i].Load()
		if w&^(beganMask<<coveredBits|coveredMask) == name {
			victim, old = i, w
			if w>>coveredBits&beganMask == began { // what it has covered in this tick still counts
				return
			}
			break
		}
		age := (began - w>>coveredBits) & beganMask
		if w == 0 {
			age = beganMask
		}
		if age >= longest {
			victim, old, longest = i, w, age
		}
	}
	set[victim].CompareAndSwap(old, name|began<<coveredBits) // if it fails, the next request counts
	runtime.KeepAlive(t)
}

// end forgets the page that a request began, and reports whether nothing was
// covered by it: only then may the request be refunded.
func (t *pageTable) end(limit int, key []byte, at time.Time) bool {
	defer runtime.KeepAlive(t)
	set, name := t.set(limit, key)
	for i := range set {
		if w := name | pageTicks(at)<<coveredBits; set[i].Load() == w {
			return set[i].CompareAndSwap(w, 0)
		}
	}
	return false
}

// A coveredRequest is a part of a page that was counted in the page's cell.
type coveredRequest struct {
	cell *atomic.Uint64
	now  uint64 // in the cell
	dry  bool
}

// isCovered reports whether a page covers the request, so that a limit does not count
// it, and notes that.
func (d *decision) isCovered(limit int, key []byte, dry bool) bool {
	lim := &d.guard.limits[limit]
	if lim.Count != Pages {
		return false
	}
	d.counts = true
	part, clear := d.partOfPage()
	if !part {
		return false
	}
	cell, now := d.guard.pages.cover(limit, key, d.now, clear)
	if cell != nil {
		d.covered = append(d.covered, coveredRequest{cell, now, dry})
	}
	return cell != nil
}

// partOfPage reports whether the request may be a part of a page, and whether it
// clearly is.
func (d *decision) partOfPage() (part, clear bool) {
	if !d.kindKnown {
		d.kind, d.kindKnown = d.req.Kind(), true
	}
	return d.kind == KindAsset || d.kind == KindFetch || d.kind == KindUnknown, d.kind != KindUnknown
}

// notePages notes the pages that begin with a request that has passed, and takes
// back that it was covered if it has not. passed is about the enforced limits,
// tried about those in dry run.
func (d *decision) notePages(passed, tried bool) {
	if !d.counts {
		return
	}
	for _, c := range d.covered {
		for now := c.cell.Load(); !(passed && (tried || !c.dry)); now = c.cell.Load() {
			if now>>coveredBits != c.now>>coveredBits || now&coveredMask == 0 || c.cell.CompareAndSwap(now, now-1) {
				break
			}
		}
	}
	runtime.KeepAlive(d.guard) // and with it the cells
	for i := range d.takes {
		t := &d.takes[i]
		if d.guard.limits[t.Limit].Count == Pages && passed && (tried || !t.DryRun) {
			d.guard.pages.begin(t.Limit, t.Key, d.now)
		}
	}
	d.counts = false
}

// mayRefund reports whether the charge of a take may be given back. The charge of a page that
// covered other requests may not.
func (d *decision) mayRefund(t *Take) bool {
	return d.guard.limits[t.Limit].Count != Pages || d.guard.pages.end(t.Limit, t.Key, d.now)
}
