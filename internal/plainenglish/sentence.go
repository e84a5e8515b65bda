package main

import (
	"regexp"
	"strings"
	"unicode"
)

// A blockKind says which rules hold for a block.
type blockKind int

const (
	prose   blockKind = iota // paragraphs, list items, table cells, comments
	heading                  // no sentence: its words are not counted
	literal                  // a string in Go: texts, but also formats and keys
)

// A block is a run of text in which sentences may go over lines.
type block struct {
	kind  blockKind
	lines []textLine
}

type textLine struct {
	number int // from 1
	text   string
}

// A sentence is the text between two full stops, on one line.
type sentence struct {
	line int // of its first word
	text string
}

var (
	// sentenceEnd is the end of a sentence, and the first letter of the next.
	sentenceEnd = regexp.MustCompile("[.?!…][)\"'”’*_`]*\\s+[(\"'“‘*_`\\[]*[\\p{Lu}\\p{Nd}`/$-]")

	// abbreviation ends with a full stop that does not end a sentence.
	abbreviation = regexp.MustCompile(`(?:^|[\s(])(?:e\.g|i\.e|etc|vs|cf|approx|No|Nr|resp|[A-Z])\.$`)

	image      = regexp.MustCompile(`!\[[^\]]*\]\([^)]*\)`)
	link       = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	address    = regexp.MustCompile(`<?https?://\S+`)
	whitespace = regexp.MustCompile(`\s+`)
)

// sentences splits a block at full stops.
func (b block) sentences() []sentence {
	var joined strings.Builder
	starts := make([]int, len(b.lines)) // where each line starts in joined
	for i, line := range b.lines {
		starts[i] = joined.Len()
		joined.WriteString(strings.TrimSpace(line.text))
		joined.WriteByte(' ')
	}
	text := joined.String()
	// A full stop in code does not end a sentence.
	masked := inlineCode.ReplaceAllStringFunc(text, func(code string) string {
		return "`" + strings.Repeat("x", len(code)-2) + "`"
	})

	var all []sentence
	add := func(from, to int) {
		line := 0
		for i, start := range starts {
			if start <= from {
				line = b.lines[i].number
			}
		}
		if one := strings.TrimSpace(whitespace.ReplaceAllString(text[from:to], " ")); one != "" {
			all = append(all, sentence{line, one})
		}
	}
	from, at := 0, 0
	for {
		end := sentenceEnd.FindStringIndex(masked[at:])
		if end == nil {
			break
		}
		stop := at + end[0] + 1
		space := stop + strings.IndexFunc(text[stop:], unicode.IsSpace)
		at = space
		if abbreviation.MatchString(masked[from:stop]) {
			continue
		}
		add(from, space)
		from = space + 1
	}
	if from < len(text) {
		add(from, len(text))
	}
	return all
}

// countWords counts the words of a sentence in Markdown. A piece of code, a
// link's address and punctuation on its own do not make it longer: code, also a
// list of it, counts as one word, the others as none.
func countWords(text string) int {
	text = codeList.ReplaceAllString(codeAsWord(text), "CODE")
	text = image.ReplaceAllString(text, "")
	text = link.ReplaceAllString(text, "$1")
	text = address.ReplaceAllString(text, "URL")
	words := 0
	for word := range strings.FieldsSeq(text) {
		if strings.IndexFunc(word, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) >= 0 {
			words++
		}
	}
	return words
}

var inlineCode = regexp.MustCompile("``.+?``|`[^`]*`")

// codeList is a list of inline code after codeAsWord.
var codeList = regexp.MustCompile(`CODE(?:(?:,| and| or|, and|, or) CODE)+`)

// codeAsWord replaces inline code with one word.
func codeAsWord(text string) string { return inlineCode.ReplaceAllString(text, "CODE") }
