package journal

import (
	"unicode"
	"unicode/utf8"
)

const maxText = 512 // bytes of one text of a client

// plainByte holds the bytes that stand for themselves.
var plainByte = func() (plain [256]bool) {
	for c := 0x20; c < 0x7F; c++ {
		plain[c] = c != '"' && c != '\\'
	}
	return plain
}()

// appendText appends s as a JSON string that is safe to show in a terminal: it
// escapes control, format and direction characters. Bytes that are not UTF-8 become
// U+FFFD, and a text over 512 bytes is cut and ends with "…".
func appendText(b []byte, s string) []byte {
	if len(s) <= maxText {
		return appendWhole(b, s)
	}
	b = appendWhole(b, s[:wholeTo(s, maxText)])
	return append(b[:len(b)-1], "…\""...)
}

// appendWhole is appendText for a text of any length.
func appendWhole(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := 0; i < len(s); {
		plain := i
		for i < len(s) && plainByte[s[i]] {
			i++
		}
		if b = append(b, s[plain:i]...); i == len(s) {
			break
		}
		if c := s[i]; c < utf8.RuneSelf {
			i++
			if c == '"' || c == '\\' {
				b = append(b, '\\', c)
			} else {
				b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
			}
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		i += n
		switch {
		case unicode.IsGraphic(r) && !unicode.Is(unicode.Zs, r):
			b = utf8.AppendRune(b, r)
		case r > 0xFFFF: // a surrogate pair
			r -= 0x10000
			for _, u := range [...]rune{0xD800 + r>>10, 0xDC00 + r&0x3FF} {
				b = append(b, '\\', 'u', hex[u>>12&15], hex[u>>8&15], hex[u>>4&15], hex[u&15])
			}
		default:
			b = append(b, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
		}
	}
	return append(b, '"')
}

// wholeTo returns where s, longer than end, is cut so that no character is
// halved.
func wholeTo(s string, end int) int {
	for i := end; i > end-utf8.UTFMax && i >= 0; i-- {
		if utf8.RuneStart(s[i]) {
			return i
		}
	}
	return end // it is not UTF-8
}

// isBare tells whether s needs no quotes as a value in a line of text.
func isBare(s string) bool {
	if s == "" || len(s) > maxText {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !plainByte[c] || c == ' ' || c == '=' {
			return false
		}
	}
	return true
}
