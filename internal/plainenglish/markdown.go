package main

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	fence       = regexp.MustCompile("^ {0,3}(```+|~~~+)")
	headingLine = regexp.MustCompile(`^ {0,3}#{1,6} `)
	listItem    = regexp.MustCompile(`^( *)(?:[-*+]|\d+[.)]) +`)
	tableRule   = regexp.MustCompile(`^[\s|:-]+$`)
	onlyLinks   = regexp.MustCompile(`^\s*(?:[-*+] +)?!?\[[^\]]*\](?:\([^)]*\)|: \S+)[.,;:)]*$`)
)

// markdownBlocks returns the texts of a page. Code blocks and HTML comments are
// left out; each cell of a table and each item of a list is a block of its own.
// It reports lines that are too long.
func markdownBlocks(page string, report func(line int, rule rule, detail, text string)) []block {
	var blocks []block
	var open block
	flush := func() {
		if len(open.lines) > 0 {
			blocks = append(blocks, open)
		}
		open = block{}
	}
	closing := ""   // what ends the code block or comment that is open
	indent := 0     // of the text of the list item that is open
	blank := true   // the line before is blank, so that indented code may start
	inList := false // a list is open
	number := 0
	for line := range strings.Lines(page) {
		number++
		line = strings.TrimRight(line, "\r\n")
		trimmed := strings.TrimSpace(line)
		switch {
		case closing != "":
			if strings.HasPrefix(trimmed, closing) || closing == "-->" && strings.Contains(trimmed, closing) {
				closing = ""
			}
			continue
		case fence.MatchString(trimmed):
			flush()
			closing = fence.FindStringSubmatch(trimmed)[1]
			continue
		case strings.HasPrefix(trimmed, "<!--"):
			flush()
			if !strings.Contains(trimmed, "-->") {
				closing = "-->"
			}
			continue
		case trimmed == "":
			flush()
			blank = true
			continue
		}
		spaces := len(line) - len(strings.TrimLeft(line, " "))
		if strings.HasPrefix(line, "\t") {
			spaces = 4
		}
		item := listItem.FindStringSubmatch(line)
		if blank && spaces == 0 && item == nil {
			inList, indent = false, 0
		}
		if blank && spaces >= indent+4 && (item == nil || !inList) {
			continue // indented code, up to the next line that is less indented
		}
		blank = false

		if width := columns(line); width > maxProse && !strings.HasPrefix(trimmed, "|") &&
			!onlyLinks.MatchString(line) && strings.Contains(trimmed, " ") {
			report(number, ruleLine, fmt.Sprintf("%d columns", width), trimmed)
		}
		switch {
		case headingLine.MatchString(line):
			flush()
			blocks = append(blocks, block{heading, []textLine{{number, strings.TrimLeft(trimmed, "# ")}}})
		case strings.HasPrefix(trimmed, "|"):
			flush()
			if tableRule.MatchString(trimmed) {
				continue
			}
			for _, cell := range tableCells(trimmed) {
				blocks = append(blocks, block{prose, []textLine{{number, cell}}})
			}
		case item != nil:
			flush()
			inList, indent = true, len(item[0])
			open.lines = []textLine{{number, line[len(item[0]):]}}
		default:
			open.lines = append(open.lines, textLine{number, strings.TrimPrefix(trimmed, "> ")})
		}
	}
	flush()
	return blocks
}

// tableCells splits a row at the bars that are not in code.
func tableCells(row string) []string {
	var cells []string
	var cell strings.Builder
	code, escaped := false, false
	for _, r := range strings.Trim(row, "|") {
		switch {
		case escaped:
			escaped = false
		case r == '\\':
			escaped = true
		case r == '`':
			code = !code
		case r == '|' && !code:
			cells = append(cells, cell.String())
			cell.Reset()
			continue
		}
		cell.WriteRune(r)
	}
	return append(cells, cell.String())
}
