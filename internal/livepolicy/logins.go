package livepolicy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"fairshare"
	"fairshare/internal/prose"
	"fairshare/logins"
)

// loginReport returns a line for each login or form that came under attack since the
// last call, and one for each attack that has ended.
func (p *Policy) loginReport() (lines []string) {
	present := map[string]bool{}
	for _, a := range p.logins.Attacks() {
		name := prose.Printable(a.Path)
		present[name] = true
		if !p.reportedLogins[name] {
			lines = append(lines, attackedText(name, &a, p.Wall(time.Unix(a.Since, 0))))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.reportedLogins)) {
		if !present[name] {
			lines = append(lines, "the attack on "+name+" has ended")
		}
	}
	p.reportedLogins = present
	return lines
}

func attackedText(name string, a *logins.Attack, since time.Time) string {
	what := "more unknown clients fail to log in than usual"
	switch {
	case a.Kind == fairshare.CommentAttempt:
		what = "more unknown clients send this form than usual"
	case strings.HasPrefix(name, "("):
		name, what = "Basic credentials", "more unknown clients send wrong credentials than usual"
	}
	return fmt.Sprintf("UNDER ATTACK: %s since %s: %s. Rules with attempt: excess hold for further unknown clients; clients "+
		"that have logged in before pass (docs/guessing.md)", name, prose.Moment(since), what)
}
