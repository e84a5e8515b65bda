package journal

import (
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestSumLines(t *testing.T) {
	first, latest := example.Time.UnixMilli(), example.Time.Add(30*time.Second).UnixMilli()
	sl := slot{client: example.Client, rule: "a b", action: "refuse", ban: BanInForce, dryRun: true, n: 41,
		firstMs: first, latestMs: latest, id: "0123456789", pathLen: 2}
	copy(sl.path[:], "/\x1b")
	of := sum{rule: "a b", action: "block", n: 5120, firstMs: first, latestMs: latest}
	c := cell{sum: of, network: netip.MustParsePrefix("203.0.113.0/24"), members: [4]uint64{1: 7}}
	six := cell{sum: of, network: netip.MustParsePrefix("2001:db8::/48"),
		members: [4]uint64{^uint64(0), ^uint64(0), 0, 0}}
	none := cell{sum: of, members: [4]uint64{1}}
	for _, test := range []struct {
		line       func(l layout) []byte
		json, text string
	}{
		{
			func(l layout) []byte { return l.repeated(nil, new(stamps), &sl) },
			`{"time":"2026-11-20T12:00:30.123Z","since":"2026-11-20T12:00:00.123Z","client":"2001:db8::1","path":"/\u001b","rule":"a b","action":"refuse","dry_run":true,"ban":"in force","repeated":41,"id":"0123456789"}`,
			`2026-11-20T12:00:30.123Z since=2026-11-20T12:00:00.123Z client=2001:db8::1 path="/\u001b" rule="a b" action=refuse dry_run=true ban="in force" repeated=41 id=0123456789`,
		},
		{
			func(l layout) []byte { return l.summed(nil, new(stamps), &of, &c) },
			`{"time":"2026-11-20T12:00:30.123Z","since":"2026-11-20T12:00:00.123Z","network":"203.0.113.0/24","rule":"a b","action":"block","dry_run":false,"summed":5120,"clients":3}`,
			`2026-11-20T12:00:30.123Z since=2026-11-20T12:00:00.123Z network=203.0.113.0/24 rule="a b" action=block dry_run=false summed=5120 clients=3`,
		},
		{ // half of 256 bits: 256·ln 2 clients
			func(l layout) []byte { return l.summed(nil, new(stamps), &of, &six) },
			`{"time":"2026-11-20T12:00:30.123Z","since":"2026-11-20T12:00:00.123Z","network":"2001:db8::/48","rule":"a b","action":"block","dry_run":false,"summed":5120,"clients":177}`,
			`2026-11-20T12:00:30.123Z since=2026-11-20T12:00:00.123Z network=2001:db8::/48 rule="a b" action=block dry_run=false summed=5120 clients=177`,
		},
		{ // clients without an address
			func(l layout) []byte { return l.summed(nil, new(stamps), &of, &none) },
			`{"time":"2026-11-20T12:00:30.123Z","since":"2026-11-20T12:00:00.123Z","network":"","rule":"a b","action":"block","dry_run":false,"summed":5120,"clients":1}`,
			`2026-11-20T12:00:30.123Z since=2026-11-20T12:00:00.123Z network="" rule="a b" action=block dry_run=false summed=5120 clients=1`,
		},
		{
			func(l layout) []byte { return l.summed(nil, new(stamps), &of, nil) },
			`{"time":"2026-11-20T12:00:30.123Z","since":"2026-11-20T12:00:00.123Z","rule":"a b","action":"block","dry_run":false,"summed":5120}`,
			`2026-11-20T12:00:30.123Z since=2026-11-20T12:00:00.123Z rule="a b" action=block dry_run=false summed=5120`,
		},
		{ // of the rules beyond the bound
			func(l layout) []byte {
				return l.summed(nil, new(stamps), &sum{n: 1, firstMs: first, latestMs: latest}, nil)
			},
			`{"time":"2026-11-20T12:00:30.123Z","since":"2026-11-20T12:00:00.123Z","summed":1}`,
			`2026-11-20T12:00:30.123Z since=2026-11-20T12:00:00.123Z summed=1`,
		},
		{
			func(l layout) []byte { return l.lost(nil, new(stamps), example.Time, 7) },
			`{"time":"2026-11-20T12:00:00.123Z","lost":7,"why":"they could not be written in time"}`,
			`2026-11-20T12:00:00.123Z lost=7 why="they could not be written in time"`,
		},
	} {
		if got := string(test.line(layout{})); got != test.json+"\n" {
			t.Errorf("got  %swant %s", got, test.json)
		}
		if got := string(test.line(layout{text: true})); got != test.text+"\n" {
			t.Errorf("got  %swant %s", got, test.text)
		}
	}
}

func TestPathOfARepeatIsCutBetweenCharacters(t *testing.T) {
	for before := range 8 {
		for _, c := range []string{"x", "é", "漢", "🧀"} {
			path := strings.Repeat("/", before) + strings.Repeat(c, 70)
			s := shard{entries: new(entries)}
			p := tableKey{client: 1}
			s.begin(0, &p, &example)
			s.repeat(&p, &Entry{Path: path})
			got := s.slots[0].lastPath()
			bare, cut := strings.CutSuffix(got, "…")
			if !cut || !utf8.ValidString(got) || !strings.HasPrefix(path, bare) || len(bare) > pathRoom ||
				len(bare) <= pathRoom-utf8.UTFMax {
				t.Errorf("%s becomes %q", path, got)
			}
		}
	}
}

// Only the rules with the largest sums are named, but all entries are counted.
func TestSumsByRuleAreBounded(t *testing.T) {
	var sums []sum
	total := int64(0)
	for i := range 200 {
		n := int64(i%100 + 1)
		sums = append(sums, sum{rule: string(rune('a' + i%100)), action: "refuse", n: n})
		total += n
	}
	got := byRule(sums)
	if len(got) != reportedRules {
		t.Fatalf("%d sums, want %d", len(got), reportedRules)
	}
	for i, s := range got {
		if total -= s.n; i < reportedRules-1 && (s.n != int64(2*(100-i)) || s.rule == "") ||
			i == reportedRules-1 && (s.rule != "" || s.action != "") {
			t.Errorf("%+v", s)
		}
	}
	if total != 0 {
		t.Errorf("%d entries are missing", total)
	}
}

// When a network takes the cell of a smaller one, the entries of that one are counted by
// rule.
func TestSmallestNetworkIsReplaced(t *testing.T) {
	s := shard{entries: new(entries)}
	for i := range uint64(setSize + 1) {
		for range i + 2 {
			s.sum(&tableKey{network: i<<32 | 1, v4: true, valid: true, lo: i << 8}, &example)
		}
	}
	cells, others := s.take(nil, nil)
	if len(cells) != setSize || len(others) != 1 || others[0].n != 2 || others[0].rule != example.Rule {
		t.Errorf("%d cells, others %+v", len(cells), others)
	}
	for _, c := range cells {
		if c.network.Addr() == v4(0) {
			t.Errorf("%+v is still there", c)
		}
	}
	if cells, others = s.take(nil, nil); len(cells)+len(others) != 0 {
		t.Errorf("%+v %+v are taken twice", cells, others)
	}
}
