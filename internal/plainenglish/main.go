// Command plainenglish checks the English of docs and Go files. It counts what
// can be counted: the words of a sentence, words and phrases to avoid, the
// length of lines, and names of identifiers that say nothing.
//
//	go run ./internal/plainenglish [PATH…]
//
// A path is a file or a folder, which is searched for .md and .go files; no
// path means the current folder. Each finding is a line "file:line: what: text".
// The exit code is 1 if there are findings, and 2 if a file cannot be read.
//
// exceptions.txt lists findings that are allowed, each with its reason.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	all := flag.Bool("all", false, "show findings that exceptions.txt allows, too")
	flag.Parse()
	paths := flag.Args()
	if len(paths) == 0 {
		paths = []string{"."}
	}

	allowed := exceptions{}
	if !*all {
		var err error
		if allowed, err = parseExceptions(exceptionsFile); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
	findings, err := checkPaths(paths, allowed)
	for _, found := range findings {
		fmt.Println(found)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if len(findings) > 0 {
		os.Exit(1)
	}
}
