package otlp

import "encoding/hex"

// A Context names a span, as the header traceparent of W3C Trace Context does.
type Context struct {
	Trace   [16]byte
	Span    [8]byte
	Sampled bool // the span is recorded
}

// Positions in a traceparent of version 00: version-trace-span-flags.
const (
	traceAt, spanAt, flagsAt = 3, 36, 53
	contextLength            = 55
)

// ParseContext reads a traceparent (W3C Trace Context, section 3.2). ok is false for one that has to be
// ignored: later versions may be longer, the version ff and ids of zeros are invalid.
func ParseContext(s string) (c Context, ok bool) {
	if len(s) < contextLength || s[traceAt-1] != '-' || s[spanAt-1] != '-' || s[flagsAt-1] != '-' {
		return Context{}, false
	}
	var version, flags [1]byte
	if !readHex(version[:], s[:2]) || !readHex(c.Trace[:], s[traceAt:spanAt-1]) ||
		!readHex(c.Span[:], s[spanAt:flagsAt-1]) || !readHex(flags[:], s[flagsAt:contextLength]) {
		return Context{}, false
	}
	longer := len(s) > contextLength
	if version[0] == 0xff || longer && (version[0] == 0 || s[contextLength] != '-') ||
		c.Trace == [16]byte{} || c.Span == [8]byte{} {
		return Context{}, false
	}
	c.Sampled = flags[0]&1 != 0
	return c, true
}

// readHex decodes s, which has only digits and lower-case letters and exactly fills b.
func readHex(b []byte, s string) bool {
	for i := range len(s) {
		if 'A' <= s[i] && s[i] <= 'F' {
			return false
		}
	}
	_, err := hex.Decode(b, []byte(s))
	return err == nil
}

// String returns the traceparent, of version 00.
func (c Context) String() string {
	b := make([]byte, 0, contextLength)
	b = hex.AppendEncode(append(b, "00-"...), c.Trace[:])
	b = hex.AppendEncode(append(b, '-'), c.Span[:])
	if c.Sampled {
		return string(append(b, "-01"...))
	}
	return string(append(b, "-00"...))
}
