package redislimit

import (
	"math"
	"testing"

	"fairshare/memlimit"
)

func TestReplyIsParsed(t *testing.T) {
	b := append([]byte{1 | 2 | 8}, appendFloats(nil, 5, 6, 7, 8)...)
	b = append(append(b, "token!\x05\x01\x00\x00\x00\x6b\x02"...), 4, 9)
	var r reply
	s := &spec{w: 1000}
	rest, err := r.parse(b, s)
	if err != nil || !r.differs || r.written || r.stored != (memlimit.State{Num: 5, Prev: 6, Cur: 7}) ||
		r.others != 8 || string(r.token[:]) != "token!" || r.offset != 261 || r.ends != 0x6b<<24 || r.records != 2 {
		t.Errorf("got %+v, %v", r, err)
	}
	if rest, err = r.parse(rest, s); err != nil || r.differs || !r.written || len(rest) != 1 {
		t.Errorf("got %+v, %v, and %d bytes are left", r, err, len(rest))
	}
	for n := range 46 {
		if _, err := r.parse(b[:n], s); err == nil {
			t.Errorf("a reply of %d of 46 bytes is accepted", n)
		}
	}
}

func FuzzReply(f *testing.F) {
	f.Add(append([]byte{3}, appendFloats(nil, 1, 2, 3, 4, math.NaN())...))
	f.Add([]byte{4, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		for len(b) > 0 {
			var r reply
			rest, err := r.parse(b, &spec{kind: kind(len(b) % 3)})
			if err != nil {
				return
			}
			if len(rest) >= len(b) {
				t.Fatal("nothing was read")
			}
			b = rest
		}
	})
}

func FuzzMember(f *testing.F) {
	f.Add("id", `1800000000 1700000000 "name" "policy"`)
	f.Add("", "")
	f.Fuzz(func(_ *testing.T, id, text string) { _ = parseMember(id, text) })
}
