package accesslog

import (
	"bytes"
	"time"
)

// A Stream reads the lines of a log that grows. Make one with [NewStream] for each
// file. It is not safe for concurrent use.
//
// The format is found out from the first text with a line of a known format. If a
// later text has no line of this format, its own format is looked for: a server whose
// configuration was changed may log another one.
type Stream struct {
	opts   Options
	named  bool // Options.Format says which format it is
	format format
	found  facts
	worker worker
	batch  Batch
}

// NewStream returns a Stream. The error about a format that opts names is a
// [*FormatError].
func NewStream(opts Options) (*Stream, error) {
	s := &Stream{opts: opts, named: opts.Format != ""}
	if s.named {
		f, err := parseFormat(opts.Format)
		if err != nil {
			return nil, err
		}
		s.use(f)
	}
	return s, nil
}

func (s *Stream) use(f format) {
	s.format = f
	layout := s.worker.layout
	s.worker = worker{parser: f.parser, clock: clock{zone: s.opts.Zone}, layout: layout, metric: s.opts.Metric}
}

// Format returns the name of the format, as [File.Format] does; "" if it is not known yet.
func (s *Stream) Format() string { return s.format.name }

// Resolution returns the unit of the log's times so far; 0 if no line was read.
func (s *Stream) Resolution() time.Duration { return s.found.resolution }

// Has returns the facts that the lines so far have.
func (s *Stream) Has() Fields { return s.found.has }

// Zoned reports whether the times have a known zone, as [File.Zoned] does.
func (s *Stream) Zoned() bool { return !s.found.zoneless }

// Learn looks at lines at the beginning of the file that are not to be read: they may
// name the fields of later ones, and they show the format.
func (s *Stream) Learn(text []byte) {
	if !s.named {
		s.detect(text)
	}
	for _, line := range ends(text) {
		if line = trim(line); len(line) > 0 && line[0] == '#' {
			s.worker.layout = s.worker.layout.directive(line)
		}
	}
}

// Parse reads whole lines. Line of an entry is base plus the offset of the end of the line
// in text. The result is valid until the next call; texts share memory with text.
func (s *Stream) Parse(text []byte, base int64) *Batch {
	before := s.worker.layout
	b := s.parse(text, base)
	if len(b.Entries) > 0 || len(b.Skipped) == 0 || s.named || s.format.parser == nil {
		return b
	}
	s.worker.layout = before
	if s.detect(text) {
		return s.parse(text, base)
	}
	return b
}

func (s *Stream) parse(text []byte, base int64) *Batch {
	b, w := &s.batch, &s.worker
	b.Entries, b.Skipped = b.Entries[:0], b.Skipped[:0]
	w.arena = nil // entries of the last call may still be in use
	if s.format.parser == nil && !s.detect(text) {
		for end, line := range ends(text) {
			if line = trim(line); len(line) > 0 && line[0] != '#' {
				b.skip(base+int64(end), reasonShape, line)
			}
		}
		return b
	}
	for end, line := range ends(text) {
		n := len(b.Entries)
		w.line(trim(line), base+int64(end), b)
		if len(b.Entries) > n {
			e := &b.Entries[n]
			s.found.has |= e.Has
			s.found.resolution = finer(s.found.resolution, e.Time)
		}
	}
	s.found.zoneless = w.clock.zoneless
	return b
}

// detect looks for the format of some lines, and uses it. It reports whether one was
// found that reads a line.
func (s *Stream) detect(text []byte) bool {
	var lines [][]byte
	for _, line := range ends(text) {
		if line = trim(line); len(line) > 0 {
			lines = append(lines, line)
		}
		if len(lines) == lookAtLines {
			break
		}
	}
	var best score
	for _, family := range families {
		found := scoreLines(family.parser, lines, s.worker.layout, s.opts.Zone)
		if found.read > 0 && found.better(best) {
			best = found
			f, _ := parseFormat(found.name(family.names))
			s.use(f)
		}
	}
	return best.read > 0
}

// ends iterates over the lines of text, with the offset of the end of each.
func ends(text []byte) func(func(int, []byte) bool) {
	return func(yield func(int, []byte) bool) {
		for at := 0; at < len(text); {
			line, end := text[at:], len(text)
			if i := bytes.IndexByte(line, '\n'); i >= 0 {
				line, end = line[:i], at+i+1
			}
			if !yield(end, line) {
				return
			}
			at = end
		}
	}
}
