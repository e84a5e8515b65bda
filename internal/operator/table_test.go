package operator

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	"fairshare/internal/cli"
)

// A long table is written in pieces. The columns of a piece are at least as
// wide as those of the piece before.
func TestLongTableIsWrittenInPieces(t *testing.T) {
	var out bytes.Buffer
	table := (&operation{Environment: &cli.Environment{Context: t.Context(), Stdout: &out}}).newTable("name", ">n")
	for i := range 2*tablePiece + 1 {
		if err := table.row(strings.Repeat("x", 1+i/tablePiece), strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := table.flush(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	if len(lines) != 2*tablePiece+3 || lines[0] != "name    n" || lines[1] != "x       0" ||
		lines[tablePiece] != "x     999" || lines[2*tablePiece+1] != "xxx   2000" {
		t.Errorf("%d lines, %q, %q, %q, %q", len(lines), lines[0], lines[1], lines[tablePiece], lines[2*tablePiece+1])
	}
}
