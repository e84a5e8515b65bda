package prose

import (
	"fmt"
	"strings"
)

// maxWord is the longest word that is compared, in characters.
const maxWord = 64

// DidYouMean returns a hint if one of the names is close to word, which is
// misspelt: `did you mean "allow"?`. Otherwise it returns "".
func DidYouMean(word string, names []string) string {
	if name := Nearest(word, names); name != "" {
		return fmt.Sprintf("did you mean %q?", name)
	}
	return ""
}

// Nearest returns the first of the names that are closest to word, in any case
// of letters. If a third of the letters or more would have to change, or more
// than three, it returns "".
func Nearest(word string, names []string) string {
	nearest, least := "", min(max(1, len(word)/3), 3)+1
	for _, name := range names {
		if d := distance(strings.ToLower(word), strings.ToLower(name)); d < least {
			nearest, least = name, d
		}
	}
	return nearest
}

// distance returns how many letters have to be added, dropped, changed or
// swapped with their neighbor to make b of a (optimal string alignment).
func distance(a, b string) int {
	s, t := []rune(a), []rune(b)
	if len(s) > maxWord || len(t) > maxWord {
		return maxWord
	}
	before, last, row := make([]int, len(t)+1), make([]int, len(t)+1), make([]int, len(t)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(s); i++ {
		before, last, row = last, row, before
		row[0] = i
		for j := 1; j <= len(t); j++ {
			change := 1
			if s[i-1] == t[j-1] {
				change = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && s[i-1] == t[j-2] && s[i-2] == t[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(t)]
}
