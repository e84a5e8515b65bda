package watch

import (
	"bytes"
	"errors"
	"io"
	"time"

	"fairshare/internal/accesslog"
)

// A pipe is standard input. Nothing is stored about it: each line comes once.
type pipe struct {
	stream  *accesslog.Stream
	blocks  chan []byte // closed at the end
	ready   chan struct{}
	partial []byte
	lines   []accesslog.Entry
	ended   bool
	skipped skips
	err     error // of reading; valid after ended
}

// openPipe begins to read. The goroutine that reads ends with the pipe: a read of it cannot
// be stopped.
func openPipe(r io.Reader, opts accesslog.Options) (*pipe, error) {
	stream, err := accesslog.NewStream(opts)
	if err != nil {
		return nil, err
	}
	p := &pipe{stream: stream, blocks: make(chan []byte, 4), ready: make(chan struct{}, 1)}
	go func() {
		defer close(p.ready)
		defer close(p.blocks)
		for {
			block := make([]byte, blockSize)
			n, err := r.Read(block)
			if n > 0 {
				p.blocks <- block[:n]
				select {
				case p.ready <- struct{}{}:
				default:
				}
			}
			if err != nil {
				if !errors.Is(err, io.EOF) {
					p.err = err
				}
				return
			}
		}
	}()
	return p, nil
}

// fill implements source.
func (p *pipe) fill(time.Time, bool) error {
	for len(p.lines) == 0 && !p.ended {
		select {
		case block, more := <-p.blocks:
			if !more {
				p.ended = true
				p.parse(p.partial)
				p.partial = nil
				return p.err
			}
			p.add(block)
		default:
			return nil
		}
	}
	return nil
}

// add parses the whole lines of the text so far.
func (p *pipe) add(block []byte) {
	end := bytes.LastIndexByte(block, '\n') + 1
	if end == 0 {
		if p.partial = append(p.partial, block...); len(p.partial) > 2*maxLine {
			p.partial = p.partial[:2*maxLine] // it is skipped
		}
		return
	}
	text := append(p.partial, block[:end]...)
	p.partial = bytes.Clone(block[end:])
	p.parse(text)
}

func (p *pipe) parse(text []byte) {
	if len(text) > 0 {
		p.lines = p.skipped.parse(p.stream, text, 0)
	}
}

func (p *pipe) pending() ([]accesslog.Entry, bool) { return p.lines, len(p.blocks) > 0 }

func (p *pipe) take(n int) { p.lines = p.lines[n:] }
