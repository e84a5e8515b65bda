package journal

import "io"

// New is Open without options.
func New(stderr io.Writer) *Journal {
	j, err := Open(Options{}, stderr)
	if err != nil {
		panic(err) // there is no file to open
	}
	return j
}
