// Package storebans shares the bans of a group through the store in which it counts. A ban that
// one member makes is in force at the others some milliseconds later, and so is the end of a ban
// that an operator lifts.
//
// The store has the records of all bans in force and of lifts, each with the number of its latest
// change. A member reads what has a higher number than the last one that it knows, so nothing is
// missed, however late it reads. It waits for the bell, a stream with an entry for each of the last
// writes, and reads after at most 100 ms anyway.
//
// No record is only in the store: each member keeps the bans that it made or read. With each read it
// names the last entry of the bell that it knows, and that of its own last write. If the store does not
// have them, it was emptied, or a replica took over that lacks the last changes. The same goes for a
// member that starts. It then reads all records, and writes the bans and lifts that are not among
// them. So a ban that was lifted meanwhile does not return. After the store was only away, a member
// goes on where it was.
//
// Times travel as ages, which the store turns into times of its own clock. So clocks of members may
// be wrong.
package storebans

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/maphash"
	randv2 "math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"fairshare"
	"fairshare/internal/prose"
	"fairshare/redislimit"
	"fairshare/registry"
	"github.com/redis/rueidis"
)

const (
	most        = 250_000                // records in the store; the one that ends first is removed
	mostQueue   = 50_000                 // records that wait to be written
	mostLifts   = 10_000                 // that are remembered, the latest
	readMost    = 250                    // records of one read, some milliseconds of the store's time
	putMost     = 100                    // records of one write, likewise
	bellMost    = 10_000                 // writes that the bell remembers
	bellWait    = 100 * time.Millisecond // at most, until the next read
	callTime    = time.Second
	aheadMost   = time.Minute           // a lift further in the future is from before this machine's clock was set back
	sameBan     = 20 * time.Millisecond // ends of the same ban differ by less, as in put.lua
	tryAgain    = 250 * time.Millisecond
	reportAfter = 3 * time.Second // an error that lasts is reported
	reportAgain = time.Minute
)

//go:embed put.lua
var putScript string

//go:embed read.lua
var readScript string

// Rights are what the user of the store needs for it, in addition to those of package redislimit.
const Rights = "+hmget +hlen +zadd +zrem +zcard +zrange +zrangebyscore +xadd +xread +xrevrange"

// Options say what bans are shared.
type Options struct {
	Store *redislimit.Store
	Name  string           // of the group
	Now   func() time.Time // the guard's clock

	// InForce calls yield with each enforced ban in force, in the guard's time. yield does not block.
	InForce func(yield func(fairshare.BanRecord))
	// Restore puts bans of other members in force. Their times are the guard's.
	Restore func([]fairshare.BanRecord)
	// Lift ends bans, as an operator said at another member.
	Lift func(Lift)

	Lifts []Lift            // that are known at the start; those in the future are left to other members
	Log   func(line string) // lines for operators
}

// Bans shares bans. It is safe for concurrent use.
type Bans struct {
	o      Options
	keys   []string // of put.lua
	me     string
	put    *rueidis.Lua
	read   *rueidis.Lua
	wakeup chan struct{}

	synced  atomic.Bool  // all was exchanged; what is new is read, and what is queued is written
	working atomic.Bool  // the last calls have succeeded
	lost    atomic.Int64 // entries that were dropped, for an exchange to write
	stored  atomic.Int64
	bad     atomic.Int64

	mu       sync.Mutex
	queue    []entry
	first    int            // the number of the first one in queue
	waiting  map[string]int // by id: the number of the latest one in queue
	lifts    lifts
	written  string // the bell after the last write; "": it was found there since
	writeErr error  // of the last write

	// Of the goroutine of Run.
	seq        int64
	bell       string    // at the last read
	failing    time.Time // since when calls fail; zero: they do not
	reportedAt time.Time
	reported   string
	badAt      time.Time
}

// New returns Bans that share nothing until Run is called.
func New(o Options) *Bans {
	return newBans(o, prefix(o.Name)+"{bans}")
}

// prefix is that of package redislimit.
func prefix(name string) string { return "fs1:" + cmp.Or(name, "default") + ":" }

func newBans(o Options, prefix string) *Bans {
	var id [8]byte
	rand.Read(id[:])
	b := &Bans{o: o, me: hex.EncodeToString(id[:]), wakeup: make(chan struct{}, 1), waiting: map[string]int{},
		keys: []string{prefix + "records", prefix + "order", prefix + "ends", prefix + "bell"},
		put:  rueidis.NewLuaScript(putScript), read: rueidis.NewLuaScript(readScript)}
	for _, l := range o.Lifts {
		if l.At.Sub(o.Now()) < aheadMost {
			b.lifts.add(l)
		}
	}
	return b
}

// Try writes a ban of nobody under keys of its own, reads it, and removes the keys. The error says what
// the store refuses.
func Try(ctx context.Context, store *redislimit.Store, name string) error {
	client, err := store.Client()
	if err != nil {
		return err
	}
	b := newBans(Options{Store: store, Now: time.Now, Log: func(string) {}},
		prefix(name)+"{bans "+hex.EncodeToString(randomBytes())+"}")
	now := time.Now()
	e, _ := b.banEntry(&fairshare.BanRecord{Client: fairshare.PrefixID(netip.MustParsePrefix("192.0.2.1/32")),
		Kind: fairshare.ByAddr, Rule: "check --connect", Number: 1, Began: now, Until: now.Add(time.Minute)}, now)
	l := b.liftEntry(&Lift{Client: fairshare.PrefixID(netip.MustParsePrefix("192.0.2.1/32")), At: now, Stored: now})
	err = b.putAll(ctx, client, []entry{e, l, {kind: "drop", id: e.id, began: now, ends: now}})
	var p *page
	if err == nil {
		p, err = b.readPage(ctx, client, 0, b.written)
	}
	if err == nil && (!p.whole || len(p.records) != 1 || p.records[0].lift == nil) {
		err = errors.New("the store does not have what was written")
	}
	if err == nil {
		err = b.wait(ctx, client, p.bell)
	}
	return errors.Join(err, client.Do(ctx, client.B().Del().Key(b.keys...).Build()).Error())
}

// Stats are figures of shared bans.
type Stats struct {
	Stored     int64 // bans and lifts in the store, as last read
	Waiting    int   // records that are still to be written
	Unreadable int64 // records that made no sense, since the start
	Shared     bool  // this member has read all, and its own are written
}

// Stats returns the present figures.
func (b *Bans) Stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Stats{b.stored.Load(), len(b.queue), b.bad.Load(), b.synced.Load() && b.working.Load()}
}

// Made shares a ban that this member has made. It does not block.
func (b *Bans) Made(ban fairshare.BanRecord) {
	for _, e := range b.banEntries(&ban, b.o.Now()) {
		b.add(e)
	}
}

// banEntries returns the entry of an enforced ban in force, nothing for another ban. If the client's bans were lifted,
// an entry precedes it that drops one before the lift: otherwise that would count as the longer one of two.
func (b *Bans) banEntries(ban *fairshare.BanRecord, now time.Time) (all []entry) {
	e, ok := b.banEntry(ban, now)
	if !ok {
		return nil
	}
	key, _ := fairshare.NewBanKey(ban.Kind, ban.Client)
	b.mu.Lock()
	defer b.mu.Unlock()
	if at := b.lifts.latest(&key, ban.Client); !at.IsZero() {
		all = append(all, entry{"drop", e.id, at, at, ""})
	}
	return append(all, e)
}

// banEntry returns the entry of an enforced ban in force.
func (b *Bans) banEntry(ban *fairshare.BanRecord, now time.Time) (e entry, ok bool) {
	if ban.DryRun || !ban.Until.After(now) || len(ban.Rule) > mostRule {
		return e, false
	}
	key, ok := fairshare.NewBanKey(ban.Kind, ban.Client)
	if !ok {
		return e, false
	}
	text := body{By: b.me, Rule: ban.Rule, Kind: uint8(ban.Kind), Number: max(1, ban.Number)}
	text.setClient(ban.Client)
	return entry{"ban", banID(&key, ban.Rule), ban.Began, ban.Until, text.text()}, true
}

// Lifted shares that an operator has lifted bans, unless another member has said so. It calls ended for the
// bans in force here that this ends.
func (b *Bans) Lifted(l Lift, ended func() []fairshare.BanRecord) {
	l.id = hex.EncodeToString(randomBytes())
	b.mu.Lock()
	isNew := b.lifts.add(l)
	b.mu.Unlock()
	if !isNew {
		return
	}
	b.add(b.liftEntry(&l))
	for _, ban := range ended() {
		if key, ok := fairshare.NewBanKey(ban.Kind, ban.Client); ok {
			b.add(entry{"drop", banID(&key, ban.Rule), l.At, l.At, ""})
		}
	}
}

func (b *Bans) liftEntry(l *Lift) entry {
	text := body{By: b.me, Forget: l.Forget, Stored: l.Stored.UnixNano(), ID: l.id}
	text.setClient(l.Client)
	return entry{"lift", liftID(l), l.At, l.At.Add(registry.ChangesStay), text.text()}
}

// add queues an entry. It replaces a queued one with the same id and kind.
func (b *Bans) add(e entry) {
	b.mu.Lock()
	switch number, found := b.waiting[e.id]; {
	case found && b.queue[number-b.first].kind == e.kind:
		b.queue[number-b.first] = e
	case len(b.queue) < mostQueue:
		b.waiting[e.id] = b.first + len(b.queue)
		b.queue = append(b.queue, e)
	case e.kind != "drop": // what is not removed now is found when all is read again
		b.drop(1)
	}
	b.mu.Unlock()
	b.wake()
}

// drop notes that entries are dropped: an exchange writes what the store lacks.
func (b *Bans) drop(n int) {
	b.lost.Add(int64(n))
	b.synced.Store(false)
}

func (b *Bans) wake() {
	select {
	case b.wakeup <- struct{}{}:
	default:
	}
}

// take takes entries to write, at most putMost.
func (b *Bans) take() (all []entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(b.queue), putMost)
	for i := range b.queue[:n] {
		if id := b.queue[i].id; b.waiting[id] == b.first+i {
			delete(b.waiting, id)
		}
	}
	all, b.queue, b.first = b.queue[:n:n], b.queue[n:], b.first+n
	if len(b.queue) == 0 {
		b.queue = nil // release the memory
	}
	return all
}

// putBack queues entries again that could not be written.
func (b *Bans) putBack(all []entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue)+len(all) > mostQueue {
		b.drop(len(all))
		return
	}
	b.queue, b.first = append(all, b.queue...), b.first-len(all)
	for i := len(all) - 1; i >= 0; i-- {
		if _, found := b.waiting[all[i].id]; !found {
			b.waiting[all[i].id] = b.first + i
		}
	}
}

// Run shares bans until ctx ends. Call it once.
func (b *Bans) Run(ctx context.Context) {
	var writing sync.WaitGroup
	defer writing.Wait()
	writing.Go(func() { b.write(ctx) })
	for ctx.Err() == nil {
		err := b.step(ctx)
		if ctx.Err() != nil {
			return
		}
		b.mu.Lock()
		failed := cmp.Or(err, b.writeErr)
		b.mu.Unlock()
		b.working.Store(failed == nil)
		if b.report(failed); err != nil {
			pause(ctx, tryAgain+randv2.N(tryAgain))
		}
	}
}

// pause waits, at most until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// step exchanges all if that is needed, reads what is new, and waits for the bell.
func (b *Bans) step(ctx context.Context) error {
	client, err := b.o.Store.Client()
	if err != nil {
		return err
	}
	if !b.synced.Load() {
		if err := b.exchange(ctx, client); err != nil {
			return err
		}
	}
	b.mu.Lock()
	written := b.written
	b.mu.Unlock()
	p, err := b.readPage(ctx, client, b.seq, b.bell, written)
	if err != nil {
		return err
	}
	if !p.whole { // the store was emptied, or lost its last changes
		b.synced.Store(false)
		pause(ctx, randv2.N(2*tryAgain)) // not all members at once: the first one writes what the others have, too
		return nil
	}
	b.bell = p.bell
	b.mu.Lock()
	if b.written == written {
		b.written = "" // b.bell is later
	}
	b.mu.Unlock()
	b.apply(p, nil, nil)
	if len(p.records) == readMost {
		return nil
	}
	return b.wait(ctx, client, p.bell)
}

// wait waits until the bell has another entry, or for bellWait.
func (b *Bans) wait(ctx context.Context, client rueidis.Client, last string) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	err := client.Do(ctx, client.B().Xread().Count(1).Block(bellWait.Milliseconds()).Streams().Key(b.keys[3]).Id(last).
		Build()).Error()
	if rueidis.IsRedisNil(err) {
		return nil
	}
	return err
}

// A page is what read.lua returns.
type page struct {
	whole   bool // the store has all that led to the known entries of the bell
	bell    string
	last    int64 // the number of the last record, at least the one that was asked for
	records []record
}

// noBell is the id of a bell without entries.
const noBell = "0-0"

// readPage reads the records after a number. Those that make no sense are empty. bells are ids of the bell up to which
// all is known.
func (b *Bans) readPage(ctx context.Context, client rueidis.Client, after int64, bells ...string) (*page, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	args := []string{strconv.FormatInt(after, 10), strconv.Itoa(readMost)}
	for _, id := range bells {
		if id != "" && id != noBell {
			args = append(args, id)
		}
	}
	began := b.o.Now()
	reply, err := b.read.Exec(ctx, client, b.keys, args).ToArray()
	if err != nil {
		return nil, err
	}
	now := b.o.Now()
	return b.parsePage(reply, after, began.Add(now.Sub(began)/2))
}

var errReply = errors.New("the store gave an unknown answer about bans")

func (b *Bans) parsePage(reply []rueidis.RedisMessage, after int64, now time.Time) (*page, error) {
	if len(reply) < 4 || (len(reply)-4)%3 != 0 {
		return nil, errReply
	}
	p := &page{last: after}
	at, err1 := reply[0].AsInt64()
	whole, err2 := reply[1].AsInt64()
	bell, err3 := reply[2].ToString()
	stored, err4 := reply[3].AsInt64()
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, errReply
	}
	p.whole, p.bell = whole == 1, bell
	b.stored.Store(stored)
	for i := 4; i < len(reply); i += 3 {
		number, err1 := reply[i].AsInt64()
		id, err2 := reply[i+1].ToString()
		value, err3 := reply[i+2].ToString()
		if err := errors.Join(err1, err2, err3); err != nil {
			return nil, errReply
		}
		p.last = max(p.last, number)
		r, err := parseRecord(id, value, at, now)
		if err != nil {
			b.unreadable(err)
			r = record{id: id}
		}
		p.records = append(p.records, r)
	}
	return p, nil
}

// seen are records: those that were read in an exchange, or bans that this member has.
type seen struct {
	seed maphash.Seed
	ends map[uint64]int64 // by the hash of the id: the end of a ban or the time of a lift, in ns
}

func newSeen() *seen { return &seen{maphash.MakeSeed(), map[uint64]int64{}} }

func (s *seen) add(id string, at time.Time) { s.ends[maphash.String(s.seed, id)] = at.UnixNano() }

// lacks reports whether none was read, or an earlier one.
func (s *seen) lacks(id string, at time.Time) bool {
	was, found := s.ends[maphash.String(s.seed, id)]
	return !found || at.UnixNano() > was+int64(sameBan)
}

// apply puts the records of a page in force. In an exchange, they are noted in all, and bans in known are left
// as they are; otherwise both are nil.
func (b *Bans) apply(p *page, all, known *seen) {
	var bans []fairshare.BanRecord
	restore := func() {
		if len(bans) > 0 {
			b.o.Restore(bans)
			bans = nil
		}
	}
	for i := range p.records {
		r := &p.records[i]
		own := r.by == b.me && all == nil
		switch {
		case r.ban != nil:
			b.mu.Lock()
			at := b.lifts.latest(&r.key, r.ban.Client)
			b.mu.Unlock()
			if !r.ban.Began.After(at) { // it was written after the lift, or it is still to be dropped
				b.add(entry{"drop", r.id, at, at, ""})
				continue
			}
			if all != nil {
				all.add(r.id, r.ban.Until)
			}
			if !own && r.ban.Until.After(b.o.Now()) && (known == nil || known.lacks(r.id, r.ban.Until)) {
				bans = append(bans, *r.ban)
			}
		case r.lift != nil:
			if all != nil {
				all.add(r.id, r.lift.At)
			}
			b.mu.Lock()
			isNew := !own && b.lifts.add(*r.lift)
			b.mu.Unlock()
			if isNew {
				restore()
				b.o.Lift(*r.lift)
			}
		}
	}
	restore()
	b.seq = max(b.seq, p.last)
}

// exchange reads all records, and then writes the bans and lifts of this member that are not among them.
func (b *Bans) exchange(ctx context.Context, client rueidis.Client) error {
	all, lost := newSeen(), b.lost.Load()
	if err := b.putAll(ctx, client, nil); err != nil { // a store that refuses writes need not be read
		return err
	}
	b.mu.Lock()
	mine := slices.Clone(b.lifts.all)
	b.queue, b.first = nil, b.first+len(b.queue) // all of it is among what follows
	clear(b.waiting)
	b.mu.Unlock()
	known := newSeen()
	b.o.InForce(func(ban fairshare.BanRecord) {
		if key, ok := fairshare.NewBanKey(ban.Kind, ban.Client); ok {
			known.add(banID(&key, ban.Rule), ban.Until)
		}
	})
	for b.seq, b.bell = 0, ""; ; {
		p, err := b.readPage(ctx, client, b.seq, b.bell)
		if err != nil {
			return err
		}
		if !p.whole {
			return errors.New("the store lost bans while they were read")
		}
		b.bell = p.bell
		b.apply(p, all, known)
		if len(p.records) < readMost {
			break
		}
	}
	now := b.o.Now()
	var lacking []entry
	for i := range mine {
		if l := &mine[i]; all.lacks(liftID(l), l.At) && now.Sub(l.At) < registry.ChangesStay {
			lacking = append(lacking, b.liftEntry(l))
		}
	}
	var bans []fairshare.BanRecord
	b.o.InForce(func(ban fairshare.BanRecord) {
		key, ok := fairshare.NewBanKey(ban.Kind, ban.Client)
		if ok && len(bans) < most && all.lacks(banID(&key, ban.Rule), ban.Until) {
			bans = append(bans, ban)
		}
	})
	for part := range slices.Chunk(lacking, putMost) {
		if err := b.putAll(ctx, client, part); err != nil {
			return err
		}
	}
	for part := range slices.Chunk(bans, putMost) {
		lacking = lacking[:0]
		for i := range part {
			lacking = append(lacking, b.banEntries(&part[i], now)...)
		}
		if err := b.putAll(ctx, client, lacking); err != nil {
			return err
		}
	}
	if b.synced.Store(true); b.lost.Load() != lost {
		b.synced.Store(false)
	}
	b.wake()
	return nil
}

// putAll writes entries. Without one, it rings the bell.
func (b *Bans) putAll(ctx context.Context, client rueidis.Client, all []entry) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	args := make([]string, 2, 2+5*len(all))
	args[0], args[1] = strconv.Itoa(most), strconv.Itoa(bellMost)
	now := b.o.Now()
	for i := range all {
		args = all[i].args(args, now)
	}
	bell, err := b.put.Exec(ctx, client, b.keys, args).ToString()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.writeErr = err; err == nil {
		b.written = bell
	}
	return err
}

// write writes what is queued, once all was exchanged, until ctx ends.
func (b *Bans) write(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			b.writeLast()
			return
		case <-b.wakeup:
		}
		for b.synced.Load() && ctx.Err() == nil {
			all := b.take()
			if len(all) == 0 {
				break
			}
			client, err := b.o.Store.Client()
			if err == nil {
				err = b.putAll(ctx, client, all)
			}
			if err != nil {
				b.putBack(all)
				pause(ctx, tryAgain+randv2.N(tryAgain))
			}
		}
	}
}

// writeLast writes what is queued when the program ends.
func (b *Bans) writeLast() {
	ctx, cancel := context.WithTimeout(context.Background(), tryAgain)
	defer cancel()
	client, err := b.o.Store.Client()
	for all := b.take(); err == nil && b.synced.Load() && len(all) > 0; all = b.take() {
		err = b.putAll(ctx, client, all)
	}
}

// report reports an error that lasts and does not mean that the store is away, which the limiter reports.
func (b *Bans) report(err error) {
	now := time.Now()
	if err == nil {
		if b.reported != "" {
			b.o.Log(fmt.Sprintf("group: bans are shared again after %s", prose.ShortDuration(now.Sub(b.failing))))
		}
		b.failing, b.reported = time.Time{}, ""
		return
	}
	if b.failing.IsZero() {
		b.failing = now
	}
	refused, ok := rueidis.IsRedisErr(err)
	if !ok || now.Sub(b.failing) < reportAfter || refused.Error() == b.reported && now.Sub(b.reportedAt) < reportAgain {
		return
	}
	b.reportedAt, b.reported = now, refused.Error()
	b.o.Log(fmt.Sprintf("warning: group: bans are not shared: store %s: %s: each member bans for itself",
		b.o.Store.Address(), prose.Printable(refused.Error())))
}

// unreadable counts a record that makes no sense, and reports it at most once a minute.
func (b *Bans) unreadable(err error) {
	b.bad.Add(1)
	if now := time.Now(); now.Sub(b.badAt) > reportAgain {
		b.badAt = now
		b.o.Log(fmt.Sprintf("warning: group: %s: it is ignored: does another program write there?", err))
	}
}

func randomBytes() []byte {
	var id [8]byte
	rand.Read(id[:])
	return id[:]
}
