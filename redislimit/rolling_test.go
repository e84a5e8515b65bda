package redislimit_test

import (
	_ "embed"
	"encoding/binary"
	"math"
	"testing"
	"time"

	"fairshare"
	"fairshare/redislimit"
	"fairshare/redislimit/redistest"
)

// swapBefore replaced states in the version before. Its members may run next to those of this version.
//
//go:embed testdata/swap-before.lua
var swapBefore string

// A value is what a key has, as both versions read it.
type value struct {
	ends    string
	records [][]byte // 37 bytes each
}

func valueOf(t *testing.T, server *redistest.Server, key string) (v value) {
	t.Helper()
	text := server.Do("GET", key)
	if len(text) < 4 || len(text)%37 != 4 {
		t.Fatalf("the value has %d bytes", len(text))
	}
	v.ends = text[:4]
	for text = text[4:]; text != ""; text = text[37:] {
		v.records = append(v.records, []byte(text[:37]))
	}
	return v
}

// replaceBefore has a member of the version before charge the records from one on, by µs of gcra or by the count of a
// window. It reports whether nobody had written since v was read.
func (v *value) replaceBefore(t *testing.T, server *redistest.Server, key string, from int, token string,
	charge func(figures *[3]float64)) bool {
	t.Helper()
	expected := append([]byte{1, byte(len(v.records) - from)}, 0, 0, 0, 0)
	text := []byte(v.ends)
	for i := from; i < len(v.records); i++ {
		record := v.records[i]
		expected = binary.LittleEndian.AppendUint16(expected, uint16(5+37*i))
		expected = append(expected, record[:12]...)
		var figures [3]float64
		if _, err := binary.Decode(record[13:], binary.LittleEndian, &figures); err != nil {
			t.Fatal(err)
		}
		charge(&figures)
		record = append(append(record[:6:6], token...), 0)
		for _, f := range figures {
			record = binary.LittleEndian.AppendUint64(record, math.Float64bits(f))
		}
		text = append(text, record...)
		v.records[i] = record
	}
	got := server.Do("EVAL", swapBefore, "1", key, string(expected), string(text))
	if got != "\x00" && got != "\x01" {
		t.Fatalf("the script answers %q", got)
	}
	return got == "\x01"
}

// While the members of a group are updated one by one, both versions count together.
func TestMembersOfTheVersionBeforeCountTogether(t *testing.T) {
	for name, tt := range map[string]struct {
		algorithm fairshare.Algorithm
		charge    func(figures *[3]float64) // 20
	}{
		"window": {fairshare.Window, func(f *[3]float64) { f[2] += 20 }},
		"gcra":   {fairshare.GCRA, func(f *[3]float64) { f[0] += 20 * float64(time.Hour/time.Microsecond) / 100 }},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			both := []fairshare.Limit{
				{Name: "both", Resource: fairshare.Requests, N: 1000, Window: time.Hour, Algorithm: tt.algorithm},
				{Name: "hundred", Resource: fairshare.Requests, N: 100, Window: time.Hour, Algorithm: tt.algorithm},
			}
			l := open(t, connect(t, server.URL()), both, redislimit.AlwaysAsk(redislimit.Options{}))
			passed := 0
			take := func(times int) {
				t.Helper()
				for range times {
					key := []byte("k")
					takes := []fairshare.Take{{Limit: 0, Key: key, Cost: 1}, {Limit: 1, Key: key, Cost: 1}}
					tallies := make([]fairshare.Tally, 2)
					if err := l.Take(t.Context(), now, takes, tallies); err != nil {
						t.Fatal(err)
					}
					if !tallies[0].Over && !tallies[1].Over {
						passed++
					}
				}
			}
			take(10)
			if swapped, stale := redislimit.Swaps(l); swapped != 10 || stale != 0 {
				t.Fatalf("%d of 10 states were replaced, and %d were not", swapped, stale)
			}
			key := limitKeys(server)[0]
			v := valueOf(t, server, key)
			if !v.replaceBefore(t, server, key, 0, "before", tt.charge) { // 30 by now
				t.Error("the version before does not know the state of this one")
			}
			take(10) // 40
			if v.replaceBefore(t, server, key, 0, "before", tt.charge) {
				t.Error("the version before has undone what this one counted")
			}
			v = valueOf(t, server, key)
			if !v.replaceBefore(t, server, key, 1, "befor2", tt.charge) { // 60, only the second limit
				t.Error("the version before cannot replace a part of the value")
			}
			take(60)
			if passed != 60 {
				t.Errorf("%d of 100 were admitted where the version before had admitted 40", passed)
			}
			if _, stale := redislimit.Swaps(l); stale < 2 || stale > 4 {
				t.Errorf("%d times the version before had written, want 2", stale)
			}
			if ttl := server.Do("TTL", key); ttl == "-1" {
				t.Error("the key does not end")
			}
		})
	}
}

// A value that somebody else has written is put back as it was, and counts.
func TestOthersValueIsPutBack(t *testing.T) {
	server := redistest.Start(t)
	l := open(t, connect(t, server.URL()), hundred, redislimit.AlwaysAsk(redislimit.Options{}))
	passed, _ := admit(t, l, "k", 30)
	key := limitKeys(server)[0]
	for name, change := range map[string]func(){
		"changed": func() {
			v := valueOf(t, server, key)
			if !v.replaceBefore(t, server, key, 0, "before", func(f *[3]float64) { f[2] += 5 }) {
				t.Error("the state was not replaced")
			}
			passed += 5
		},
		"with another record": func() {
			value := server.Do("GET", key)
			server.Do("SET", key, value+"field2token2\x00"+string(make([]byte, 24)), "KEEPTTL")
		},
		"of another type": func() {
			server.Do("DEL", key)
			server.Do("HSET", key, "a", "b")
		},
		"deleted": func() { server.Do("DEL", key) },
	} {
		change()
		n, _ := admit(t, l, "k", 10)
		if passed += n; n != 10 {
			t.Errorf("%s: %d of 10 were admitted", name, n)
		}
		value := server.Do("GET", key)
		if len(value)%37 != 4 || server.Do("TTL", key) == "-1" {
			t.Errorf("%s: a value of %d bytes that ends in %s s", name, len(value), server.Do("TTL", key))
		}
	}
	n, _ := admit(t, l, "k", 100)
	if passed += n; passed != 100 {
		t.Errorf("%d of 100 were admitted", passed)
	}
}
