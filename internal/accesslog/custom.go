package accesslog

import "bytes"

// A customParser reads lines in the format of a server's format string: values with literal text
// between them.
type customParser struct {
	head   []byte  // literal text before the first value
	values []value // at least one
	needed int     // number of values that a line must have
	coding coding
}

// A value is one variable of a format string.
type value struct {
	namedFact
	field
	stop        []byte // literal text after it; empty for the last
	quoted      bool   // it is in quotes
	split       byte   // instead of stop, for two adjacent variables: first byte of the second
	spaces      int    // number of spaces in it, if stop begins with a space
	requestLine bool   // it is a request line without quotes
	list        bool   // it may be a list with ", " or " : "
	joined      bool   // a part of the time; more parts follow
	asTime      bool   // a time, or its last part
	literal     string // text in the format, for messages
}

func (p *customParser) parse(line []byte, e *Entry, w *worker) string {
	if !bytes.HasPrefix(line, p.head) {
		return reasonShape
	}
	var r record
	rest := line[len(p.head):]
	timeAt := -1
	cookies := len(w.arena)
	for i := range p.values {
		v := &p.values[i]
		end, next := v.end(rest)
		if end < 0 {
			// The line is truncated. Its rest is this value, unless a verdict needs this value.
			cutHere := i == p.needed-1 && !v.quoted && len(rest) > 0 && cutShort(rest, v.stop) // right after the value
			if i < p.needed && !cutHere {
				if cutShort(rest, v.stop) {
					return reasonCut
				}
				return reasonShape
			}
			end, next = len(rest), len(rest)
		}
		text := rest[:end]
		at := len(line) - len(rest)
		rest = rest[next:]
		switch {
		case v.joined:
			if timeAt < 0 {
				timeAt = at
			}
		case v.asTime:
			if timeAt >= 0 {
				text, timeAt = line[timeAt:at+end], -1
			}
			r.put(factTime, v.rank, text)
		case v.cookie != "":
			w.addCookie(cookies, v.cookie, text)
			e.Has |= HasCookie
		case v.fact != noFact:
			if r.put(v.fact, v.rank, text) && v.fact == factDuration {
				r.unit = v.unit
			}
		}
		if len(rest) == 0 && i+1 < len(p.values) && i+1 >= p.needed {
			break
		}
	}
	e.Cookie = str(w.arena[cookies:])
	return r.fill(e, w, p.coding)
}

// addCookie appends one logged cookie to the cookies in the arena from start on.
func (w *worker) addCookie(start int, name string, text []byte) {
	if isAbsent(text) {
		return
	}
	if len(w.arena) > start {
		w.arena = append(w.arena, "; "...)
	}
	w.arena = append(w.arena, name...)
	w.arena = append(w.arena, '=')
	w.arena = append(w.arena, text...)
}

// cutShort reports whether rest contains no stop because the line is truncated.
func cutShort(rest, stop []byte) bool { return len(stop) > 0 && bytes.IndexByte(rest, stop[0]) < 0 }

// end returns where the value at the start of b ends and where the next begins; -1 if the required
// text after it is missing.
func (v *value) end(b []byte) (end, next int) {
	if v.split != 0 {
		end = bytes.IndexByte(b, v.split)
		return end, end
	}
	if len(v.stop) == 0 {
		return len(b), len(b)
	}
	from := 0
	switch {
	case v.quoted:
		return v.quotedEnd(b)
	case v.requestLine:
		if i := bytes.Index(b, []byte(" HTTP/")); i >= 0 {
			from = i + 1
		}
	case v.spaces > 0:
		for range v.spaces {
			i := bytes.IndexByte(b[from:], ' ')
			if i < 0 {
				break
			}
			from += i + 1
		}
	}
	for {
		i := bytes.Index(b[from:], v.stop)
		if i < 0 && from > 0 && !v.list {
			from = 0 // it does not have the expected spaces
			continue
		}
		if i < 0 {
			// At the end of a line the next space may be trimmed.
			if trimmed := bytes.TrimRight(v.stop, " "); len(trimmed) < len(v.stop) && len(b) > len(trimmed) &&
				bytes.HasSuffix(b, trimmed) {
				return len(b) - len(trimmed), len(b)
			}
			return -1, -1
		}
		end = from + i
		if v.list && inList(b, end) {
			from = end + 1
			continue
		}
		return end, end + len(v.stop)
	}
}

// inList reports whether the space at b[i] is one inside a list: "a, b" or
// "a : b".
func inList(b []byte, i int) bool {
	return b[i] == ' ' && (i > 0 && (b[i-1] == ',' || b[i-1] == ':') || i+1 < len(b) && b[i+1] == ':')
}

// quotedEnd finds the closing quote of a value, which the right text must follow.
func (v *value) quotedEnd(b []byte) (end, next int) {
	first := -1
	for i := 0; i < len(b); i++ {
		j := bytes.IndexByte(b[i:], '"')
		if j < 0 {
			break
		}
		i += j
		if !bytes.HasPrefix(b[i:], v.stop) && len(bytes.TrimRight(v.stop, " ")) != len(b)-i {
			continue
		}
		if !escapedAt(b, i) {
			return i, min(i+len(v.stop), len(b))
		}
		if first < 0 {
			first = i
		}
	}
	if first < 0 {
		return -1, -1
	}
	return first, min(first+len(v.stop), len(b))
}
