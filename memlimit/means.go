package memlimit

import (
	"math"
	"math/bits"
	"sync"

	"fairshare"
)

// A mean is the recent mean cost of one key's or page's requests under one limit.
type mean struct {
	hash    uint64 // of the key or page, salted
	cost    float64
	at      int64  // ns since the Unix epoch; when a request ended last
	id      uint16 // of the limit; 0: nothing is remembered here
	settled uint8  // requests since the key began or was idle, at most 255
}

// means is a table of means whose size is fixed. It is empty or as long as
// made makes it.
type means []mean

const (
	meanWays = 8       // places that a mean may be at
	maxMeans = 1 << 10 // of a shard of keys: 2 MiB in all
)

// meansFor returns how many means of keys a shard remembers if the table has so
// many bytes. All means of keys take 1/32 of the size of the table.
func meansFor(memory int64) int {
	return int(min(max(memory>>16, meanWays), maxMeans)) &^ (meanWays - 1)
}

// made returns m, made for so many means if it is not.
func (m means) made(size int) means {
	if m == nil {
		return make(means, size)
	}
	return m
}

// candidates returns where the mean of a key or page may be. The product keeps keys
// that meet under one limit, whose salt is a XOR, from meeting under the others.
func (m means) candidates(hash uint64) means {
	n, _ := bits.Mul64(hash*0x9e3779b97f4a7c15, uint64(len(m)/meanWays))
	return m[n*meanWays:][:meanWays]
}

// find returns what is remembered, or nil.
func (m means) find(hash uint64) *mean {
	if m == nil {
		return nil
	}
	places := m.candidates(hash)
	for i := range places {
		if p := &places[i]; p.hash == hash && p.id != 0 {
			return p
		}
	}
	return nil
}

// learn moves a mean an eighth of the way towards cost. For a new one it
// forgets the one that matters least, unless the new one matters less: many
// cheap requests from everywhere must not have expensive ones forgotten. The shard of m is
// locked.
func (m means) learn(l *limit, t *table, hash uint64, cost float64, at int64) {
	if p := m.find(hash); p != nil {
		if p.idle(l, at) {
			p.settled = 0
		}
		p.cost += (cost - p.cost) / 8
		p.at, p.id = max(p.at, at), l.id
		p.settled += min(1, math.MaxUint8-p.settled)
		return
	}
	// A policy may be replaced at any time. All limits of which m has means are known only now.
	limits := *t.limits.Load()
	fresh := mean{hash, cost, at, l.id, 1}
	least, victim := fresh.weight(limits, at), -1
	places := m.candidates(hash)
	for i := range places {
		if w := places[i].weight(limits, at); w <= least {
			least, victim = w, i
		}
	}
	if victim >= 0 {
		places[victim] = fresh
	}
}

// idle reports whether no request ended for a window.
func (m *mean) idle(l *limit, now int64) bool { return now-m.at > int64(l.w) }

// weight tells how much a mean matters: what part a request takes of what its
// limit allows at once, fading with the time since there was one.
func (m *mean) weight(limits []*limit, now int64) float64 {
	if m.id == 0 {
		return -1
	}
	l := limits[m.id]
	age := max(0, float64(now)-float64(m.at))
	return m.cost / float64(l.allowed) / (1 + age/float64(l.w))
}

// pages remembers the recent mean costs of requests for pages and folders, of all
// clients together. A shard is locked after all others.
type pages struct {
	shards [16]pageShard
	means  int // that each shard remembers
}

type pageShard struct {
	mu    sync.Mutex
	means means    // nil until there is one
	_     [32]byte // a cache line of its own
}

// pagesFor returns how many means of pages a shard remembers if the table has so
// many bytes. All means of pages take 1/64 of the size of the table.
func pagesFor(memory int64) int {
	return int(min(max(memory>>15, 8*meanWays), 2*maxMeans)) &^ (meanWays - 1)
}

// hash returns the salted hash of a page or folder under a limit.
func (p *pages) hash(l *limit, of uint64) uint64 { return (of ^ l.salt) * 0x9E3779B97F4A7C15 }

// find returns the shard of a page or folder, locked, and what it remembers.
func (p *pages) find(hash uint64) (*pageShard, *mean) {
	sh := &p.shards[hash>>60]
	sh.mu.Lock()
	return sh, sh.means.find(hash)
}

// cost returns the recent mean cost of requests for the page, or of requests for
// its folder if the page is not remembered, or 0 if neither is.
func (p *pages) cost(l *limit, page fairshare.Page) (cost float64) {
	for _, of := range [...]uint64{page.Path, page.Folder} {
		if of == 0 {
			continue
		}
		sh, m := p.find(p.hash(l, of))
		if m != nil {
			cost = m.cost
		}
		sh.mu.Unlock()
		if m != nil {
			return cost
		}
	}
	return 0
}

// learn notes the cost of a request for the page. A page that costs at most the
// floor is remembered only if its folder is, since cost would otherwise return
// the mean of the folder.
func (p *pages) learn(l *limit, t *table, page fairshare.Page, cost float64, at int64) {
	remember := cost > float64(l.allowed)/float64(l.mostAtOnce)
	for _, of := range [...]uint64{page.Folder, page.Path} {
		if of == 0 {
			continue
		}
		hash := p.hash(l, of)
		sh, m := p.find(hash)
		if m != nil || remember {
			sh.means = sh.means.made(p.means)
			sh.means.learn(l, t, hash, cost, at)
			remember = true
		}
		sh.mu.Unlock()
	}
}

// forget forgets all means.
func (p *pages) forget() {
	for i := range p.shards {
		sh := &p.shards[i]
		sh.mu.Lock()
		sh.means = nil
		sh.mu.Unlock()
	}
}

// expected returns what is held for a request that passes, and the part of it
// that the means account for. The shard is locked.
func (l *Limiter) expected(lim *limit, sh *shard, hash uint64, page fairshare.Page, now int64) (held, expected int64) {
	if !lim.costly {
		return 1, 1
	}
	var cost float64
	atOnce, allowed := lim.few, float64(lim.allowed)
	if m := sh.means.find(hash); m != nil {
		cost = m.cost
		if !m.idle(lim, now) {
			atOnce = min(lim.few+uint64(m.settled), lim.mostAtOnce)
		}
	}
	cost = max(cost, min(l.pages.cost(lim, page), allowed/4))
	expected = int64(math.Ceil(min(cost, lim.mostExpected)))
	return max(expected, int64((lim.allowed+atOnce-1)/atOnce)), expected
}
