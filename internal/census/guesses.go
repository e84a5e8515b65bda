package census

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"fairshare/internal/prose"
	"fairshare/internal/reports"
)

// Bounds of the report about password guessing from many addresses.
const (
	fewestGuessers = 20 // addresses
	guessPeriod    = 10 * time.Minute
	guessPaths     = 32 // distinguished
	guessPathSize  = 96 // bytes
	guesserBits    = 1 << 12
	reportedPaths  = 2
)

// formEnds are the ends of paths of login forms that answer a wrong password
// with 200, and a right one with a redirect.
var formEnds = []string{
	"/wp-login.php", "/administrator/index.php", "/ucp.php", "/user/login", "/loginpost/", "/auth.owa",
	"/j_security_check", "/login_form",
}

// loginEnds are the ends of paths of other logins.
var loginEnds = []string{
	"/administrator/", "/login", "/login/", "/login.php", "/login.html", "/login.aspx", "/login.jsp", "/login.do",
	"/login.action", "/log-in",
	"/logon", "/signin", "/sign-in", "/sign_in", "/admin/index.php", "/session", "/sessions", "/api/session",
	"/api/auth",
}

func endsIn(path string, ends []string) bool {
	path = path[max(0, len(path)-32):]
	for _, end := range ends {
		if len(path) >= len(end) && strings.EqualFold(path[len(path)-len(end):], end) {
			return true
		}
	}
	return false
}

// IsLogin reports whether the built-in policy treats a path as that of a login.
func IsLogin(path string) bool { return endsIn(path, formEnds) || endsIn(path, loginEnds) }

// A guessTable counts POST requests by path, and the addresses of failed ones. It
// keeps the 32 paths with the most requests: a request to another path reduces the
// smallest weight by one, and replaces that path if the weight is 0 (Misra and Gries
// 1982). Its size is fixed, 20 KiB.
type guessTable [guessPaths]guessEntry

type guessEntry struct {
	path      [guessPathSize]byte
	n         int
	weight    int64
	failed    int64
	passed    int64                    // the other requests
	addresses [guesserBits / 64]uint64 // of failed requests: linear counting, as in seen
}

// guesses are the failed logins of the present ten minutes and of the ten
// minutes before.
type guesses struct {
	mu       sync.Mutex
	at       time.Time // when the present ten minutes began
	lastAt   time.Time
	present  *guessTable
	last     *guessTable
	reported time.Time // zero: never
}

// attempt reports whether a POST request was an attempt to log in, and whether it failed.
func attempt(path string, status int) (tried, failed bool) {
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return true, true
	case status == 0 || status >= 500:
		return false, false
	case status == http.StatusOK && endsIn(path, formEnds):
		return true, true
	case status >= 400:
		failed = IsLogin(path)
		return failed, failed
	}
	return true, false
}

func (g *guesses) passed(p *reports.Passages, s *state) {
	if p.Method != http.MethodPost {
		return
	}
	for _, r := range p.Requests {
		if tried, failed := attempt(r.Path, r.Status); tried {
			g.note(r.Path, s.hash(p.Addr, p.Via), failed, 1)
		}
	}
}

// refused records attempts that a rule refused.
func (g *guesses) refused(r *reports.Refusals, hash uint64) {
	if r.Method != http.MethodPost {
		return
	}
	for _, p := range r.Paths {
		if IsLogin(p.Path) {
			g.note(p.Path, hash, true, p.N)
		}
	}
}

// note records n attempts.
func (g *guesses) note(path string, hash uint64, failed bool, n int64) {
	if path == "" {
		return
	}
	path = path[:min(len(path), guessPathSize)]
	g.mu.Lock()
	defer g.mu.Unlock()
	e, n := g.present.add(path, n)
	if e == nil {
		return
	}
	if !failed {
		e.passed += n
		return
	}
	e.failed += n
	e.addresses[hash/64%(guesserBits/64)] |= 1 << (hash % 64)
}

// add adds n to the weight of a path. It returns the entry of the path and what was added: less than n if the path
// replaces another, and nil if all other paths have at least this weight.
func (t *guessTable) add(path string, n int64) (*guessEntry, int64) {
	least := &t[0]
	for i := range t {
		e := &t[i]
		if string(e.path[:e.n]) == path {
			e.weight += n
			return e, n
		}
		if e.weight < least.weight {
			least = e
		}
	}
	if least.weight >= n {
		least.weight -= n
		return nil, 0
	}
	n -= least.weight
	*least = guessEntry{weight: n}
	least.n = copy(least.path[:], path)
	return least, n
}

// addressesOf estimates the number of addresses in some entries.
func addressesOf(entries ...*guessEntry) int64 {
	unset := guesserBits
	for i := range guesserBits / 64 {
		var word uint64
		for _, e := range entries {
			word |= e.addresses[i]
		}
		unset -= bits.OnesCount64(word)
	}
	return int64(math.Round(-guesserBits * math.Log(float64(max(unset, 1))/guesserBits)))
}

// A guessed is a path at which many addresses failed.
type guessed struct {
	path                      string
	addresses, failed, passed int64
}

// warnings returns the warning that is due: at once, then every ten minutes while the
// guessing lasts.
func (g *guesses) warnings(now time.Time) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var found []guessed
	if g.reported.IsZero() || now.Sub(g.reported) >= guessPeriod {
		found = g.found()
	}
	since := g.lastAt
	if now.Sub(g.at) >= guessPeriod {
		g.last, g.present = g.present, g.last
		*g.present = guessTable{}
		g.lastAt, g.at = g.at, now
	}
	if len(found) == 0 {
		return nil
	}
	g.reported = now
	return []string{guessText(found, prose.Last(now.Sub(since)))}
}

// found returns the paths to report, the one with most addresses first.
func (g *guesses) found() (all []guessed) {
	for _, t := range []*guessTable{g.present, g.last} {
		for i := range t {
			e := &t[i]
			path := string(e.path[:e.n])
			if e.n == 0 || slices.ContainsFunc(all, func(f guessed) bool { return f.path == path }) {
				continue
			}
			f := guessed{path: path, failed: e.failed, passed: e.passed}
			both := []*guessEntry{e}
			for j := range g.last {
				if other := &g.last[j]; other != e && other.n == e.n && other.path == e.path {
					both = append(both, other)
					f.failed, f.passed = f.failed+other.failed, f.passed+other.passed
				}
			}
			f.addresses = addressesOf(both...)
			all = append(all, f)
		}
	}
	// Where most attempts succeed, the failed ones are typing errors.
	all = slices.DeleteFunc(all, func(f guessed) bool { return f.addresses < fewestGuessers || f.failed <= f.passed })
	slices.SortFunc(all, func(a, b guessed) int {
		return cmp.Or(cmp.Compare(b.addresses, a.addresses), strings.Compare(a.path, b.path))
	})
	return all
}

func guessText(all []guessed, when string) string {
	var b strings.Builder
	b.WriteString("WARNING: PASSWORDS ARE BEING GUESSED FROM MANY ADDRESSES: ")
	for i, f := range all {
		if i == reportedPaths {
			fmt.Fprintf(&b, ", and %s more", prose.Plural(int64(len(all)-i), "path"))
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		if len(f.path) == guessPathSize {
			f.path += "…"
		}
		fmt.Fprintf(&b, "%s of about %s addresses at %s", prose.Plural(f.failed, "failed or refused attempt"),
			prose.Number(f.addresses), strconv.QuoteToGraphic(f.path))
		if f.passed > 0 {
			fmt.Fprintf(&b, " (%s did not fail)", prose.Number(f.passed))
		}
	}
	fmt.Fprintf(&b,
		" in %s. What helps: limits on logins by addr and by network with newcomers, as in the built-in policy (fairshare policy prints it);"+
			" a second factor; fairshare ban NETWORK for networks that take part, see fairshare clients --sort refused",
		when)
	return b.String()
}
