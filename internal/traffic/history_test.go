package traffic

import (
	"fmt"
	"testing"
	"time"

	"fairshare"
	"fairshare/internal/network"
	"fairshare/internal/toplist"
)

// A steady client has exact minutes and hours, of the last hour and the last two days.
func TestHistoryOfAClient(t *testing.T) {
	r := New(start)
	c, of := completion("203.0.113.9"), report("a", fairshare.Refuse, false)
	const length = 50 * 60 * 60
	for i := range length {
		at := start.Add(time.Duration(i) * time.Second)
		if i%10 == 4 {
			r.Passed(passages(c, single(c.Addr)))
		}
		if i%60 == 34 {
			r.Refused(refusals(of, single(c.Addr), "/x", at))
		}
		r.Tick(at, at, Load{})
	}
	end := start.Add(length * time.Second)
	for name, get := range map[string]func() (History, bool){
		"client":  func() (History, bool) { return r.ClientHistory(single(c.Addr), end) },
		"network": func() (History, bool) { return r.ClientHistory(network.Around(single(c.Addr)), end) },
	} {
		h, ok := get()
		if !ok || !h.Since.Before(start.Add(toplist.Period)) {
			t.Fatalf("%s: no history since the start: %t %v", name, ok, h.Since)
		}
		if len(h.Minutes) != MinutesOfKeys-1 || len(h.Hours) != HoursOfKeys-1 { // the present ones have nothing yet
			t.Errorf("%s: %d minutes and %d hours", name, len(h.Minutes), len(h.Hours))
		}
		for i, m := range h.Minutes[:len(h.Minutes)-1] { // the end of the last one is not counted yet
			want := toplist.Amounts{Requests: 7, Refused: 1, Bytes: 6000, Time: int64(6 * time.Second)}
			if m.Sums != want || m.More != 0 || !m.At.Equal(h.Minutes[0].At.Add(time.Duration(i)*time.Minute)) {
				t.Fatalf("%s: minute %d: %+v", name, i, m)
			}
		}
		for _, hour := range h.Hours[1 : len(h.Hours)-1] {
			if n := hour.Sums[Requests]; n != 420 {
				t.Errorf("%s: %d requests in an hour", name, n)
			}
		}
	}
	if h, ok := r.OwnerHistory(64500, end); !ok || len(h.Hours) == 0 {
		t.Error("the owner has no history")
	}
	if h, ok := r.FleetHistory("fleet-1", end); !ok || len(h.Hours) == 0 {
		t.Error("the fleet has no history")
	}
	if h, ok := r.BotHistory(fairshare.Bot{Name: "googlebot", State: fairshare.Verified}, end); !ok ||
		len(h.Hours) == 0 {
		t.Error("the bot has no history")
	}
	if _, ok := r.BotHistory(fairshare.Bot{Name: "googlebot", State: fairshare.Claimed}, end); ok {
		t.Error("a bot in another state has a history")
	}
}

// Made-up clients take no memory without a bound, and do not push out a client with a clear share of all
// requests.
func TestFloodKeepsTheHistoryOfHeavyClients(t *testing.T) {
	r := New(start)
	heavy := completion("203.0.113.9")
	n := 0
	for i := range 70 * 60 {
		at := start.Add(time.Duration(i) * time.Second)
		r.Passed(passages(heavy, single(heavy.Addr))) // 5 % of all
		for range 19 {
			n++
			c := completion(fmt.Sprintf("10.%d.%d.%d", n>>16&255, n>>8&255, n&255))
			c.Fleet, c.Bot.Name, c.Owner.ASN = fmt.Sprint(n), fmt.Sprint("bot", n), uint32(n)
			r.Passed(passages(c, single(c.Addr)))
		}
		r.Tick(at, at, Load{})
	}
	end := start.Add(70 * time.Minute)
	h, ok := r.ClientHistory(single(heavy.Addr), end)
	if !ok || !h.Since.Before(start.Add(time.Minute)) {
		t.Fatalf("the heavy client has no history since the start: %t %v", ok, h.Since)
	}
	for _, m := range h.Minutes[:len(h.Minutes)-1] {
		if n := m.Sums[Requests]; n > 60+10 || n+m.More < 60-10 { // a period may begin in the minute before
			t.Errorf("minute %v: %d to %d requests, it sent 60", m.At, n, n+m.More)
		}
	}
	for d, tracks := range r.histories.tracks {
		if len(tracks) > tracksKept[d] {
			t.Errorf("dimension %d: %d histories", d, len(tracks))
		}
	}
	if n := len(r.histories.tracks[Clients]); n != tracksKept[Clients] {
		t.Errorf("%d clients", n)
	}
}

// A clock that is set back does not mix two times.
func TestHistoryAfterTheClockIsSetBack(t *testing.T) {
	r := New(start)
	c := completion("203.0.113.9")
	for i := range 600 {
		at, wall := start.Add(time.Duration(i)*time.Second), start.Add(time.Duration(i)*time.Second)
		if i >= 300 {
			wall = wall.Add(-24 * time.Hour)
		}
		r.Passed(passages(c, single(c.Addr)))
		r.Tick(at, wall, Load{})
	}
	h, _ := r.ClientHistory(single(c.Addr), start.Add(600*time.Second-24*time.Hour))
	for _, m := range h.Minutes {
		if n := m.Sums[Requests]; n > 70 {
			t.Errorf("%v: %d requests", m.At, n)
		}
	}
}
