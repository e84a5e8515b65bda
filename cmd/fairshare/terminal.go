package main

import (
	"io"
	"os"
)

// terminal returns the width in columns of the terminal that w is, and
// whether it shows colours; 0 when w is no terminal.
func terminal(w io.Writer) (width int, colour bool) {
	f, ok := w.(*os.File)
	if !ok {
		return 0, false
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return 0, false
	}
	width = columns(f)
	if width <= 0 {
		return 0, false // /dev/null, for one
	}
	return width, os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}
