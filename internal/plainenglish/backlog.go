package main

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

//go:embed backlog.txt
var backlogFile string

// A backlog says how many findings each file had when the check was introduced.
// The number of a file may only become smaller.
type backlog map[string]int

// parseBacklog reads lines of the form "NUMBER FILE", after comments.
func parseBacklog(text string) (backlog, error) {
	allowed := backlog{}
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		count, file, _ := strings.Cut(line, " ")
		n, err := strconv.Atoi(count)
		if err != nil || n < 1 || file == "" {
			return nil, fmt.Errorf("backlog.txt:%d: want NUMBER FILE", number)
		}
		allowed[file] = n
	}
	return allowed, nil
}

// backlogOf returns the backlog of findings.
func backlogOf(findings []finding) backlog {
	now := backlog{}
	for _, found := range findings {
		now[found.file]++
	}
	return now
}

// String returns the text of backlog.txt.
func (b backlog) String() string {
	var text strings.Builder
	text.WriteString("# Files that are not yet rewritten, with the number of findings that each may have.\n" +
		"# New files and new findings are not added: the numbers only become smaller. After a\n" +
		"# file was improved: go run ./internal/plainenglish -backlog . >backlog && mv backlog " +
		"internal/plainenglish/backlog.txt\n\n")
	for _, file := range slices.Sorted(maps.Keys(b)) {
		fmt.Fprintln(&text, b[file], file)
	}
	return text.String()
}

// filter returns the findings of files that have more of them than allowed.
func (b backlog) filter(findings []finding) []finding {
	now := backlogOf(findings)
	return slices.DeleteFunc(slices.Clone(findings), func(f finding) bool { return now[f.file] <= b[f.file] })
}
