package journal

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestRepeatsOfAMinuteAreOneLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // time starts at midnight
		var out recorder
		j := open(t, Options{}, &out)
		add := func(n int, change func(*Entry)) {
			for range n {
				j.Add(now(func(e *Entry) { e.Client = netip.MustParseAddr("192.0.2.1"); change(e) }))
			}
		}
		written := func(want string) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			if got := out.String(); got != want {
				t.Fatalf("%v\ngot  %q\nwant %q", time.Now(), got, want)
			}
			out.reset()
		}
		first := func(time, rest string) string {
			return `{"time":"2000-01-01T` + time +
				`Z","client":"192.0.2.1","method":"GET","host":"example.org","path":"/a","user_agent":"Mozilla/5.0 (X11)","cookies":2,` +
				`"rule":"rapid requests","action":"refuse","dry_run":` + rest + "\n"
		}
		const plain = `false,"status":429,"retry_after":3,"resource":"requests","used":5,"allowed":5,"id":"0123456789"}`
		add(3, func(*Entry) {})
		written(first("00:00:00.000", plain)) // the first at once
		time.Sleep(9 * time.Second)
		add(1, func(e *Entry) { e.Path = "/last/" + strings.Repeat("é", 30) })
		written("")
		add(1, func(e *Entry) { e.Ban = BanStarted; e.ID = "" }) // a line of its own
		add(2, func(e *Entry) { e.DryRun = true })               // likewise
		written(first("00:00:11.000",
			`false,"status":429,"retry_after":3,"resource":"requests","used":5,"allowed":5,"ban":"started","id":""}`) +
			first("00:00:11.000",
				`true,"status":429,"retry_after":3,"resource":"requests","used":5,"allowed":5,"id":"0123456789"}`))
		time.Sleep(47 * time.Second)
		written("")
		written(`{"time":"2000-01-01T00:00:10.000Z","since":"2000-01-01T00:00:00.000Z","client":"192.0.2.1","path":"/last/` + strings.Repeat("é", 29) + `…",` +
			`"rule":"rapid requests","action":"refuse","dry_run":false,"repeated":3,"id":"0123456789"}` + "\n")
		add(2, func(*Entry) {}) // a new minute
		written(first("00:01:01.000", plain))
		j.Close()
		written(`{"time":"2000-01-01T00:00:11.000Z","since":"2000-01-01T00:00:11.000Z","client":"192.0.2.1","path":"/a","rule":"rapid requests","action":"refuse","dry_run":true,"repeated":1,"id":"0123456789"}` + "\n" +
			`{"time":"2000-01-01T00:01:01.000Z","since":"2000-01-01T00:01:01.000Z","client":"192.0.2.1","path":"/a","rule":"rapid requests","action":"refuse","dry_run":false,"repeated":1,"id":"0123456789"}` + "\n")
		add(1, func(*Entry) {})
		j.Close() // has no effect
		written("")
	})
}

func TestRepeatsAreCountedPerClientPrefix(t *testing.T) {
	for _, test := range []struct {
		options Options
		addrs   string
		lines   int
	}{
		{Options{}, "2001:db8::1 2001:db8::2 2001:db8:0:1::1", 3}, // one and its repeat, and one
		{Options{IPv6Prefix: 56}, "2001:db8::1 2001:db8::2 2001:db8:0:1::1", 2},
		{Options{IPv6Prefix: 128}, "2001:db8::1 2001:db8::2 2001:db8::1", 3},
		{Options{}, "192.0.2.1 192.0.2.2 ::ffff:192.0.2.1", 3},
		{Options{IPv4Prefix: 24}, "192.0.2.1 192.0.2.2 192.0.3.1", 3},
		{Options{IPv4Prefix: 1}, "192.0.2.1 192.0.2.2 ::", 3},
	} {
		var out recorder
		j := open(t, test.options, &out)
		for addr := range strings.FieldsSeq(test.addrs) {
			j.Add(now(func(e *Entry) { e.Client = netip.MustParseAddr(addr) }))
		}
		j.Close()
		if lines := parse(t, out.String()); len(lines) != test.lines || total(lines) != 3 {
			t.Errorf("%+v: %s", test.options, out.String())
		}
	}
}

// A flood from a hundred thousand addresses makes a hundred lines a second, without more
// memory, and every entry is counted.
func TestFloodIsBounded(t *testing.T) {
	const addrs, seconds, each = 100_000, 130, 2000
	for name, addr := range map[string]func(n int) netip.Addr{
		"IPv4":                v4,
		"IPv4, many networks": func(n int) netip.Addr { return v4(n << 8) },
		"IPv6": func(n int) netip.Addr {
			return netip.AddrFrom16([16]byte{0x20, 1, 0xd, byte(n >> 16), byte(n >> 8), 6: byte(n), 15: 1})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out recorder
				j := open(t, Options{}, &out)
				time.Sleep(time.Second / 2)
				n := 0
				for range seconds {
					for range each {
						n++
						j.Add(now(func(e *Entry) { e.Client = addr(n % addrs) }))
					}
					time.Sleep(time.Second)
				}
				j.Close()
				lines := parse(t, out.String())
				if got := total(lines); got != int64(n) {
					t.Errorf("%d of %d entries", got, n)
				}
				// at the end, the waiting lines are added
				if most := out.most(); most > 2*maxLines+reportedNetworks+reportedRules {
					t.Errorf("%d lines in a second", most)
				}
				delete(out.lines, time.Now().Unix())
				if most := out.most(); most > maxLines {
					t.Errorf("%d lines in a second", most)
				}
				kinds := map[string]int{}
				for _, l := range lines {
					switch {
					case l.Status != 0:
						kinds["first"]++
					case l.Repeated != 0:
						kinds["repeated"]++
					case l.Network != "":
						kinds["network"]++
					default:
						kinds["rule"]++
					}
				}
				t.Log(kinds)
				if kinds["first"] < 30*seconds || kinds["repeated"] == 0 ||
					kinds["network"] < reportedNetworks*seconds/sumEvery || kinds["rule"] == 0 {
					t.Errorf("lines: %v", kinds)
				}
			})
		})
	}
}

// Each of random entries is in exactly one line, under its own rule.
func TestEachEntryIsInOneLine(t *testing.T) {
	for seed := range uint64(5) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			var out recorder
			j := open(t, Options{}, &out)
			kinds := map[string]int64{}    // added entries, by rule, action and dry run
			networks := map[string]int64{} // … and network
			clients := map[string]int64{}  // … and client
			rules := 1 + random.IntN(30)
			n := int64(0)
			for range 150 {
				spread := 1 << random.IntN(20)
				for range random.IntN(150) {
					e := now(func(e *Entry) {
						e.Client = v4(random.IntN(spread) << random.IntN(12))
						e.Rule = fmt.Sprint("rule ", random.IntN(rules))
						e.Action = []string{"refuse", "block"}[random.IntN(2)]
						e.DryRun = random.IntN(2) == 0
					})
					j.Add(e)
					l := line{Rule: e.Rule, Action: e.Action, DryRun: e.DryRun}
					network, _ := e.Client.Prefix(24)
					kinds[l.kind()]++
					networks[l.kind()+network.String()]++
					clients[l.kind()+e.Client.String()]++
					n++
				}
				time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond)
			}
			j.Close()
			lines := parse(t, out.String())
			if got := total(lines); got != n {
				t.Errorf("seed %d: %d entries in lines, want %d", seed, got, n)
			}
			for i := range lines {
				l := &lines[i]
				if l.Action == "" { // of the rules beyond the bound
					continue
				}
				kinds[l.kind()] -= l.entries()
				switch {
				case l.Network != "":
					if networks[l.kind()+l.Network] -= l.entries(); networks[l.kind()+l.Network] < 0 ||
						l.Clients < 1 || l.Clients > min(256, l.Summed) {
						t.Errorf("seed %d: counted too often: %+v", seed, *l)
					}
				case l.Client.IsValid():
					if clients[l.kind()+l.Client.String()] -= l.entries(); clients[l.kind()+l.Client.String()] < 0 {
						t.Errorf("seed %d: counted too often: %+v", seed, *l)
					}
				}
			}
			for kind, n := range kinds {
				if n < 0 || n > 0 && rules*4 < maxRules-1 {
					t.Errorf("seed %d: %d of %s are missing", seed, n, kind)
				}
			}
		})
	}
}

// A reference that a client was shown is in the journal, unless there are too many.
func TestReferencesAreFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 1))
		var out recorder
		j := open(t, Options{}, &out)
		shown := map[string]bool{}
		for range 300 {
			time.Sleep(time.Second)
			for range maxLines - maxReports {
				j.Add(now(func(e *Entry) {
					e.Client = v4(random.IntN(3000) * 12345)
					e.ID = e.Client.String()
					shown[e.ID] = true
				}))
			}
		}
		j.Close()
		for _, l := range parse(t, out.String()) {
			delete(shown, l.ID)
		}
		if len(shown) > 0 {
			t.Errorf("%d references are not in the journal", len(shown))
		}
	})
}

// One network cannot take the place of others.
func TestNetworkTakesItsShareOfTheTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out recorder
		j := open(t, Options{}, &out)
		crowd := func(n int) *Entry {
			return now(func(e *Entry) {
				e.Client = netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 6: byte(n >> 8), 7: byte(n), 15: 1})
			})
		}
		shardOf := func(e *Entry) uint64 { p := newTableKey(j.seed, e, &j.settings.Load().masks); return p.shard }
		other := now(func(e *Entry) { e.Client = netip.MustParseAddr("192.0.2.1") })
		for shardOf(other) == shardOf(crowd(0)) { // which networks share a shard is random
			other.Client = other.Client.Prev()
		}
		for n := range 30 {
			for i := range 1000 {
				j.Add(crowd(n*1000 + i))
			}
			time.Sleep(time.Second)
		}
		out.reset()
		time.Sleep(20 * time.Second)
		for range 2 {
			other.Time = time.Now()
			j.Add(other)
		}
		j.Close()
		found := 0
		for _, l := range parse(t, out.String()) {
			if l.Client == other.Client {
				found++
			}
		}
		if found != 2 {
			t.Errorf("%d lines of a client that came later, want 2", found)
		}
	})
}

func TestQueriesAreWrittenOnlyIfAsked(t *testing.T) {
	var out recorder
	j := open(t, Options{}, &out)
	j.Add(now(func(*Entry) {}))
	if err := j.Replace(Options{Query: true, Format: "text"}); err != nil {
		t.Fatal(err)
	}
	j.Add(now(func(e *Entry) { e.Client = v4(1) }))
	j.Close()
	first, second, _ := strings.Cut(out.String(), "\n")
	if strings.Contains(first, "secret") || !strings.Contains(second, ` query="q=secret" `) {
		t.Error(out.String())
	}
}

func TestLoadIsReadOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out recorder
		calls := 0
		j := open(t, Options{Load: func() (float64, bool) { calls++; return float64(calls), calls != 3 }}, &out)
		time.Sleep(time.Second / 2)
		for i := range 4 {
			for k := range 20 {
				// each in its own network: there is place for all
				j.Add(now(func(e *Entry) { e.Client = v4((100*i + k) << 8) }))
			}
			time.Sleep(time.Second)
			synctest.Wait()
		}
		j.Close()
		for i, want := range []string{`"load":1.00`, `"load":2.00`, `"allowed":5,"id"`, `"load":4.00`} {
			if got := strings.Count(out.String(), want); got != 20 {
				t.Errorf("second %d: %d lines with %s", i, got, want)
			}
		}
		if calls != 5 {
			t.Errorf("read %d times", calls)
		}
	})
}

func TestSystemHasALoadAverage(t *testing.T) {
	load, known := loadAverage()
	if !known || load < 0 {
		t.Skipf("load average %v, %v", load, known)
	}
}

// A stuck reader, as of a full pipe, delays no request, and entries are counted in the
// meantime.
func TestStuckReaderLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read, write := io.Pipe()
		j := open(t, Options{}, write)
		n := 0
		add := func(seconds int) {
			for range seconds {
				for range 1000 {
					n++
					j.Add(now(func(e *Entry) { e.Client = v4(n % 5000) }))
				}
				time.Sleep(time.Second)
			}
		}
		add(300)
		if waiting := bytesWaiting(j); waiting > 2*maxLines*400 {
			t.Errorf("%d bytes wait", waiting)
		}
		var out recorder
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			io.Copy(&out, read)
		}()
		add(30)
		j.Close()
		write.Close()
		<-ended
		if got := total(parse(t, out.String())); got != int64(n) {
			t.Errorf("%d of %d entries", got, n)
		}
	})
}

func TestCloseGivesUpOnAStuckReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read, write := io.Pipe()
		j := open(t, Options{}, write)
		j.Add(&example)
		start := time.Now()
		j.Close()
		if waited := time.Since(start); waited != closeDelay {
			t.Errorf("waited %v, want %v", waited, closeDelay)
		}
		if lost := j.lost.Load(); lost != 1 {
			t.Errorf("%d lost, want 1", lost)
		}
		read.Close()
		synctest.Wait()
	})
}

func TestMessagesAreWholeLines(t *testing.T) {
	var out recorder
	j := open(t, Options{}, &out)
	for _, messages := range []string{"one\ntwo\n", "", "three", "\n", "four\n"} {
		if n, err := io.WriteString(j, messages); n != len(messages) || err != nil {
			t.Errorf("%q: %d, %v", messages, n, err)
		}
	}
	j.Close()
	if got, want := out.String(), "one\ntwo\nthree\n\nfour\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Unread messages beyond the bound are lost, and the loss is reported.
func TestWaitingMessagesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read, write := io.Pipe()
		j := open(t, Options{}, write)
		messages := "fairshare: " + strings.Repeat("x", 1000) + "\n"
		const n = 5000
		for range n {
			io.WriteString(j, messages)
		}
		j.Add(&example) // the queue is full: it is counted as a repeat of itself
		if waiting := bytesWaiting(j); waiting > maxWaiting {
			t.Errorf("%d bytes wait", waiting)
		}
		var out recorder
		go io.Copy(&out, read)
		time.Sleep(10 * time.Second)
		j.Close()
		write.Close()
		synctest.Wait()
		kept, lost := strings.Count(out.String(), messages), 0
		for line := range strings.Lines(out.String()) {
			k := 0
			if fmt.Sscanf(line, "fairshare: %d lines were lost here: the reader of stderr was too slow\n", &k); k > 0 {
				lost += k
			}
		}
		if kept == 0 || lost == 0 || kept+lost != n {
			t.Errorf("%d kept and %d lost of %d", kept, lost, n)
		}
		if lines := parse(t, out.String()); len(lines) != 1 || lines[0].Repeated != 1 {
			t.Errorf("%+v", lines)
		}
	})
}

func TestJournalIsSafeForConcurrentUse(t *testing.T) {
	var out recorder
	dir := t.TempDir()
	j := open(t, Options{}, &out)
	const adders, each = 8, 2000
	var wg sync.WaitGroup
	for i := range adders {
		wg.Go(func() {
			for k := range each {
				j.Add(now(func(e *Entry) { e.Client = v4(k / 2 << i) }))
				io.WriteString(j, "fairshare: messages\n")
			}
		})
	}
	for i := range 4 {
		wg.Go(func() {
			for k := range 20 {
				var err error
				if k%2 == i%2 {
					err = j.Replace(Options{File: dir + "/log", Max: 50_000, KeepFiles: 10, Load: noLoad})
				} else {
					err = j.Replace(Options{Load: noLoad})
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	j.Close()
	if err := j.Reopen(); err == nil {
		t.Error("a closed journal was opened again")
	}
	all := out.String() + readAll(t, dir)
	if got := total(parse(t, all)); got != adders*each {
		t.Errorf("%d of %d entries", got, adders*each)
	}
	if got := strings.Count(all, "fairshare: messages\n"); got != adders*each {
		t.Errorf("%d of %d messages", got, adders*each)
	}
}

// stuck is a sink on a disk that does not answer.
type stuck struct{ free chan struct{} }

func (s *stuck) put(lines []byte) (int, error) {
	<-s.free
	return len(lines), nil
}

func TestCloseGivesUpOnAStuckDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stderr recorder
		j := open(t, Options{}, &stderr)
		disk := &stuck{make(chan struct{})}
		s := *j.settings.Load()
		s.File, s.out = "/var/log/fairshare.log", newOutlet(disk)
		go s.out.run()
		j.settings.Store(&s)
		for range 5 {
			j.Add(&example)
		}
		start := time.Now()
		j.Close()
		if waited := time.Since(start); waited > closeDelay {
			t.Errorf("waited %v, want %v", waited, closeDelay)
		}
		if got, want := stderr.String(),
			"fairshare: journal /var/log/fairshare.log: refusals that could not be written: 5\n"; got != want {
			t.Errorf("logged %q, want %q", got, want)
		}
		close(disk.free)
	})
}

// A disk that does not answer delays a reload for two seconds. Entries that it did not
// accept are written to the new journal.
func TestReplaceGivesUpOnAStuckDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stderr recorder
		j := open(t, Options{}, &stderr)
		disk := &stuck{make(chan struct{})}
		s := *j.settings.Load()
		s.File, s.out, s.sink = "/var/log/fairshare.log", newOutlet(disk), &fileSink{}
		go s.out.run()
		j.settings.Store(&s)
		for range 5 {
			j.Add(&example)
		}
		start := time.Now()
		if err := j.Replace(Options{Load: noLoad}); err != nil {
			t.Error(err)
		}
		if waited := time.Since(start); waited != closeDelay {
			t.Errorf("waited %v, want %v", waited, closeDelay)
		}
		time.Sleep(2 * time.Second)
		j.Close()
		if lines := parse(t, stderr.String()); len(lines) != 2 || lines[0].Lost != 1 || lines[1].Repeated != 4 {
			t.Error(stderr.String())
		}
		close(disk.free)
	})
}

func TestCloseDuringAddCountsAll(t *testing.T) {
	var out recorder
	j := open(t, Options{}, &out)
	const adders, each = 4, 5000
	begun := make(chan struct{}, adders)
	var wg sync.WaitGroup
	for i := range adders {
		wg.Go(func() {
			for k := range each {
				j.Add(now(func(e *Entry) { e.Client = v4(k << i) }))
				if k == each/2 {
					begun <- struct{}{}
				}
			}
		})
	}
	<-begun
	j.Close()
	wg.Wait()
	if written, lost := total(parse(t, out.String())), j.lost.Load(); written+lost != adders*each || written == 0 {
		t.Errorf("%d written and %d lost of %d", written, lost, adders*each)
	}
}
