package accesslog

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// A source is the decompressed text of a file.
type source struct {
	name   string
	file   *os.File
	text   io.Reader
	zstd   *zstd.Decoder // nil if not zstd
	packed bool
	size   int64        // of the file, 0 if unknown
	read   atomic.Int64 // bytes of the file
	inRead atomic.Bool  // a read is going on
	closed atomic.Bool  // no more reads
}

// openSource opens a file, or standard input for "-", and decompresses it if its first bytes show a
// known compression.
func openSource(path string) (*source, error) {
	s := &source{name: path, file: os.Stdin}
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		s.file = file
	}
	if info, err := s.file.Stat(); err == nil {
		if info.IsDir() {
			s.Close()
			return nil, &os.PathError{Op: "read", Path: path, Err: errDirectory}
		}
		if info.Mode().IsRegular() {
			s.size = info.Size()
		}
	}
	if err := s.unpack(countingReader{s}); err != nil {
		s.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

var errDirectory = errors.New("is a directory")

// unpack checks the first bytes of r.
func (s *source) unpack(r io.Reader) error {
	head := make([]byte, 4)
	n, err := io.ReadFull(r, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	head = head[:n]
	all := io.MultiReader(bytes.NewReader(head), r)
	switch {
	case bytes.HasPrefix(head, []byte{0x1F, 0x8B}):
		s.packed = true
		s.text = &lazyGzip{src: bufio.NewReaderSize(all, 64<<10)}
	case bytes.Equal(head, []byte{0x28, 0xB5, 0x2F, 0xFD}):
		s.packed = true
		s.zstd, err = zstd.NewReader(all, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(128<<20))
		if err != nil {
			return err
		}
		s.text = s.zstd
	default:
		s.text = all
	}
	return nil
}

// Read reads decompressed text.
func (s *source) Read(b []byte) (int, error) { return s.text.Read(b) }

// Close closes the file; a read that waits for a pipe ends.
func (s *source) Close() error {
	s.closed.Store(true)
	if s.file == os.Stdin {
		return nil
	}
	return s.file.Close()
}

// stuck reports, after Close, whether a read of standard input is in progress, which cannot be
// stopped.
func (s *source) stuck() bool { return s.file == os.Stdin && s.inRead.Load() }

// free frees the memory of the decompressor when there are no more reads.
func (s *source) free() {
	if s.zstd != nil {
		s.zstd.Close()
	}
}

// damaged reports whether err means truncated or invalid compressed data, as opposed to a file that
// cannot be read.
func (s *source) damaged(err error) bool {
	if !s.packed || err == nil || ended(err) {
		return false
	}
	var pathErr *os.PathError
	if errors.As(err, &pathErr) || errors.Is(err, os.ErrClosed) {
		return false
	}
	var corrupt flate.CorruptInputError
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) ||
		errors.As(err, &corrupt) || s.zstd != nil
}

type countingReader struct{ s *source }

func (r countingReader) Read(b []byte) (int, error) {
	r.s.inRead.Store(true) // before reading closed: see stuck
	defer r.s.inRead.Store(false)
	if r.s.closed.Load() {
		return 0, os.ErrClosed
	}
	n, err := r.s.file.Read(b)
	r.s.read.Add(int64(n))
	return n, err
}

// A lazyGzip reads its header in the first Read, so that a truncated header is treated as a
// truncated file.
type lazyGzip struct {
	src *bufio.Reader
	gz  *gzip.Reader
}

func (z *lazyGzip) Read(b []byte) (int, error) {
	if z.gz == nil {
		gz, err := gzip.NewReader(z.src)
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return 0, err
		}
		z.gz = gz
	}
	return z.gz.Read(b)
}
