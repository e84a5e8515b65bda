package accesslog

import "bytes"

// A parser reads one kind of line. It has no state, because workers share it.
type parser interface {
	// parse fills e, which is zero, from line, which is neither blank nor a comment. It returns the
	// reason for skipping the line, or "". Unescaped texts are stored in w.
	parse(line []byte, e *Entry, w *worker) string
}

// A worker is the state of parsing. It is used by one goroutine.
type worker struct {
	parser parser
	clock  clock
	layout *layout // latest #Fields, for logs that have them
	shape  shape   // of the last line
	arena  []byte  // unescaped text of the current block
	metric string  // Options.Metric

	name [maxName]byte // of the current JSON member

	cloudfront bool // the last line was CloudFront's
}

// run parses the lines of b.
func (w *worker) run(b *block) {
	w.arena, w.layout = b.arena[:0], b.layout
	batch := &b.batch
	if cap(batch.Entries) < b.lines {
		batch.Entries = make([]Entry, 0, b.lines+b.lines/8)
	}
	text, line := b.text, b.first
	for len(text) > 0 {
		cur := text
		if i := bytes.IndexByte(text, '\n'); i >= 0 {
			cur, text = text[:i], text[i+1:]
		} else {
			text = nil
		}
		w.line(trim(cur), line, batch)
		line++
	}
	b.arena, w.arena = w.arena, nil
}

// line parses one line into batch.
func (w *worker) line(text []byte, number int64, batch *Batch) {
	if len(text) == 0 {
		return
	}
	if text[0] == '#' {
		w.layout = w.layout.directive(text)
		return
	}
	if len(text) > maxLine {
		batch.skip(number, reasonLong, text)
		return
	}
	n := len(batch.Entries)
	if n < cap(batch.Entries) {
		batch.Entries = batch.Entries[:n+1]
		batch.Entries[n] = Entry{}
	} else {
		batch.Entries = append(batch.Entries, Entry{})
	}
	e := &batch.Entries[n]
	text = w.unwrapped(text)
	if reason := w.parser.parse(text, e, w); reason != "" {
		batch.Entries = batch.Entries[:n]
		if reason == passOver {
			return
		}
		batch.skip(number, reason, text)
		return
	}
	e.Line = number
}

// unwrapped returns the output of a container's program from a line of the container engine's log
// file:
//
//	{"log":"192.0.2.7 - - …\n","stream":"stdout","time":"…"}
func (w *worker) unwrapped(text []byte) []byte {
	const start = `{"log":"`
	if len(text) < len(start) || string(text[:len(start)]) != start || !bytes.Contains(text, []byte(`,"stream":"std`)) {
		return text
	}
	inner := text[len(start)-1:]
	n := stringLen(inner)
	if n == 0 {
		return text
	}
	begin := len(w.arena)
	w.jsonText(inner[:n])
	if len(w.arena) == begin { // no escapes
		inner = inner[1 : n-1]
	} else {
		inner = w.arena[begin:]
	}
	if inner = trim(bytes.TrimRight(inner, "\r\n")); len(inner) == 0 {
		return text
	}
	return inner
}

// trim removes white space at the end and a byte order mark at the start; a blank line becomes
// empty.
func trim(line []byte) []byte {
	for len(line) > 0 && (line[len(line)-1] == '\r' || line[len(line)-1] == ' ') {
		line = line[:len(line)-1]
	}
	if len(line) >= 3 && line[0] == 0xEF && line[1] == 0xBB && line[2] == 0xBF {
		line = line[3:]
	}
	if len(line) > 0 && (line[0] == ' ' || line[0] == '\t') && len(bytes.TrimLeft(line, " \t\r")) == 0 {
		return nil
	}
	return line
}
