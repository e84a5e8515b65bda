package operator

import (
	"bufio"
	"strings"
	"unicode/utf8"

	"fairshare/internal/cli"
	"fairshare/internal/prose"
)

// A table writes rows as aligned columns. A long table is written in pieces:
// columns become wider from one piece to the next, never narrower.
type table struct {
	o      *operation
	fit    bool // lines are cut to the width of the terminal
	n      int  // rows without the head
	head   []string
	widths []int
	rows   [][]string // not yet written
}

// tablePiece is how many rows are collected before they are written.
const tablePiece = 1000

// newTable returns a table. A column whose head begins with ">" is aligned to
// the right.
func (o *operation) newTable(head ...string) *table {
	return &table{o: o, head: head, widths: make([]int, len(head))}
}

// row adds a row, with a cell for each column. The error is that of flush.
func (t *table) row(cells ...string) error {
	t.rows = append(t.rows, cells)
	t.n++
	if len(t.rows) < tablePiece {
		return nil
	}
	return t.flush()
}

// flush writes the collected rows.
func (t *table) flush() error {
	if t.o.Context.Err() != nil {
		return cli.ErrReported
	}
	width, color := cli.Terminal(t.o.Stdout)
	if !t.fit {
		width = 0
	}
	first := t.n == len(t.rows)
	if first {
		heads := make([]string, len(t.head))
		for i, head := range t.head {
			heads[i] = strings.TrimPrefix(head, ">")
		}
		t.rows = append([][]string{heads}, t.rows...)
	}
	for _, row := range t.rows {
		for i, cell := range row {
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(cell))
		}
	}
	out := bufio.NewWriter(t.o.Stdout) // keeps its first error
	for i, row := range t.rows {
		line := t.line(row)
		if width > 0 {
			line = prose.Cut(line, width)
		}
		if i == 0 && first && color {
			line = "\x1b[1m" + line + "\x1b[0m"
		}
		out.WriteString(line)
		out.WriteByte('\n')
	}
	t.rows = t.rows[:0]
	return out.Flush()
}

func (t *table) line(row []string) string {
	var b strings.Builder
	for i, cell := range row {
		if i > 0 {
			b.WriteString("  ")
		}
		pad := strings.Repeat(" ", t.widths[i]-utf8.RuneCountInString(cell))
		if strings.HasPrefix(t.head[i], ">") {
			b.WriteString(pad + cell)
		} else {
			b.WriteString(cell + pad)
		}
	}
	return strings.TrimRight(b.String(), " ")
}
