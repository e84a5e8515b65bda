package main

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	maxWords     = 35 // of one sentence
	longWords    = 25 // a sentence above this is long
	maxLong      = 10 // percent of a file's sentences that may be long
	minSentences = 20 // files with fewer sentences have no share of long ones

	maxCode  = 120 // columns of a line of Go, with tabs of 4
	maxProse = 100 // columns of a line of Markdown
)

// A rule is the name of one check, as findings and exceptions show it.
type rule string

const (
	ruleSentence   rule = "long sentence"
	ruleShare      rule = "too many long sentences"
	rulePhrase     rule = "phrase"
	ruleLine       rule = "long line"
	ruleIdentifier rule = "identifier"
)

// A finding is one place where a text breaks a rule.
type finding struct {
	file   string // with slashes, relative to the module if there is one
	line   int
	rule   rule
	detail string // such as the number of words; may be empty
	text   string // the sentence, line or identifier
}

func (f finding) String() string {
	detail := f.detail
	if detail != "" {
		detail = " (" + detail + ")"
	}
	return fmt.Sprintf("%s:%d: %s%s: %s", f.file, f.line, f.rule, detail, f.text)
}

// checkPaths checks the .md and .go files at the paths and below. Findings are
// in the order of the files and their lines.
func checkPaths(paths []string, allowed exceptions) ([]finding, error) {
	var findings []finding
	for _, root := range paths {
		root = strings.TrimSuffix(root, "...")
		err := filepath.WalkDir(filepath.Clean(root), func(file string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && skipFolder(file, entry.Name()):
				return filepath.SkipDir
			case entry.IsDir() || filepath.Ext(file) != ".go" && filepath.Ext(file) != ".md":
				return nil
			}
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			found, err := checkFile(inModule(file), text)
			findings = append(findings, allowed.filter(found)...)
			return err
		})
		if err != nil {
			return findings, err
		}
	}
	return findings, nil
}

func skipFolder(path, name string) bool {
	return path != "." && strings.HasPrefix(name, ".") && name != ".." || name == "testdata"
}

// inModule returns the path of a file relative to the topmost folder above it
// that has a go.mod.
func inModule(file string) string {
	whole, err := filepath.Abs(file)
	if err != nil {
		return filepath.ToSlash(file)
	}
	name := filepath.ToSlash(file)
	for folder := filepath.Dir(whole); folder != filepath.Dir(folder); folder = filepath.Dir(folder) {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			if relative, err := filepath.Rel(folder, whole); err == nil {
				name = filepath.ToSlash(relative)
			}
		}
	}
	return name
}

// checkFile returns the findings of one file.
func checkFile(name string, text []byte) ([]finding, error) {
	var findings []finding
	add := func(line int, rule rule, detail, text string) {
		findings = append(findings, finding{name, line, rule, detail, text})
	}
	var blocks []block
	if filepath.Ext(name) == ".md" {
		blocks = markdownBlocks(string(text), add)
	} else {
		var err error
		if blocks, err = goBlocks(name, text, add); err != nil {
			return nil, err
		}
	}

	sentences, long := 0, 0
	for _, b := range blocks {
		for _, s := range b.sentences() {
			for _, phrase := range findPhrases(s.text) {
				add(s.line, rulePhrase, phrase, s.text)
			}
			if b.kind != prose {
				continue
			}
			sentences++
			words := countWords(s.text)
			if words > longWords {
				long++
			}
			if words > maxWords {
				add(s.line, ruleSentence, fmt.Sprintf("%d words", words), s.text)
			}
		}
	}
	if sentences >= minSentences && long*100 > sentences*maxLong {
		add(1, ruleShare, fmt.Sprintf("%d of %d have more than %d words", long, sentences, longWords), name)
	}
	slices.SortStableFunc(findings, func(a, b finding) int { return cmp.Compare(a.line, b.line) })
	return findings, nil
}

// columns returns how wide a line is, with tabs of 4.
func columns(line string) int {
	width := 0
	for _, r := range line {
		if r == '\t' {
			width += 4 - width%4
		} else {
			width++
		}
	}
	return width
}
