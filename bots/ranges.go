package bots

import (
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"fairshare/internal/prefixes"

	"github.com/gaissmai/bart"
)

//go:generate go run ./ranges/gen -from $BOT_RANGES -o ranges

//go:embed ranges/snapshot.gz
var rangeSnapshot []byte

// Ranges are the sets of addresses that operators publish for their bots. They
// start as a snapshot that is part of the program; Load and Run replace sets by
// newer versions. A set without any version is unknown. Ranges are safe for
// concurrent use.
type Ranges struct {
	index atomic.Pointer[rangeIndex]

	mu   sync.Mutex // held while a set is replaced
	sets []rangeSet // in the order of rangeDefs

	keeper atomic.Pointer[prefixes.Keeper] // of the last Load or Run
}

// A rangeSet is one set and its sources.
type rangeSet struct {
	*rangeDef
	snapshot []netip.Prefix
	date     time.Time // of the snapshot; zero if the snapshot lacks this set
	source   string
	newer    []prefixes.Update // by URL; without a time the URL has not answered
}

// prefixes returns the addresses in use: the answers of all URLs, and the
// snapshot until all have answered.
func (s *rangeSet) prefixes() []netip.Prefix {
	var all []netip.Prefix
	missing := len(s.newer) == 0
	for _, u := range s.newer {
		all = append(all, u.Prefixes...)
		missing = missing || u.At.IsZero()
	}
	if missing {
		all = append(all, s.snapshot...)
	}
	return all
}

// at returns the time of the oldest part in use.
func (s *rangeSet) at() time.Time {
	var oldest time.Time
	for _, u := range s.newer {
		if u.At.IsZero() {
			return s.date
		}
		if oldest.IsZero() || u.At.Before(oldest) {
			oldest = u.At
		}
	}
	if oldest.IsZero() {
		return s.date
	}
	return oldest
}

// A rangeMask has one bit for each set.
type rangeMask uint64

// A rangeIndex finds all sets that an address is in by one lookup. It is
// immutable.
type rangeIndex struct {
	table bart.Fast[rangeMask] // a prefix has the bits of the wider prefixes that contain it, too
	known rangeMask            // sets that are not empty
}

func (x *rangeIndex) lookup(addr netip.Addr) rangeMask {
	in, _ := x.table.Lookup(addr)
	return in
}

// NewRanges returns the snapshot that is part of the program.
func NewRanges() *Ranges {
	base := builtInRanges()
	r := &Ranges{sets: slices.Clone(base.sets)}
	for i := range r.sets {
		r.sets[i].newer = make([]prefixes.Update, len(r.sets[i].urls))
	}
	r.index.Store(base.index.Load())
	return r
}

// Prepare reads the built-in table of bots and the snapshot of their ranges, which takes some
// milliseconds, in the background: the first use of them waits for it.
func Prepare() {
	go BuiltIn()
	go builtInRanges()
}

// builtInRanges returns what all Ranges begin with. It is not changed.
var builtInRanges = sync.OnceValue(func() *Ranges {
	r := &Ranges{sets: make([]rangeSet, len(rangeDefs))}
	for i := range rangeDefs {
		r.sets[i].rangeDef = &rangeDefs[i]
	}
	if err := r.readSnapshot(rangeSnapshot); err != nil {
		panic(fmt.Sprintf("bots: the snapshot of ranges: %v", err))
	}
	r.rebuild()
	return r
})

// readSnapshot reads sections of a line "[set] date source" and a list.
func (r *Ranges) readSnapshot(packed []byte) error {
	unpacked, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return err
	}
	text, err := io.ReadAll(unpacked)
	if err != nil {
		return err
	}
	for section := range strings.SplitSeq(strings.TrimPrefix(string(text), "["), "\n[") {
		head, list, _ := strings.Cut(section, "\n")
		name, rest, _ := strings.Cut(head, "] ")
		date, source, _ := strings.Cut(rest, " ")
		i := setIndex(name)
		if i < 0 {
			return fmt.Errorf("unknown set %s", name)
		}
		s := &r.sets[i]
		s.source = source
		if s.date, err = time.Parse(time.DateOnly, date); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
		if s.snapshot, err = prefixes.Parse([]byte(list)); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	return nil
}

// setIndex returns the index of a set by name; -1 if there is none.
func setIndex(name string) int {
	for i := range rangeDefs {
		if rangeDefs[i].name == name {
			return i
		}
	}
	return -1
}

// rebuild replaces the index. r.mu is held, or r is not shared yet.
func (r *Ranges) rebuild() {
	index := &rangeIndex{}
	for i := range r.sets {
		bit := rangeMask(1) << i
		for _, p := range r.sets[i].prefixes() {
			index.known |= bit
			index.table.Modify(p, func(in rangeMask, _ bool) (rangeMask, bool) { return in | bit, false })
		}
	}
	// A lookup returns only the longest prefix. So each prefix gets the bits of the
	// wider ones that contain it; in sorted order these come first.
	type cover struct {
		prefix netip.Prefix
		in     rangeMask
	}
	var around []cover
	for p, in := range index.table.Clone().AllSorted() {
		for len(around) > 0 && !around[len(around)-1].prefix.Overlaps(p) {
			around = around[:len(around)-1]
		}
		if len(around) > 0 {
			if wider := around[len(around)-1].in; wider&^in != 0 {
				in |= wider
				index.table.Insert(p, in)
			}
		}
		around = append(around, cover{p, in})
	}
	r.index.Store(index)
}

// Contains reports whether an address is in a set. known is false if the set has
// no prefixes, or if there is no set of that name.
func (r *Ranges) Contains(set string, addr netip.Addr) (in, known bool) {
	i := setIndex(set)
	if i < 0 {
		return false, false
	}
	index, bit := r.index.Load(), rangeMask(1)<<i
	return index.lookup(plain(addr))&bit != 0, index.known&bit != 0
}

// plain returns an address in the form of the tables: unmapped, without a zone.
func plain(addr netip.Addr) netip.Addr { return addr.Unmap().WithZone("") }

// A RangeSet describes one set.
type RangeSet struct {
	Name      string
	Prefixes  int       // their number; 0 if the set is unknown
	At        time.Time // the day of the snapshot, or when its URLs were last requested
	Refreshed bool      // from its operator's URLs, not from the snapshot
	Source    string    // of the snapshot; "" if the snapshot lacks the set
	URLs      []string
	Problem   string // of the last refresh; "" if there was none
}

// Sets describes all sets, those of crawlers first.
func (r *Ranges) Sets() []RangeSet {
	asked, problems := map[string]time.Time{}, map[string]string{}
	if keeper := r.keeper.Load(); keeper != nil {
		for _, status := range keeper.Status() { // not with r.mu held: the keeper calls us with its own
			asked[status.Name], problems[status.Name] = status.At, status.Problem
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]RangeSet, len(r.sets))
	for i := range r.sets {
		s := &r.sets[i]
		all[i] = RangeSet{Name: s.name, Prefixes: len(s.prefixes()), Source: s.source, URLs: s.urls}
		newer := *s
		newer.newer = append([]prefixes.Update(nil), s.newer...)
		for n := range newer.newer {
			name := sourceName(s.rangeDef, n)
			if at := asked[name]; !newer.newer[n].At.IsZero() && at.After(newer.newer[n].At) {
				newer.newer[n].At = at
			}
			if all[i].Problem == "" {
				all[i].Problem = problems[name]
			}
		}
		all[i].At = newer.at()
		all[i].Refreshed = len(s.newer) > 0 && !all[i].At.Equal(s.date)
	}
	return all
}

// A Refresh configures how ranges are updated from their operators' URLs.
type Refresh struct {
	Every     time.Duration     // 0: a day; at least a minute
	Delay     time.Duration     // from the start of Run to its first request, and up to as much again
	Folder    string            // for copies of the answers, created if missing; "": no copies
	Log       func(string)      // gets one line for each problem, and one when it is over; may be nil
	Agent     string            // User-Agent of the requests; "": fairshare
	Transport http.RoundTripper // nil: a new one
}

// Load reads the copies that an earlier Run left in the folder. It requests no
// URL.
func (r *Ranges) Load(o Refresh) error {
	_, err := r.open(context.Background(), o)
	return err
}

// Run reads the copies of an earlier Run, and requests the operators' URLs
// regularly until ctx ends. It returns after its last request has ended. Its error
// says why it could not start. If a URL does not answer, or its answer is
// implausible, the previous version stays in use. Only one Run may be active at a
// time.
func (r *Ranges) Run(ctx context.Context, o Refresh) error {
	keeper, err := r.open(ctx, o)
	if err != nil {
		return err
	}
	keeper.Run(ctx)
	return nil
}

func (r *Ranges) open(ctx context.Context, o Refresh) (*prefixes.Keeper, error) {
	var sources []prefixes.Source
	for i := range rangeDefs {
		for n, url := range rangeDefs[i].urls {
			sources = append(sources, prefixes.Source{Name: sourceName(&rangeDefs[i], n), URL: url, Every: o.Every})
		}
	}
	loading := true
	keeper, err := prefixes.Open(ctx, prefixes.Options{
		Sources: sources, Folder: o.Folder, Later: true, Delay: o.Delay,
		Noun: "ranges of", Without: "the built-in version stays in use", Log: o.Log, Agent: o.Agent,
		Transport: o.Transport, MaxSize: maxRangesSize,
		Check: checkRanges,
		Change: func(u prefixes.Update) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.replace(u) && !loading {
				r.rebuild()
			}
		},
	})
	if err != nil {
		return nil, err
	}
	loading = false
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keeper.Store(keeper)
	r.rebuild()
	return keeper, nil
}

// sourceName names the n-th URL of a set.
func sourceName(d *rangeDef, n int) string {
	if n == 0 {
		return d.name
	}
	return d.name + "." + strconv.Itoa(n+1)
}

// replace stores a newer version of the part of a set that comes from one URL. It
// ignores a copy that is older than the snapshot, and returns false.
func (r *Ranges) replace(u prefixes.Update) bool {
	for i := range r.sets {
		s := &r.sets[i]
		for n := range s.newer {
			if sourceName(s.rangeDef, n) == u.Name && u.At.After(s.date) {
				s.newer[n] = u
				return true
			}
		}
	}
	return false
}

const (
	maxRangesSize = 5 << 20 // bytes of one published list
	maxRangesLen  = 100_000 // prefixes
	maxRangesIPv4 = 1 << 23 // addresses: half a /8, several times more than any crawler has
)

// checkRanges refuses an implausibly large list. Rules favor clients in a
// published range, so a list with half of the Internet must not be used, whatever
// its cause.
func checkRanges(u prefixes.Update) error {
	if len(u.Prefixes) > maxRangesLen {
		return fmt.Errorf("%d prefixes are more than any crawler has", len(u.Prefixes))
	}
	addrs := 0
	for _, p := range u.Prefixes {
		least := 9
		if p.Addr().Is6() {
			least = 20
		} else if p.Bits() >= least {
			addrs += 1 << (32 - p.Bits())
		}
		if p.Bits() < least {
			return fmt.Errorf("%s is wider than any crawler's network", p)
		}
	}
	if addrs > maxRangesIPv4 {
		return fmt.Errorf("%d IPv4 addresses are more than any crawler has", addrs)
	}
	return nil
}
