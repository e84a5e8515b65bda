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

// Ranges are the sets of addresses that operators publish for their bots: a
// snapshot that the program carries, and newer ones once Load or Run has them.
// A set that has neither is not known. Ranges are safe for concurrent use.
type Ranges struct {
	index atomic.Pointer[rangeIndex]

	mu   sync.Mutex // held while a set is replaced
	sets []rangeSet // in the order of rangeDefs

	keeper atomic.Pointer[prefixes.Keeper] // of the last Load or Run
}

// A rangeSet is one set with where it came from.
type rangeSet struct {
	*rangeDef
	snapshot []netip.Prefix
	date     time.Time // of the snapshot; zero: it has none of this set
	source   string
	newer    []prefixes.Update // by URL; those without time have not answered
}

// prefixes are those that count: what all URLs answered, and the snapshot
// until they have.
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

// at is the age of the oldest part of what counts.
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

// A rangeIndex finds all sets that an address is in, at one go. It is never
// changed.
type rangeIndex struct {
	table bart.Fast[rangeMask] // a prefix has the bits of those that cover it too
	known rangeMask            // sets that hold something
}

func (x *rangeIndex) lookup(addr netip.Addr) rangeMask {
	in, _ := x.table.Lookup(addr)
	return in
}

// NewRanges returns the snapshot that the program carries.
func NewRanges() *Ranges {
	r := &Ranges{sets: make([]rangeSet, len(rangeDefs))}
	for i := range rangeDefs {
		r.sets[i].rangeDef = &rangeDefs[i]
		r.sets[i].newer = make([]prefixes.Update, len(rangeDefs[i].urls))
	}
	if err := r.readSnapshot(rangeSnapshot); err != nil {
		panic(fmt.Sprintf("bots: the snapshot of ranges: %v", err))
	}
	r.rebuild()
	return r
}

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
			return fmt.Errorf("set %s is not known", name)
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

// setIndex finds a set by name; -1 when there is none.
func setIndex(name string) int {
	for i := range rangeDefs {
		if rangeDefs[i].name == name {
			return i
		}
	}
	return -1
}

// rebuild makes the index anew. With r.mu held, or before r is shared.
func (r *Ranges) rebuild() {
	index := &rangeIndex{}
	for i := range r.sets {
		bit := rangeMask(1) << i
		for _, p := range r.sets[i].prefixes() {
			index.known |= bit
			index.table.Modify(p, func(in rangeMask, _ bool) (rangeMask, bool) { return in | bit, false })
		}
	}
	// Only the longest prefix answers: it speaks for those around it. Sorted,
	// they come before what they cover.
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

// Contains reports whether an address is in a set; not known when the set has
// no prefixes, or no set has that name.
func (r *Ranges) Contains(set string, addr netip.Addr) (in, known bool) {
	i := setIndex(set)
	if i < 0 {
		return false, false
	}
	index, bit := r.index.Load(), rangeMask(1)<<i
	return index.lookup(plain(addr))&bit != 0, index.known&bit != 0
}

// plain is an address as tables hold it.
func plain(addr netip.Addr) netip.Addr { return addr.Unmap().WithZone("") }

// A RangeSet tells about one set.
type RangeSet struct {
	Name      string
	Prefixes  int       // 0: it is not known
	At        time.Time // how old it is: the day of the snapshot, or when its URLs were last asked
	Refreshed bool      // from its operator's URLs, not from the snapshot
	Source    string    // of the snapshot; "": it has none
	URLs      []string
	Problem   string // with the last refresh; "": none
}

// Sets tells about all sets, those of crawlers first.
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

// A Refresh says how ranges are kept up to date from their operators' URLs.
type Refresh struct {
	Every     time.Duration     // 0: a day; at least a minute
	Folder    string            // where answers are kept, made when missing; "": nowhere
	Log       func(string)      // one line for each problem, and when it is over; nil: nobody
	Agent     string            // User-Agent of the requests; "": fairshare
	Transport http.RoundTripper // nil: one of its own
}

// Load takes over what an earlier Run has kept in the folder, and asks nobody.
func (r *Ranges) Load(o Refresh) error {
	_, err := r.open(context.Background(), o)
	return err
}

// Run takes over what an earlier Run has kept, and asks the operators' URLs
// again and again until ctx ends. It returns when all is at rest; its error
// says why it could not begin. While a URL does not answer, or answers
// nonsense, what was known stays. It is to run once at a time.
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
		Sources: sources, Folder: o.Folder, Later: true,
		What: "ranges of", Without: "what is built in stays in use", Log: o.Log, Agent: o.Agent, Transport: o.Transport, MaxSize: maxRangesSize,
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

// replace takes a newer version of one URL's part of a set. A copy from before
// the snapshot is not newer.
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
	maxRangesIPv4 = 1 << 23 // addresses: half a /8, some times what any crawler has
)

// checkRanges refuses what no operator of a crawler can mean. Who is in a
// published range is treated kindly: a list that holds half the Internet,
// however it came to that, must not be believed.
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
