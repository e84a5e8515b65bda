package replay

import (
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"fairshare"
)

// A verdictWriter writes one tab-separated line for each judged request: the physical
// line number, time, client, action, rule, Retry-After in seconds, and file. Then come the bot, its
// state, the number of the owner of the address, and the fleet. At the end are the method, the path
// without query, the status, bytes and seconds.
type verdictWriter struct {
	w    io.Writer
	buf  []byte
	opts *Options

	last   int64 // line whose text is in digits
	digits []byte
	second int64 // whose text is in stamp
	stamp  []byte
	addr   netip.Addr // whose text is in client
	client []byte
}

// flushAt is how many bytes are written at once.
const flushAt = 256 << 10

func newVerdictWriter(w io.Writer, opts *Options) *verdictWriter {
	return &verdictWriter{w: w, opts: opts, buf: make([]byte, 0, flushAt+64<<10)}
}

func (w *verdictWriter) header() error {
	w.buf = append(w.buf,
		"line\ttime\tclient\taction\trule\tretry_after\tfile\tbot\tbot_state\tasn\tfleet\tmethod\tpath\tstatus\tbytes\tseconds\n"...)
	return nil
}

func (w *verdictWriter) write(items []item, file string) error {
	if strings.ContainsFunc(file, func(r rune) bool { return r < 0x20 || r == 0x7F }) {
		quoted := strconv.Quote(file)
		file = quoted[1 : len(quoted)-1]
	}
	for i := range items {
		w.line(&items[i], file)
		if len(w.buf) >= flushAt {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *verdictWriter) line(it *item, file string) {
	b := append(w.buf, w.number(it.entry.Line)...)
	b = append(b, '\t')
	b = w.appendTime(b, it.req.Time)
	b = append(b, '\t')
	if addr := it.clientOf(); addr != w.addr {
		w.addr, w.client = addr, addr.AppendTo(w.client[:0])
	}
	b = append(b, w.client...)
	b = append(b, '\t')
	f := &it.enforced
	switch f.action {
	case fairshare.Allow:
		b = append(b, "allow\t\t\t"...)
	case fairshare.Refuse:
		b = append(b, "refuse\t"...)
		b = append(b, w.opts.nameOf(f.rule)...)
		b = append(b, '\t')
		b = strconv.AppendInt(b, retryAfter(f.wait), 10)
		b = append(b, '\t')
	case fairshare.Block:
		b = append(b, "block\t"...)
		b = append(b, w.opts.nameOf(f.rule)...)
		b = append(b, "\t\t"...)
	default:
		b = append(b, "undecided\t\t\t"...)
	}
	b = append(b, file...)
	b = append(b, '\t')
	if bot := &it.req.Bot; bot.Name != "" {
		b = append(b, bot.Name...)
		b = append(b, '\t')
		b = append(b, bot.State.String()...)
	} else {
		b = append(b, '\t')
	}
	b = append(b, '\t')
	if it.req.Owner.ASN != 0 {
		b = strconv.AppendUint(b, uint64(it.req.Owner.ASN), 10)
	}
	b = append(b, '\t')
	b = append(b, it.req.Fleet...)
	b = append(b, '\t')
	b = appendPlain(b, it.req.Method)
	b = append(b, '\t')
	b = appendPlain(b, it.req.Path)
	b = append(b, '\t')
	b = strconv.AppendInt(b, int64(it.entry.Status), 10)
	b = append(b, '\t')
	b = strconv.AppendInt(b, it.entry.Bytes, 10)
	b = append(b, '\t')
	if d := took(it.entry); d != 0 {
		b = strconv.AppendFloat(b, d.Seconds(), 'f', -1, 64)
	} else {
		b = append(b, '0')
	}
	w.buf = append(b, '\n')
}

// appendPlain appends text that a client sent, at most 256 bytes of it. Controls become \x09 and
// the like, so that a field stays a field.
func appendPlain(b []byte, text string) []byte {
	const hex = "0123456789abcdef"
	text = text[:min(len(text), mostPath)]
	if !hasControls(text) {
		return append(b, text...)
	}
	for i := range len(text) {
		if c := text[i]; c < 0x20 || c == 0x7F {
			b = append(b, '\\', 'x', hex[c>>4], hex[c&15])
		} else {
			b = append(b, c)
		}
	}
	return b
}

// hasControls reports whether a text has a byte below 0x20 or one that is 0x7F. It looks at eight bytes at a time
// (Hacker's Delight §6-1).
func hasControls(text string) bool {
	const each, high = 0x0101010101010101, 0x8080808080808080
	for ; len(text) >= 8; text = text[8:] {
		x := uint64(text[0]) | uint64(text[1])<<8 | uint64(text[2])<<16 | uint64(text[3])<<24 |
			uint64(text[4])<<32 | uint64(text[5])<<40 | uint64(text[6])<<48 | uint64(text[7])<<56
		del := x ^ 0x7F*each
		if ((x-0x20*each)&^x|(del-each)&^del)&high != 0 {
			return true
		}
	}
	for i := range len(text) {
		if c := text[i]; c < 0x20 || c == 0x7F {
			return true
		}
	}
	return false
}

// number returns the text of a line number, which is usually the next one.
func (w *verdictWriter) number(n int64) []byte {
	if last := len(w.digits) - 1; n == w.last+1 && last >= 0 && w.digits[last] != '9' {
		w.digits[last]++
	} else {
		w.digits = strconv.AppendInt(w.digits[:0], n, 10)
	}
	w.last = n
	return w.digits
}

// appendTime appends a time in RFC 3339, with the necessary digits after the second.
func (w *verdictWriter) appendTime(b []byte, t time.Time) []byte {
	if t.Nanosecond() != 0 {
		return t.UTC().AppendFormat(b, time.RFC3339Nano)
	}
	if sec := t.Unix(); sec != w.second || len(w.stamp) == 0 {
		w.second = sec
		w.stamp = t.UTC().AppendFormat(w.stamp[:0], time.RFC3339)
	}
	return append(b, w.stamp...)
}

// retryAfter is a wait in whole seconds, rounded up, at least one.
func retryAfter(wait time.Duration) int64 {
	return max(int64(wait/time.Second)+min(int64(wait%time.Second), 1), 1)
}

func (w *verdictWriter) flush() error {
	_, err := w.w.Write(w.buf)
	w.buf = w.buf[:0]
	if err != nil {
		return fmt.Errorf("writing verdicts: %w", err)
	}
	return nil
}
