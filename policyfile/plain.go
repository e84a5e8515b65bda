package policyfile

import (
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"
)

// tokenize splits YAML into tokens. Inside { } the YAML library takes every colon
// as the end of a key. By YAML 1.2 §7.3.3 a colon without a space after it is part
// of the text, as in {addr: [2001:db8::/32], by: [cookie:sid]}. tokenize joins the
// tokens of such texts again.
func tokenize(text string) token.Tokens {
	tokens := lexer.Tokenize(text)
	lines := strings.Split(text, "\n")
	out := make(token.Tokens, 0, len(tokens))
	var row []rune // the current line
	flow, line := 0, 0
	for i := 0; i < len(tokens); i++ {
		t := tokens[i]
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			flow++
		case token.SequenceEndType, token.MappingEndType:
			flow--
		}
		at := t.Position
		if flow <= 0 || t.Type != token.MappingValueType || at.Line > len(lines) {
			out = append(out, t)
			continue
		}
		if at.Line != line {
			line, row = at.Line, []rune(lines[at.Line-1])
		}
		if at.Column < 1 || at.Column >= len(row) || row[at.Column-1] != ':' || endsKey(row, at.Column-1) {
			out = append(out, t)
			continue
		}
		begin := at.Column - 1
		if n := len(out); n > 0 && out[n-1].Position.Line == at.Line && begin > 0 {
			last := out[n-1]
			if strings.ContainsRune(`"']}`, row[begin-1]) && !plain(last) {
				out = append(out, t) // after these no space is needed
				continue
			}
			if plain(last) && last.Position.Column-1+utf8.RuneCountInString(last.Value) == begin {
				begin, out = last.Position.Column-1, out[:n-1]
			}
		}
		end := begin
		for end < len(row) && !endsPlain(row, end) {
			end++
		}
		value := strings.TrimRight(string(row[begin:end]), " \t\r")
		pos := *at
		pos.Column = begin + 1
		out = append(out, token.String(value, value, &pos))
		for i+1 < len(tokens) && tokens[i+1].Position.Line == at.Line && tokens[i+1].Position.Column-1 < end {
			i++
		}
	}
	for i, t := range out {
		t.Prev, t.Next = nil, nil
		if i > 0 {
			t.Prev, out[i-1].Next = out[i-1], t
		}
	}
	return out
}

// plain reports whether t is a text without quotes.
func plain(t *token.Token) bool { return t.CharacterType == token.CharacterTypeMiscellaneous }

// endsKey reports whether the colon at i ends a key.
func endsKey(row []rune, i int) bool {
	return i+1 >= len(row) || strings.ContainsRune(" \t\r,[]{}", row[i+1])
}

// endsPlain reports whether a text without quotes ends before i.
func endsPlain(row []rune, i int) bool {
	switch row[i] {
	case ',', '[', ']', '{', '}':
		return true
	case ':':
		return endsKey(row, i)
	case '#':
		return i > 0 && (row[i-1] == ' ' || row[i-1] == '\t')
	}
	return false
}
