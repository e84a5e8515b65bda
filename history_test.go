package fairshare

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"
)

var historyStart = time.Unix(1_800_000_000, 0)

func clientOf(addr string) netip.Prefix { return new(Policy).Client(netip.MustParseAddr(addr)) }

func meets(h *History, addr string, at time.Duration) bool {
	c := h.name(clientOf(addr).Addr(), clientOf(addr).Bits(), netip.Addr{})
	return h.meet(&c, historyStart.Add(at))
}

func TestStandingByAge(t *testing.T) {
	h := new(History)
	for _, step := range []struct {
		addr string
		at   time.Duration
		want bool
	}{
		{"192.0.2.1", 0, false},
		{"192.0.2.1", 9 * time.Minute, false},
		{"192.0.2.2", 9 * time.Minute, false}, // its neighbour is a client of its own
		{"192.0.2.1", 11 * time.Minute, true},
		{"192.0.2.2", 11 * time.Minute, false},
		{"2001:db8::1", 0, false},
		{"2001:db8::2", 11 * time.Minute, true}, // the same /64
		{"192.0.2.1", 400 * 24 * time.Hour, true},
	} {
		if got := meets(h, step.addr, step.at); got != step.want {
			t.Errorf("%s after %v: %v, want %v", step.addr, step.at, got, step.want)
		}
	}
	c := h.name(clientOf("192.0.2.1").Addr(), clientOf("192.0.2.1").Bits(), netip.Addr{})
	h.forget(&c)
	if meets(h, "192.0.2.1", 400*24*time.Hour+time.Second) {
		t.Error("a ban leaves standing")
	}
}

// Ten thousand prepared /64s of one /48 give sixteen clients with standing, and
// take it from nobody who had it, there or elsewhere.
func TestPreparedAddressesOfOneNetworkGainLittle(t *testing.T) {
	h := new(History)
	const old, early, stranger = "2001:db8:1:ffff::1", "2001:db8:1:fffe::1", "2001:db8:2::1"
	for at := 0 * time.Minute; at < 20*time.Minute; at += 5 * time.Minute {
		meets(h, old, at)
		meets(h, stranger, at)
	}
	meets(h, early, 15*time.Minute)
	aged := map[int]bool{}
	for at := 20 * time.Minute; at < 80*time.Minute; at += 15 * time.Minute {
		for i := range 10_000 {
			if meets(h, fmt.Sprintf("2001:db8:1:%x::1", i), at) {
				aged[i] = true
			}
		}
	}
	if len(aged) > maxAged {
		t.Errorf("%d prepared clients have standing, want at most %d", len(aged), maxAged)
	}
	for _, addr := range []string{old, early, stranger} {
		if !meets(h, addr, 40*time.Minute) {
			t.Errorf("%s came before and has no standing", addr)
		}
	}
}

// The registry's word counts as the client's own requests would.
func TestTellGivesStanding(t *testing.T) {
	h := new(History)
	now := historyStart.Add(time.Hour)
	h.RestoreFirstSeen(clientOf("192.0.2.1"), historyStart, now)
	h.RestoreFirstSeen(clientOf("192.0.2.2"), now.Add(-time.Minute), now)
	if !meets(h, "192.0.2.1", time.Hour) || meets(h, "192.0.2.2", time.Hour) {
		t.Error("known for an hour, for a minute: want standing for the first alone")
	}
	if !meets(h, "192.0.2.2", time.Hour+9*time.Minute+30*time.Second) {
		t.Error("known for ten minutes, by the registry: no standing")
	}
	h.RestoreFirstSeen(clientOf("192.0.2.2"), now, now)
	if !meets(h, "192.0.2.2", time.Hour+10*time.Minute) {
		t.Error("a later time than the known one takes the standing away")
	}
}

// What clients have seen agrees with a map while a network has no more than a
// set holds, and is over after a day.
func TestSeenAgreesWithAMap(t *testing.T) {
	h, rnd := new(History), rand.New(rand.NewPCG(1, 2))
	lists := []seenList{newSeenList([]string{"*"}, nil), newSeenList([]string{"/a", "/b"}, nil),
		newSeenList([]string{"/a/b"}, nil)}
	type fact struct{ client, list int }
	model := map[fact]time.Time{}
	at := historyStart
	for step := range 20_000 {
		at = at.Add(time.Duration(rnd.IntN(120)) * 16 * time.Second)
		f := fact{rnd.IntN(40), rnd.IntN(len(lists))}
		c := h.name(clientOf(fmt.Sprintf("192.0.%d.%d", f.client%10, f.client)).Addr(),
			clientOf(fmt.Sprintf("192.0.%d.%d", f.client%10, f.client)).Bits(), netip.Addr{})
		if rnd.IntN(3) == 0 {
			h.show(&c, lists, 1<<f.list, at)
			model[f] = at
			continue
		}
		seen, known := model[f]
		if got, want := h.saw(&c, &lists[f.list], at), known && at.Sub(seen) <= 24*time.Hour; got != want {
			t.Fatalf("step %d: client %d, list %d: %v, want %v", step, f.client, f.list, got, want)
		}
	}
}

// A slowHistory is an obviously right model of History.meet for the clients of
// one network: a list of at most maxAged clients.
type slowHistory []slowClient

type slowClient struct {
	addr        string
	first, last uint64 // ticks
	aged        bool
}

func (h *slowHistory) meet(addr string, now uint64) (aged bool) {
	for i := range *h {
		if c := &(*h)[i]; c.addr == addr {
			c.aged = c.aged || now-c.first >= uint64((knownAfter+tick-1)/tick)
			c.last = now
			return c.aged
		}
	}
	newcomer := slowClient{addr: addr, first: now, last: now}
	if len(*h) < maxAged {
		*h = append(*h, newcomer)
		return false
	}
	// The client that was idle for longest goes, if that is an hour, or a day for
	// one with standing. If there is none, the newest without standing goes.
	idle, newest := -1, -1
	for i, c := range *h {
		most := cameFor
		if c.aged {
			most = agedFor
		}
		if now-c.last >= most && (idle < 0 || c.last < (*h)[idle].last) {
			idle = i
		}
		if !c.aged && now-c.last < most && (newest < 0 || c.first > (*h)[newest].first) {
			newest = i
		}
	}
	switch {
	case idle >= 0:
		(*h)[idle] = newcomer
	case newest >= 0:
		(*h)[newest] = newcomer
	}
	return false
}

// distinctHistory returns a History that tells the addresses of FuzzMeet apart: with 24 bits of a hash, two of them may
// be one client.
func distinctHistory() *History {
	for {
		h, names := new(History), map[uint64]bool{}
		for i := range 40 {
			client := h.name(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 32, netip.Addr{})
			_, name := h.set(&client)
			names[name] = true
		}
		if len(names) == 40 {
			return h
		}
	}
}

// FuzzMeet compares History.meet with the model. Each two bytes of steps are a
// client and how long after the step before it sends a request. Ties, where any
// of several clients may go, end a run: each step is one tick later at least.
func FuzzMeet(f *testing.F) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		steps := make([]byte, 2000)
		for i := range steps {
			if steps[i] = byte(rnd.IntN(30)); i%2 == 1 && rnd.IntN(40) > 0 {
				steps[i] %= 4
			}
		}
		f.Add(steps)
	}
	f.Fuzz(func(t *testing.T, steps []byte) {
		h, model := distinctHistory(), slowHistory{}
		at := time.Duration(0)
		for i := 0; i+1 < len(steps); i += 2 {
			wait := time.Duration(steps[i+1])
			at += tick * (1 + wait*wait*wait) // up to years
			if at > 190*24*time.Hour {
				return // times repeat after 194 days
			}
			addr := fmt.Sprintf("192.0.2.%d", steps[i]%40)
			want := model.meet(addr, uint64(historyStart.Add(at).Unix()/16))
			if got := meets(h, addr, at); got != want {
				t.Fatalf("step %d, %s after %v: standing %v, want %v", i/2, addr, at, got, want)
			}
		}
	})
}

// A process may run for months without a restart. What is five months old does not look like a time in the future.
func TestHistoryOfALongRun(t *testing.T) {
	const later = 150 * 24 * time.Hour
	h := new(History)
	for i := range maxAged {
		meets(h, fmt.Sprintf("192.0.2.%d", i), 0)
		meets(h, fmt.Sprintf("192.0.2.%d", i), time.Hour)
	}
	if meets(h, "192.0.2.100", later); !meets(h, "192.0.2.100", later+time.Hour) {
		t.Error("sixteen clients that have not come for months keep a new one from getting standing")
	}
	if meets(h, "198.51.100.1", 0); !meets(h, "198.51.100.1", later) {
		t.Error("a client that came months ago is new")
	}
	lists := []seenList{newSeenList([]string{"*"}, nil)}
	c := h.name(clientOf("192.0.2.1").Addr(), clientOf("192.0.2.1").Bits(), netip.Addr{})
	h.show(&c, lists, 1, historyStart)
	if h.saw(&c, &lists[0], historyStart.Add(later)) {
		t.Error("a page of months ago was seen within the last day")
	}
}
