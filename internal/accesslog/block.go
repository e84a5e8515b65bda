package accesslog

import (
	"bytes"
	"errors"
	"io"
)

const (
	blockSize = 32 << 10 // bytes of text parsed at once
	maxLine   = 1 << 20  // longer lines are skipped
	maxSample = 200      // most bytes stored of a skipped line
	mostLines = 1 << 13  // of a block: entries need far more memory than short lines
)

// A block is some whole lines and their entries.
type block struct {
	buf    []byte        // memory for text
	text   []byte        // the lines, in buf
	first  int64         // number of the first line
	lines  int           // of text, at most
	layout *layout       // #Fields in force at the first line
	arena  []byte        // unescaped texts
	done   chan struct{} // receives one value when batch is complete
	batch  Batch
}

// A cutter splits a text into blocks at line ends.
type cutter struct {
	src    io.Reader
	size   int    // of a block
	line   int64  // number of the next line
	carry  []byte // text that was read and is in no block yet
	memory []byte // of carry
	err    error  // error of src; carry may still have lines

	directives bool    // the format has #Fields lines
	layout     *layout // in force at the next line
}

// next fills b. At the end it returns false and sets err.
func (c *cutter) next(b *block) bool {
	b.batch.Entries, b.batch.Skipped, b.arena = b.batch.Entries[:0], b.batch.Skipped[:0], reuse(b.arena, 1<<20)
	if cap(b.buf) < c.size || cap(b.buf) > 2*c.size && len(c.carry) < c.size {
		b.buf = make([]byte, c.size)
	}
	b.first, b.lines, b.layout = c.line, 0, c.layout
	if size, n := firstLines(c.carry); n == mostLines {
		b.buf = append(b.buf[:0], c.carry[:size]...)
		b.text, c.carry = b.buf, c.carry[size:]
		b.lines = n + 1 // the last one may have no end
		c.advance(b.text, n)
		return true
	}
	buf := append(b.buf[:0], c.carry...)
	c.carry = nil
	limit := max(c.size, cap(buf))
	for {
		buf = c.fill(buf, limit)
		end := bytes.LastIndexByte(buf, '\n') + 1
		switch {
		case c.err != nil:
			end = len(buf)
		case end > 0:
		case limit <= maxLine:
			limit *= 2 // one line fills the whole block
			continue
		default:
			b.buf, b.text = buf, nil
			c.skipLong(b, buf)
			c.line++
			return true
		}
		n := bytes.Count(buf[:end], []byte{'\n'})
		if n >= mostLines {
			end, n = firstLines(buf)
		}
		c.hold(buf[end:])
		b.buf, b.text = buf, buf[:end]
		if end == 0 {
			return false // the source has ended
		}
		b.lines = n + 1 // the last one may have no end
		c.advance(b.text, n)
		return true
	}
}

// firstLines returns the size and the number of the first mostLines lines of a text, or of all that end in it.
func firstLines(text []byte) (size, n int) {
	for n < mostLines {
		i := bytes.IndexByte(text[size:], '\n')
		if i < 0 {
			break
		}
		size += i + 1
		n++
	}
	return size, n
}

// hold copies text that is for later blocks.
func (c *cutter) hold(text []byte) {
	c.memory = append(c.memory[:0], text...)
	c.carry = c.memory
}

// advance goes on behind a text with n ends of lines.
func (c *cutter) advance(text []byte, n int) {
	c.line += int64(n)
	c.follow(text)
}

// reuse empties s, and frees its memory if it has grown beyond most.
func reuse[T any](s []T, most int) []T {
	if cap(s) > most {
		return nil
	}
	return s[:0]
}

// fill reads until buf has limit bytes or the source ends.
func (c *cutter) fill(buf []byte, limit int) []byte {
	if cap(buf) < limit {
		grown := make([]byte, len(buf), limit)
		copy(grown, buf)
		buf = grown
	}
	for idle := 0; len(buf) < limit && c.err == nil; {
		n, err := c.src.Read(buf[len(buf):limit])
		buf = buf[:len(buf)+n]
		c.err = err
		if n > 0 {
			idle = 0
		} else if idle++; idle > 100 && err == nil {
			c.err = io.ErrNoProgress
		}
	}
	return buf
}

// skipLong discards the rest of a line that begins with buf.
func (c *cutter) skipLong(b *block, buf []byte) {
	sample := bytes.Clone(buf[:maxSample])
	for {
		buf = c.fill(buf[:0], c.size)
		if i := bytes.IndexByte(buf, '\n'); i >= 0 {
			c.hold(buf[i+1:])
			break
		}
		if c.err != nil {
			break
		}
	}
	b.batch.Skipped = append(b.batch.Skipped, Skip{Line: b.first, Reason: reasonLong, Sample: str(sample)})
}

// follow tracks #Fields lines, which apply to all later lines, also in later blocks.
func (c *cutter) follow(text []byte) {
	if !c.directives {
		return
	}
	for len(text) > 0 {
		if line := trim(firstLine(text)); len(line) > 0 && line[0] == '#' {
			c.layout = c.layout.directive(line)
		}
		i := bytes.Index(text, []byte("\n#"))
		if j := bytes.Index(text, []byte("\n\xEF\xBB\xBF#")); j >= 0 && (i < 0 || j < i) {
			i = j
		}
		if i < 0 {
			return
		}
		text = text[i+1:]
	}
}

func firstLine(text []byte) []byte {
	if i := bytes.IndexByte(text, '\n'); i >= 0 {
		return text[:i]
	}
	return text
}

// ended reports whether err is the normal end of a source.
func ended(err error) bool { return errors.Is(err, io.EOF) }
