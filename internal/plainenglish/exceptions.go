package main

import (
	_ "embed"
	"fmt"
	"path"
	"strings"
)

//go:embed exceptions.txt
var exceptionsFile string

// exceptions are findings that are allowed.
type exceptions []exception

type exception struct {
	file string // a pattern of path.Match, or a folder and "/..."
	rule rule   // "*" is every rule
	text string // a part of the finding's text; "" is every text
}

// parseExceptions reads lines of the form "FILE | RULE | TEXT | REASON". Empty
// lines and lines that start with "#" are comments.
func parseExceptions(text string) (exceptions, error) {
	var all exceptions
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		cells := strings.Split(line, " | ")
		if len(cells) != 4 || strings.TrimSpace(cells[3]) == "" {
			return nil, fmt.Errorf("exceptions.txt:%d: want FILE | RULE | TEXT | REASON", number)
		}
		one := exception{strings.TrimSpace(cells[0]), rule(strings.TrimSpace(cells[1])), strings.TrimSpace(cells[2])}
		if one.text == "*" {
			one.text = ""
		}
		if _, err := path.Match(one.file, ""); err != nil {
			return nil, fmt.Errorf("exceptions.txt:%d: %w", number, err)
		}
		all = append(all, one)
	}
	return all, nil
}

func (e exception) allows(f finding) bool {
	inFile, _ := path.Match(e.file, f.file)
	if folder, ok := strings.CutSuffix(e.file, "/..."); ok {
		inFile = strings.HasPrefix(f.file, folder+"/")
	}
	return inFile && (e.rule == "*" || e.rule == f.rule) && strings.Contains(f.text, e.text)
}

// filter returns the findings that no exception allows.
func (all exceptions) filter(findings []finding) []finding {
	var rest []finding
next:
	for _, found := range findings {
		for _, one := range all {
			if one.allows(found) {
				continue next
			}
		}
		rest = append(rest, found)
	}
	return rest
}
