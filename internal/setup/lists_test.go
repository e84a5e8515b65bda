package setup

import (
	"regexp"
	"testing"
)

// RFC 9110 §10.1.5: a product and its version, both tokens.
func TestUserAgentIsAProductWithItsVersion(t *testing.T) {
	if got := userAgent(); !regexp.MustCompile(`^fairshare/[A-Za-z0-9.+-]+$`).MatchString(got) {
		t.Errorf("User-Agent %q", got)
	}
}
