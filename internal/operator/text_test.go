package operator

import (
	"strings"
	"testing"
)

func TestCheckText(t *testing.T) {
	for text, fine := range map[string]bool{
		"":                       true,
		"Herr Öl, 5 €":           true,
		"two\nlines":             false,
		"\x1b[2J":                false,
		"\xff":                   false,
		strings.Repeat("a", 500): true,
		strings.Repeat("a", 501): false,
	} {
		if err := CheckText("--reason", text); (err == nil) != fine {
			t.Errorf("CheckText(%.20q): %v", text, err)
		}
	}
}
