package share

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// A story is a scheduler whose requests have names: "a1.2" is the second request of client 1 in
// network a. Networks in capitals are of the newest class,
// others of the oldest.
type story struct {
	t     *testing.T
	s     *scheduler
	now   int64
	turns map[string]*Turn
}

func newStory(t *testing.T, slots, queue int) *story {
	st := &story{t: t, s: newScheduler(), turns: map[string]*Turn{}}
	st.s.set(slots, queue, false, 0)
	return st
}

func (st *story) claim(name string) *Claim {
	client, _, _ := strings.Cut(name, ".")
	c := &Claim{depth: 2, weight: 1, class: 0}
	if client[0] < 'a' {
		c.class = newest
	}
	c.keys[0] = uint64(client[0])
	for _, letter := range client {
		c.keys[1] = c.keys[1]<<8 | uint64(letter)
	}
	c.keys[1] |= 1 << 60
	return c
}

func (st *story) arrive(names ...string) {
	for _, name := range names {
		st.turns[name] = &Turn{}
		st.s.arrive(st.turns[name], st.claim(name), st.now)
		check(st.t, st.s)
	}
}

func (st *story) done(names ...string) {
	for _, name := range names {
		if st.turns[name].state != inside {
			st.t.Fatalf("%s is not inside", name)
		}
		st.s.done(st.turns[name], st.now)
		check(st.t, st.s)
	}
}

func (st *story) pass(d time.Duration) { st.now += int64(d) }

// in returns the names of the requests in a state.
func (st *story) in(state uint8) string {
	var names []string
	for name, turn := range st.turns {
		if turn.state == state {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// order ends all requests, each after the given time, and returns the order in which they began.
func (st *story) order(each time.Duration) string {
	var names []string
	for st.s.inside > 0 {
		name := st.in(inside)
		if strings.Contains(name, " ") {
			st.t.Fatalf("%s are inside, want one", name)
		}
		names = append(names, name)
		st.pass(each)
		st.done(name)
	}
	return strings.Join(names, " ")
}

func TestTurnsAlternate(t *testing.T) {
	for _, c := range []struct{ name, arrive, want string }{
		{"one client: order of arrival", "a1.1 a1.2 a1.3", "a1.1 a1.2 a1.3"},
		{"two clients of a network", "a1.1 a1.2 a1.3 a2.1 a2.2", "a1.1 a2.1 a1.2 a2.2 a1.3"},
		{"two networks, one with two clients", "a1.1 a1.2 a2.1 a2.2 b1.1 b1.2 b1.3",
			"a1.1 a2.1 b1.1 a1.2 b1.2 a2.2 b1.3"},
		{"the classes take turns", "a1.1 a1.2 a1.3 A1.1 A1.2 B1.1", "a1.1 A1.1 a1.2 B1.1 a1.3 A1.2"},
	} {
		st := newStory(t, 1, 100)
		st.arrive(strings.Fields(c.arrive)...)
		if got := st.order(10 * ms); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestFullQueueRefusesNewestRequestOfHeaviestClient(t *testing.T) {
	for _, c := range []struct{ name, arrive, refused, waiting string }{
		{"a newcomer, though an old client arrives", "z A1.1 A1.2 A1.3 a1.1 a1.2", "A1.3",
			"A1.1 A1.2 a1.1 a1.2"},
		{"the arriving request itself", "z A1.1 A1.2 A1.3 A1.4 A1.5", "A1.5", "A1.1 A1.2 A1.3 A1.4"},
		{"an old client when its class has more than half", "z A1.1 A1.2 a1.1 a1.2 a2.1", "a1.2",
			"A1.1 A1.2 a1.1 a2.1"},
		{"the heaviest network, not the heaviest client", "z A1.1 A1.2 B1.1 B2.1 B3.1", "B3.1", "A1.1 A1.2 B1.1 B2.1"},
		{"the heaviest client of the heaviest network", "z B1.1 B2.1 B1.2 A1.1 A1.2", "B1.2", "A1.1 A1.2 B1.1 B2.1"},
		{"the last arrival among equals", "z A1.1 B1.1 C1.1 D1.1 E1.1", "E1.1", "A1.1 B1.1 C1.1 D1.1"},
	} {
		st := newStory(t, 1, 4)
		st.arrive(strings.Fields(c.arrive)...)
		if got := st.in(refused); got != c.refused {
			t.Errorf("%s: %s refused, want %s", c.name, got, c.refused)
		}
		if got := st.in(waits); got != c.waiting {
			t.Errorf("%s: %s wait, want %s", c.name, got, c.waiting)
		}
	}
}

// A class keeps half of the slots even if it used more recently.
func TestClassKeepsHalfOfTheSlots(t *testing.T) {
	for _, names := range []string{"a1.1 A1.1 a2.1 A1.2 A1.3", "A1.1 a1.1 A2.1 a1.2 a1.3"} {
		st := newStory(t, 2, 100)
		of := strings.Fields(names)
		st.arrive(of[0])
		st.pass(900 * ms)
		st.arrive(of[1:]...)
		st.done(of[0])
		if st.turns[of[2]].state != inside {
			t.Errorf("%s: %s are inside, want %s", names, st.in(inside), of[2])
		}
		st.done(of[1])
		if st.turns[of[3]].state != inside {
			t.Errorf("%s: %s are inside, want %s", names, st.in(inside), of[3])
		}
	}
}

// In a full queue a newcomer that waits is not replaced by new clients or networks.
func TestNewNetworkQueuesBehindWaitingRequests(t *testing.T) {
	st := newStory(t, 1, 100)
	st.arrive("A1.1", "B1.1", "A1.2", "C1.1", "A1.3", "D1.1")
	if got, want := st.order(10*ms), "A1.1 B1.1 A1.2 A1.3 C1.1 D1.1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	// A client that returns is served before new clients, but every second turn goes by arrival.
	st.arrive("A1.4", "E1.1", "F1.1", "B1.2")
	if got, want := st.order(10*ms), "A1.4 B1.2 E1.1 F1.1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestNewNodeStartsAtVirtualTime(t *testing.T) {
	st := newStory(t, 1, 100)
	st.arrive("a1.1", "a1.2", "a1.3", "b1.1")
	if got, want := st.order(10*ms), "a1.1 a1.2 b1.1 a1.3"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A long request is charged while it runs: other clients are served first long before it ends.
func TestLongRequestIsChargedWhileItRuns(t *testing.T) {
	st := newStory(t, 2, 100)
	st.arrive("a1.1", "b1.1") // both have a small expected cost
	st.pass(2 * time.Second)
	st.arrive("a1.2", "c1.1", "c1.2", "c1.3")
	for _, want := range []string{"a1.1 c1.1", "a1.1 c1.2", "a1.1 c1.3"} {
		st.done(strings.TrimPrefix(strings.TrimPrefix(st.in(inside), "a1.1 "), " "))
		if got := st.in(inside); got != want {
			t.Fatalf("%s are inside, want %s", got, want)
		}
		st.pass(20 * ms)
	}
	if lag := st.turns["a1.1"].leaf.lag(); lag < 1e9 {
		t.Errorf("two seconds of work are a lag of %v", time.Duration(lag))
	}
}

func TestExpectedCostIsCorrectedAtTheEnd(t *testing.T) {
	for _, took := range []time.Duration{time.Microsecond, 5 * ms, 300 * ms, 900 * ms} {
		st := newStory(t, 1, 100)
		st.arrive("a1")
		leaf := st.turns["a1"].leaf
		before := leaf.tag - float64(st.turns["a1"].expected)
		st.pass(took)
		st.done("a1")
		if got := leaf.tag - before; math.Abs(got-float64(took)) > 1 {
			t.Errorf("%v is charged as %v", took, time.Duration(got))
		}
	}
}

func TestOldUseFades(t *testing.T) {
	st := newStory(t, 1, 100)
	st.arrive("a1.1", "b1.1")
	st.pass(40 * time.Second)
	st.done("a1.1", "b1.1")
	leaf := st.turns["a1.1"].leaf
	network := leaf.parent
	was := network.lag()
	for minute := 1.0; minute <= 5; minute++ {
		st.pass(time.Minute)
		if got, want := st.faded(network), was*math.Exp2(-minute); math.Abs(got-want) > want/1000 {
			t.Errorf("after %v min the lag is %v, want %v of %v", minute, time.Duration(got), time.Duration(want),
				time.Duration(was))
		}
	}
}

func (st *story) faded(n *node) float64 {
	n.fade(st.now)
	return n.lag()
}

// Requests that only wait cost nothing, and neither does an unused turn.
func TestAbandonedRequestsCostNothing(t *testing.T) {
	st := newStory(t, 1, 100)
	st.arrive("a1.1", "b1.1", "b1.2", "c1.1")
	leaf := st.turns["b1.2"].leaf
	tag := leaf.tag
	st.s.leave(st.turns["b1.2"], st.now)
	st.pass(10 * ms)
	st.done("a1.1")
	st.s.leave(st.turns["b1.1"], st.now) // its turn had already come
	check(t, st.s)
	if leaf.tag != tag || st.in(inside) != "c1.1" || st.s.tally[0].Gone != 2 {
		t.Errorf("tag %v, want %v; %s is inside; %+v", leaf.tag, tag, st.in(inside), st.s.tally)
	}
}

// After ten thousand clients hang up, no state remains.
func TestAbandonedRequestsLeaveNoState(t *testing.T) {
	s := newScheduler()
	s.set(1, 20_000, false, 0)
	var turns []*Turn
	for i := range uint64(10_000) {
		turn := &Turn{}
		s.arrive(turn, &Claim{keys: [MaxParts + 1]uint64{1 + i%2000, 1<<40 | i}, depth: 2, weight: 1,
			class: uint8(i % 2000 % 2 * uint64(newest))}, int64(i))
		turns = append(turns, turn)
	}
	check(t, s)
	for _, turn := range slices.Backward(turns) {
		s.leave(turn, 20_000)
	}
	check(t, s)
	if s.inside != 0 || s.waiting != 0 || s.idle.n != 10_000 {
		t.Errorf("%d inside, %d wait, %d rest", s.inside, s.waiting, s.idle.n)
	}
	for range 100_000 {
		s.pass(s.now + 1e7)
	}
	check(t, s)
	if len(s.nodes) != 0 || s.idle.n != 0 {
		t.Errorf("%d nodes are left", len(s.nodes))
	}
}

// A flood of new clients does not make the scheduler forget a heavy client.
func TestHeavyClientIsNotForgotten(t *testing.T) {
	s := newScheduler()
	s.set(1000, 1000, false, 0)
	now := int64(0)
	heavy := &Claim{keys: [MaxParts + 1]uint64{1, 2}, depth: 2, weight: 1, class: newest}
	turn := &Turn{}
	s.arrive(turn, heavy, now)
	now += 5e9
	s.done(turn, now)
	for i := range uint64(3 * maxIdle) {
		turn := &Turn{}
		s.arrive(turn, &Claim{keys: [MaxParts + 1]uint64{1<<40 | i, 1<<41 | i}, depth: 2, weight: 1,
			class: newest}, now)
		now += 1e4
		s.done(turn, now)
	}
	if len(s.nodes) > 2*maxIdle+4 || s.idle.n > maxIdle+1 {
		t.Errorf("%d nodes, %d of them idle", len(s.nodes), s.idle.n)
	}
	check(t, s)
	if n := s.nodes[heavy.keys[1]]; n == nil || n.lag() < 2e9 {
		t.Errorf("the heavy client is remembered as %+v", n)
	}
}

// RetryAfter grows with the queue and with the number of refusals.
func TestRetryAfterGrowsWithTheOverload(t *testing.T) {
	after := func(queue, knocks int) time.Duration {
		st := newStory(t, 8, queue)
		for i := range queue + 8 {
			st.s.arrive(&Turn{}, st.claim(fmt.Sprintf("A%d", i)), st.now)
		}
		for range 100 { // 8 of 20 ms
			for range 8 {
				st.pass(2500 * time.Microsecond)
				st.s.done(st.s.running.oldest, st.now)
				st.s.arrive(&Turn{}, st.claim(fmt.Sprintf("A%d", st.now)), st.now)
			}
			for range knocks {
				st.s.arrive(&Turn{}, st.claim("A!"), st.now)
			}
		}
		turn := &Turn{}
		st.s.arrive(turn, st.claim("A!"), st.now)
		if turn.state != refused || turn.busy.Waited {
			t.Fatalf("%+v, want a refusal", turn)
		}
		return turn.busy.RetryAfter
	}
	small, large, pressed, worst := after(16, 1), after(1024, 1), after(1024, 40), after(8192, 400)
	if small < time.Second || small > 3*time.Second || large < 2*small*3/4 || pressed < 3*large ||
		worst < time.Minute || worst > 76*time.Second {
		t.Errorf("%v, %v, %v, %v", small, large, pressed, worst)
	}
}

func TestFewerSlotsThanRequestsInProgress(t *testing.T) {
	st := newStory(t, 4, 100)
	st.arrive("a1", "b1", "c1", "d1", "e1", "f1")
	st.s.set(2, 100, false, st.now)
	for _, name := range []string{"a1", "b1"} {
		st.done(name)
		if st.s.waiting != 2 {
			t.Fatalf("%d wait while %d are inside", st.s.waiting, st.s.inside)
		}
	}
	st.done("c1")
	if got := st.in(inside); got != "d1 e1" {
		t.Errorf("%s are inside", got)
	}
	st.s.set(3, 100, false, st.now)
	if got := st.in(inside); got != "d1 e1 f1" {
		t.Errorf("%s are inside after there is more room", got)
	}
}

// A shorter queue refuses the newest requests of the heaviest clients at once.
func TestShorterQueueRefusesAtOnce(t *testing.T) {
	st := newStory(t, 1, 100)
	st.arrive("z1", "a1.1", "a1.2", "A1.1", "A1.2", "A1.3", "B1.1")
	st.s.set(1, 3, false, st.now)
	check(t, st.s)
	if got := st.in(waits); got != "A1.1 a1.1 a1.2" {
		t.Errorf("%s wait", got)
	}
}

// The expected wait of a visitor is the time that others had waited who got their turns, less its own.
func TestExpectedWaitFollowsTheVisitorsThatGetTurns(t *testing.T) {
	s := newScheduler()
	s.set(1, 100, false, 0)
	now := int64(1000e9)
	visitor := func(id uint64, waited time.Duration) *Claim {
		return &Claim{keys: [MaxParts + 1]uint64{id<<8 | 1, id<<8 | 2}, depth: 2, weight: 1, class: 3, waited: waited}
	}
	first := &Turn{}
	s.arrive(first, visitor(1000, 0), now)
	var turns []*Turn
	for i := range uint64(40) {
		turns = append(turns, &Turn{})
		s.arrive(turns[i], visitor(i+1, 200*time.Second), now)
	}
	for range turns {
		now += 1e6
		s.done(s.running.oldest, now)
	}
	for _, c := range []struct{ waited, least, most time.Duration }{
		{0, 180 * time.Second, 200 * time.Second}, {150 * time.Second, 30 * time.Second, 50 * time.Second},
		{300 * time.Second, time.Second, time.Second},
	} {
		late := &Turn{}
		s.arrive(late, visitor(2000+uint64(c.waited), c.waited), now)
		s.expire(late, now)
		if got := late.busy.Expected; got < c.least || got > c.most {
			t.Errorf("after a wait of %v another %v is expected, want %v to %v", c.waited, got, c.least, c.most)
		}
	}
	check(t, s)
}

// A visitor that comes back keeps its place. Copies of its cookie share a page's worth of turns, and an
// old cookie gives none after that.
func TestPlaceOfAVisitor(t *testing.T) {
	st := newStory(t, 1, 100)
	place := func(name string, waited time.Duration) {
		c := st.claim(name)
		c.waited = waited
		st.turns[name] = &Turn{}
		st.s.arrive(st.turns[name], c, st.now)
		check(t, st.s)
	}
	st.pass(time.Hour)
	st.arrive("z1.1", "a1.1", "b1.1", "c1.1")
	place("d1.1", 20*time.Second)
	place("e1.1", 30*time.Second)
	st.pass(10 * ms)
	if got, want := st.order(10*ms), "z1.1 e1.1 a1.1 d1.1 b1.1 c1.1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	// Twelve copies of one cookie that waits, next to twelve clients that came before.
	st = newStory(t, 1, 100)
	st.pass(time.Hour)
	st.arrive("z1.1")
	for i := range 12 {
		st.arrive(string(rune('a'+i)) + "1.1")
	}
	for i := range 12 {
		place("x1."+string(rune('a'+i)), 30*time.Second)
	}
	order := strings.Fields(st.order(10 * ms))
	early := 0
	for _, name := range order[:20] {
		if strings.HasPrefix(name, "x") {
			early++
		}
	}
	if early < pageTurns || early > pageTurns+1 {
		t.Errorf("%d of the copies are among the first 20: %v", early, order)
	}
	// The place that gave these turns gives no others.
	leaf := st.turns["x1.a"].leaf
	place("x1.z", 30*time.Second)
	if leaf.placed != 0 || leaf.listed {
		t.Errorf("an old place gives %d turns again", leaf.placed)
	}
}
