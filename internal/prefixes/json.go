package prefixes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"fairshare/internal/network"
)

const maxDepth = 32 // most levels of nested objects and arrays

// json reads the formats in which operators publish their ranges, and also several values in a row
// (NDJSON):
//
//	{"prefixes": [{"ipv4Prefix": "…"}, {"ipv6Prefix": "…"}]}     Google, Bing, OpenAI, Apple, …
//	{"prefixes": [{"ip_prefix": "…"}], "ipv6_prefixes": […]}     AWS
//	{"result": {"ipv4_cidrs": ["…"], "ipv6_cidrs": ["…"]}}       Cloudflare
//	{"addresses": ["…"], "ipv6_addresses": ["…"]}                Fastly
//	{"hooks": ["…"], "web": ["…"], "ssh_keys": ["ssh-rsa …"]}    GitHub
//	{"cidr": "…", "sblid": "…"}                                  Spamhaus, a line each
//	["…", "…"]                                                   many
//
// A text that looks like an address counts if it is in an array or has a key that names an address.
// With a key that names a prefix, it must be a prefix or empty. Everything else is ignored, because
// operators add and remove keys.
func (l *list) json(data []byte) error {
	data = withoutControls(data)
	lines := lineCounter{data: data, line: 1}
	if json.Valid(data) { // for one value this takes half the time
		return l.value(data, 0, &lines)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	for {
		var value json.RawMessage
		if err := d.Decode(&value); err == io.EOF {
			return nil
		} else if err != nil {
			return jsonError(err, &lines)
		}
		if err := l.value(value, int(d.InputOffset())-len(value), &lines); err != nil {
			return err
		}
	}
}

// value reads one well-formed value at an offset.
func (l *list) value(value []byte, offset int, lines *lineCounter) error {
	type frame struct {
		object bool
		names  byte // meaning of its strings; in an object, of the present key
	}
	open := []frame{{names: namesItem}}
	wantKey := false
	for at := 0; at < len(value); at++ {
		top := &open[len(open)-1]
		switch value[at] {
		case '{', '[':
			if len(open) > maxDepth {
				return fmt.Errorf("JSON nested deeper than %d", maxDepth)
			}
			inner := frame{object: value[at] == '{', names: namesItem}
			if !inner.object && top.names == namesPrefix {
				inner.names = namesPrefix
			}
			wantKey = inner.object
			open = append(open, inner)
		case '}', ']':
			open = open[:len(open)-1]
			wantKey = false
		case ',':
			wantKey = top.object
		case '"':
			text, end := jsonString(value, at)
			at = end
			if wantKey {
				top.names, wantKey = naming(text), false
				continue
			}
			if text = strings.TrimSpace(text); text == "" || top.names == namesNothing {
				continue
			}
			if p, err := network.Parse(text); err == nil {
				if err := l.add(lines.at(offset+at), p); err != nil {
					return err
				}
			} else if top.names == namesPrefix || looksLikePrefix(text) {
				l.fault(lines.at(offset+at), "%s is neither an address nor a prefix", quote(text))
			}
		}
	}
	return nil
}

// jsonString reads the string that begins at an offset, and returns the offset of its closing
// quote.
func jsonString(value []byte, at int) (text string, end int) {
	escaped := false
	for end = at + 1; value[end] != '"'; end++ {
		if value[end] == '\\' {
			escaped = true
			end++
		}
	}
	if escaped {
		_ = json.Unmarshal(value[at:end+1], &text) // well formed
		return text, end
	}
	return string(value[at+1 : end]), end
}

const (
	namesNothing = iota
	namesItem    // an item of an array, or the key of an address: counts if it is an address
	namesPrefix  // must be one
)

var joined = strings.NewReplacer("_", "", "-", "")

// naming returns the meaning of a key: ipv4Prefix, ip_prefix, cidr, ipAddress, ….
func naming(key string) byte {
	if len(key) > 32 {
		return namesNothing
	}
	key = strings.ToLower(joined.Replace(key))
	switch key {
	case "prefix", "ipprefix", "ipv4prefix", "ipv6prefix", "cidr", "ipcidr", "ipv4cidr", "ipv6cidr":
		return namesPrefix
	case "ip", "ipv4", "ipv6", "ipaddress", "ipv4address", "ipv6address", "address", "addr", "network", "net",
		"subnet", "range", "iprange":
		return namesItem
	}
	return namesNothing
}

// looksLikePrefix reports whether a text can only be an address, not a version, a time or a
// fingerprint.
func looksLikePrefix(s string) bool {
	if len(s) > 49 || strings.Trim(s, "0123456789abcdefABCDEF.:/") != "" {
		return false
	}
	addr, _, slash := strings.Cut(s, "/")
	return slash && (strings.Count(addr, ".") == 3 || strings.Count(addr, ":") >= 2) ||
		strings.Count(addr, ".") == 3 && !strings.Contains(addr, ":")
}

// withoutControls removes byte order marks and control bytes, which some operators publish although
// JSON forbids them.
func withoutControls(data []byte) []byte {
	data = bytes.ReplaceAll(data, []byte("\xef\xbb\xbf"), nil)
	stray := func(c byte) bool { return c < ' ' && c != '\n' && c != '\r' && c != '\t' || c == 0x7f }
	for i, c := range data {
		if !stray(c) {
			continue
		}
		cleaned := append(make([]byte, 0, len(data)), data[:i]...)
		for _, c := range data[i:] {
			if !stray(c) {
				cleaned = append(cleaned, c)
			}
		}
		return cleaned
	}
	return data
}

func jsonError(err error, lines *lineCounter) error {
	text, at := "incomplete JSON", len(lines.data)
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		text, at = "JSON: "+syntax.Error(), int(syntax.Offset)
	}
	return &ParseError{Faults: []Fault{{lines.at(at), text}}}
}

// A lineCounter returns the line of an offset; offsets must not decrease.
type lineCounter struct {
	data []byte
	done int
	line int
}

func (c *lineCounter) at(offset int) int {
	end := max(c.done, min(offset, len(c.data)))
	c.line += bytes.Count(c.data[c.done:end], []byte("\n"))
	c.done = end
	return c.line
}
