package bots

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"os"
	"sync"
	"testing"
)

// A labelled is a user agent of a known kind. testdata/LICENCES.md lists the sources.
type labelled struct {
	UA  string
	Bot bool
}

var allLabelled = sync.OnceValues(func() ([]labelled, error) {
	f, err := os.Open("testdata/labelled.jsonl.gz")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	var all []labelled
	lines := bufio.NewScanner(z)
	for lines.Scan() {
		var l labelled
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return nil, err
		}
		all = append(all, l)
	}
	return all, lines.Err()
})

func readLabelled(tb testing.TB) []labelled {
	tb.Helper()
	all, err := allLabelled()
	if err != nil {
		tb.Fatal(err)
	}
	if len(all) < 10_000 {
		tb.Fatalf("only %d labelled user agents", len(all))
	}
	return all
}

// At least 99.5 % of the bots are found, and at most 0.1 % of the user agents of people
// are recognized as bots.
func TestAccuracyOnLabelledUserAgents(t *testing.T) {
	table := BuiltIn()
	var bots, found, people, mistaken int
	for _, l := range readLabelled(t) {
		b, token := table.Recognise(l.UA)
		switch {
		case l.Bot:
			bots++
			if b != nil {
				found++
			} else {
				t.Logf("missed: %q", l.UA)
			}
		default:
			people++
			if b != nil {
				mistaken++
				t.Logf("mistaken for %s by %q: %q", b.Name, token, l.UA)
			}
		}
	}
	t.Logf("%d of %d bots found (%.2f %%), %d of %d people recognized as bots (%.3f %%)", found, bots,
		100*float64(found)/float64(bots), mistaken, people, 100*float64(mistaken)/float64(people))
	if found*1000 < bots*995 {
		t.Errorf("%d of %d bots found, want 99.5 %%", found, bots)
	}
	if mistaken*1000 > people {
		t.Errorf("%d of %d people recognized as bots, want at most 0.1 %%", mistaken, people)
	}
}

// Bots that are in no list are found by general signs and missing signs of people. Without
// all names, at least 95 % are found, and at most 0.1 % of people are recognized as bots.
func TestGeneralSignsAlone(t *testing.T) {
	file, err := readTable(builtIn)
	if err != nil {
		t.Fatal(err)
	}
	for i := range file.Bots {
		if !file.Bots[i].General {
			file.Bots[i].Patterns = nil
		}
	}
	table, err := file.compile()
	if err != nil {
		t.Fatal(err)
	}
	var bots, found, people, mistaken int
	for _, l := range readLabelled(t) {
		b, _ := table.Recognise(l.UA)
		switch {
		case l.Bot:
			bots++
			if b != nil {
				found++
			}
		default:
			people++
			if b != nil {
				mistaken++
			}
		}
	}
	t.Logf("%d of %d bots found, %d of %d people recognized as bots", found, bots, mistaken, people)
	if found*100 < bots*95 {
		t.Errorf("%d of %d bots found, want 95 %%", found, bots)
	}
	if mistaken*1000 > people {
		t.Errorf("%d of %d people recognized as bots, want at most 0.1 %%", mistaken, people)
	}
}
