package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"fairshare/clientaddr"
)

// The page for operators lists what --behind knows, and what it sets.
func TestServePageListsWhatMayStandInFront(t *testing.T) {
	page, err := os.ReadFile("../../docs/serve.md")
	if err != nil {
		t.Fatal(err)
	}
	own := ""
	for _, name := range clientaddr.BehindNames() {
		preset, err := clientaddr.Behind(name)
		if err != nil {
			t.Fatal(err)
		}
		trusted := strings.Join(preset.Config.TrustedProxies, ", ")
		switch {
		case own == "":
			own = trusted
		case trusted == own:
			trusted = "the same"
		}
		for line := range strings.Lines(string(page)) {
			cells := strings.Split(line, " | ")
			if strings.HasPrefix(line, "| `"+name+"`") && len(cells) == 4 && cells[1] == trusted && cells[2] == fmt.Sprintf("`%s`", preset.Config.Header) {
				trusted = ""
			}
		}
		if trusted != "" {
			t.Errorf("docs/serve.md has no row for %s, %s, %s", name, trusted, preset.Config.Header)
		}
	}
}
