// Package asn finds the owner of an address: the autonomous system (AS) that
// announces it, with its number, name and type.
//
// Start with [Open], which reads a table of addresses and keeps it up to date,
// or with [Load], which reads it once. Set Options.Owner of package httpguard
// to the method Owner. The package reads databases in MMDB form (GeoLite2-ASN,
// DB-IP, IPinfo) and tables in CSV form, also compressed with gzip. A whole
// table for IPv4 and IPv6 takes about 20 MiB of memory.
package asn

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"fairshare"
)

// Hosting is the type of owners that rent out servers.
const Hosting = "hosting"

// MaxSize bounds a file, in unpacked bytes.
const MaxSize = 512 << 20

// Files are the files of one table.
type Files struct {
	// Tables are databases in MMDB form or tables in CSV form, one or several: one
	// for IPv4 and one for IPv6, for example.
	Tables []string

	// Hosting is a file with numbers of autonomous systems: one in a line, or in the
	// first column of CSV. Their type is "hosting" where Tables give none. "" means
	// that there is no such file.
	Hosting string
}

func (f *Files) all() []string {
	if f.Hosting == "" {
		return f.Tables
	}
	return append(f.Tables[:len(f.Tables):len(f.Tables)], f.Hosting)
}

// A FileError is an error in one file.
type FileError struct {
	File string // as in Files
	Err  error
}

func (e *FileError) Error() string { return fmt.Sprintf("file %s: %v", e.File, e.Err) }

func (e *FileError) Unwrap() error { return e.Err }

var (
	errNothing  = errors.New("it contains no address with the number of an autonomous system")
	errNoOwners = errors.New("it is not a table of autonomous systems")

	errSize = fmt.Errorf("it is larger than %d MiB", MaxSize>>20)
)

// Load reads the files of a table. The error is a [*FileError], unless
// files.Tables is empty.
func Load(files Files) (*Table, error) {
	var hosting map[uint32]bool
	if files.Hosting != "" {
		err := read(files.Hosting, func(r *bufio.Reader) (err error) {
			hosting, err = readNumbers(r)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	b := newBuilder(hosting)
	for _, name := range files.Tables {
		before := len(b.v4) + len(b.v6)
		err := read(name, b.read)
		if err == nil && len(b.v4)+len(b.v6) == before {
			err = &FileError{name, errNothing}
		}
		if err != nil {
			return nil, err
		}
	}
	return b.table()
}

// mmdbMarker begins the metadata near the end of an MMDB file.
const mmdbMarker = "\xAB\xCD\xEFMaxMind.com"

// read reads a file, unpacked, of at most MaxSize bytes.
func read(name string, parse func(*bufio.Reader) error) error {
	f, err := os.Open(name)
	if err != nil {
		return &FileError{name, bare(err)}
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is not a regular file") // reading a pipe could block
	}
	if err != nil {
		return &FileError{name, bare(err)}
	}
	packed := bufio.NewReader(f)
	var unpacked io.Reader = packed
	if magic, _ := packed.Peek(2); string(magic) == "\x1F\x8B" {
		if unpacked, err = gzip.NewReader(packed); err != nil {
			return &FileError{name, err}
		}
	}
	if err := parse(bufio.NewReaderSize(&bounded{unpacked, MaxSize}, 1<<16)); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("it is truncated")
		}
		return &FileError{name, err}
	}
	return nil
}

// A bounded reader fails after that many bytes.
type bounded struct {
	io.Reader
	remaining int
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if b.remaining -= n; b.remaining < 0 {
		return 0, errSize
	}
	return n, err
}

// bare removes the path, because messages already name it.
func bare(err error) error {
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		return path.Err
	}
	return err
}

// read reads a table in either form. Text has no zero bytes; MMDB has some near
// its beginning.
func (b *builder) read(r *bufio.Reader) error {
	begin, err := r.Peek(4096)
	if err != nil && err != io.EOF {
		return err
	}
	if bytes.IndexByte(begin, 0) < 0 && !bytes.Contains(begin, []byte(mmdbMarker)) {
		return b.readCSV(r)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	return b.readMMDB(data)
}

// readNumbers reads numbers, one at the beginning of each line. A first line
// may be a header.
func readNumbers(r *bufio.Reader) (map[uint32]bool, error) {
	numbers := map[uint32]bool{}
	lines := bufio.NewScanner(r)
	header := true
	for line := 1; lines.Scan(); line++ {
		text := strings.TrimPrefix(lines.Text(), "\uFEFF")
		first := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(", \t;\"#", r) })
		if strings.TrimSpace(text) == "" || len(first) == 0 || strings.HasPrefix(strings.TrimSpace(text), "#") {
			continue
		}
		number, ok := fairshare.ASNumber(first[0])
		switch {
		case ok:
			numbers[number] = true
		case !header:
			return nil, fmt.Errorf("line %d: %s is not the number of an autonomous system, such as AS13335", line,
				quote(first[0]))
		}
		header = false
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(numbers) == 0 {
		return nil, errors.New("it contains no number of an autonomous system, such as AS13335")
	}
	return numbers, nil
}

// quote shows a text short and without control characters.
func quote(s string) string {
	if len(s) > 60 {
		s = strings.ToValidUTF8(s[:57], "") + "..."
	}
	return strconv.Quote(s)
}
