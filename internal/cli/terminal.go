package cli

import (
	"io"
	"os"
)

// Terminal returns the width of the terminal that w is, in columns, and
// whether the terminal may be given colors. The width is 0 if w is not a
// terminal.
func Terminal(w io.Writer) (width int, color bool) {
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
		return 0, false // a device that is not a terminal, such as /dev/null
	}
	return width, os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}
