package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The table of contents of a page links to each of its headings and to nothing else.
func TestTablesOfContentsAreComplete(t *testing.T) {
	for page, level := range map[string]int{"policy.md": 4, "tasks.md": 2, "install.md": 2} {
		data, err := os.ReadFile("../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		text := regexp.MustCompile("(?s)```.*?```").ReplaceAllString(string(data), "")
		contents, _, _ := strings.Cut(text, "\n## ")
		linked := map[string]bool{}
		for _, link := range regexp.MustCompile(`\]\(#([^)]+)\)`).FindAllStringSubmatch(contents, -1) {
			linked[link[1]] = true
		}
		headings := map[string]bool{}
		for _, heading := range regexp.MustCompile(`(?m)^(##+) (.+)$`).FindAllStringSubmatch(text, -1) {
			anchor := anchorOf(heading[2])
			if headings[anchor] = true; len(heading[1]) <= level && !linked[anchor] {
				t.Errorf("%s: the table of contents lacks [%s](#%s)", page, heading[2], anchor)
			}
		}
		for _, anchor := range regexp.MustCompile(`<a (?:id|name)="([^"]+)">`).FindAllStringSubmatch(text, -1) {
			headings[anchor[1]] = true
		}
		for _, link := range regexp.MustCompile(`\]\(#([^)]+)\)`).FindAllStringSubmatch(text, -1) {
			if !headings[link[1]] {
				t.Errorf("%s: there is no heading for #%s", page, link[1])
			}
		}
		if len(linked) < 5 {
			t.Errorf("%s: %d links only", page, len(linked))
		}
	}
}

// anchorOf returns the anchor of a heading, as GitHub makes it.
func anchorOf(heading string) string {
	text := regexp.MustCompile(`[^\pL\pN_ -]`).ReplaceAllString(strings.ToLower(heading), "")
	return strings.ReplaceAll(text, " ", "-")
}
