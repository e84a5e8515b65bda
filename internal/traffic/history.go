package traffic

import (
	"encoding/binary"
	"math"
	"net/netip"
	"slices"
	"time"

	"fairshare"
	"fairshare/internal/network"
	"fairshare/internal/toplist"
)

// How much of the past of one key is kept: an hour of minutes, and two days of hours.
const (
	MinutesOfKeys = 60
	HoursOfKeys   = 48
)

// tracksKept is how many keys of a dimension have a history. A track has 6 KB, so all have at most 3.5 MB.
var tracksKept = [Dimensions]int{Clients: 256, Networks: 128, Owners: 64, Fleets: 64, Bots: 64}

// weightHalves is how long it takes until half of a key's weight is forgotten.
const weightHalves = time.Hour

// candidates is how many keys of each measure may get a history in one period.
const candidates = 160

// A Span is a minute or an hour of one key.
type Span struct {
	At   time.Time // when it began, by the system's clock
	Sums toplist.Amounts
	More int64 // the key may have had so many more requests
}

// A History is what one key did over time. Sums are lower bounds, to the nearest [toplist.Period].
type History struct {
	Since          time.Time // what was before is not known
	Minutes, Hours []Span    // in order; those without requests are missing
}

// A track is the history of one key.
type track struct {
	hash    uint64
	weight  float64 // its parts of all requests, bytes and so on, the latest ones count most
	since   time.Time
	minutes [MinutesOfKeys]cellOfTime
	hours   [HoursOfKeys]cellOfTime
}

// A cellOfTime has the sums of one minute or hour.
type cellOfTime struct {
	number int64 // minutes or hours since 1970
	sums   toplist.Amounts
	more   int64
}

// histories has the tracks of the keys that have the greatest sums: Space Saving, as in package toplist, by
// a weight of which half is forgotten each hour. So a key with a share of all requests that is clearly
// above one in tracksKept stays, whatever other keys are sent.
type histories struct {
	tracks [Dimensions]map[uint64]*track // by the hash of the key
}

// add adds what a dimension has counted in a period, which ended at wall.
func (h *histories) add(d Dimension, w *toplist.Window, wall time.Time) {
	most := tracksKept[d]
	if most == 0 {
		return
	}
	if h.tracks[d] == nil {
		h.tracks[d] = map[uint64]*track{}
	}
	length := w.To.Sub(w.From)
	forget := math.Exp2(-float64(length) / float64(weightHalves))
	for _, t := range h.tracks[d] {
		t.weight *= forget
	}
	for hash, share := range shares(w) {
		t := h.tracks[d][hash]
		if t == nil {
			t = h.track(d, hash, wall.Add(-length))
		}
		t.weight += share
	}
	middle := wall.Add(-length / 2).Unix()
	for hash, t := range h.tracks[d] {
		row := w.Find(hash)
		if row.High == (toplist.Amounts{}) {
			continue
		}
		t.minutes[middle/60%MinutesOfKeys].add(middle/60, &row)
		t.hours[middle/3600%HoursOfKeys].add(middle/3600, &row)
	}
}

// shares returns the keys with the greatest sums of a measure, and which part of all they have: the largest
// of any measure.
func shares(w *toplist.Window) map[uint64]float64 {
	all := map[uint64]float64{}
	for m := range toplist.Measures {
		total := float64(w.Total(m))
		for _, row := range w.Top(m, candidates) {
			if row.Low[m] > 0 {
				all[row.Hash] = max(all[row.Hash], float64(row.Low[m])/total)
			}
		}
	}
	return all
}

// track returns a new track for a key, which may replace the one with the least weight.
func (h *histories) track(d Dimension, hash uint64, since time.Time) *track {
	tracks := h.tracks[d]
	var t *track
	if len(tracks) < tracksKept[d] {
		t = new(track)
	} else {
		for _, other := range tracks {
			if t == nil || other.weight < t.weight {
				t = other
			}
		}
		delete(tracks, t.hash)
		*t = track{weight: t.weight}
	}
	t.hash, t.since = hash, since
	tracks[hash] = t
	return t
}

func (c *cellOfTime) add(number int64, row *toplist.Row) {
	if c.number != number {
		*c = cellOfTime{number: number}
	}
	for m, low := range row.Low {
		c.sums[m] += low
	}
	c.more += row.High[Requests] - row.Low[Requests]
}

// spans returns what cells have from a time on, in order.
func spans(cells []cellOfTime, length int64, from time.Time) (all []Span) {
	for i := range cells {
		c := &cells[i]
		if at := time.Unix(c.number*length, 0); c.number != 0 && !at.Before(from) {
			all = append(all, Span{At: at, Sums: c.sums, More: c.more})
		}
	}
	slices.SortFunc(all, func(a, b Span) int { return a.At.Compare(b.At) })
	return all
}

// history returns the history of a key at a time of the system's clock.
func (h *histories) history(d Dimension, hash uint64, wall time.Time) (History, bool) {
	t := h.tracks[d][hash]
	if t == nil {
		return History{}, false
	}
	return History{Since: t.since,
		Minutes: spans(t.minutes[:], 60, wall.Truncate(time.Minute).Add(-(MinutesOfKeys-1)*time.Minute)),
		Hours:   spans(t.hours[:], 3600, wall.Truncate(time.Hour).Add(-(HoursOfKeys-1)*time.Hour))}, true
}

func (r *Recorder) history(d Dimension, hash uint64, wall time.Time) (History, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.histories.history(d, hash, wall)
}

// ClientHistory returns what a client did, or a network if the prefix is one. It is false for those that
// have no history: only those with most requests, refusals, bytes or time have one. wall is the system's
// time.
func (r *Recorder) ClientHistory(client netip.Prefix, wall time.Time) (History, bool) {
	var b [addressKey]byte
	hash := r.lists.HashBytes(appendAddress(b[:0], client, netip.Addr{}))
	if h, ok := r.history(Clients, hash, wall); ok {
		return h, true
	}
	if network.Around(client) != client {
		return History{}, false
	}
	return r.history(Networks, hash, wall)
}

// OwnerHistory is ClientHistory for the owner of addresses.
func (r *Recorder) OwnerHistory(asn uint32, wall time.Time) (History, bool) {
	return r.history(Owners, r.lists.HashBytes(binary.BigEndian.AppendUint32(nil, asn)), wall)
}

// FleetHistory is ClientHistory for a fleet.
func (r *Recorder) FleetHistory(name string, wall time.Time) (History, bool) {
	return r.history(Fleets, r.lists.HashString(name), wall)
}

// BotHistory is ClientHistory for a bot in one state.
func (r *Recorder) BotHistory(bot fairshare.Bot, wall time.Time) (History, bool) {
	return r.history(Bots, botHash(r.lists, &bot), wall)
}
