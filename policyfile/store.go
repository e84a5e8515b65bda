package policyfile

import (
	"cmp"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"fairshare"
	"fairshare/internal/prose"
)

// A Store is a Redis or Valkey server, in which several programs count together. See package
// redislimit. It takes effect at the start of a program only.
type Store struct {
	URL  string // redis://host:6379; it has no password
	User string // "" means that of the URL, or the default one

	// PasswordFile has the password in its first line, see [File.ResolvePath]. "" means that it is in the environment,
	// among systemd's credentials, or that there is none.
	PasswordFile string

	CA, Cert, Key string // files for TLS; "" means the authorities of the system, and no certificate

	Name string // of the group; "" means "default"

	// Slack is the part of a limit that the programs may admit beyond it. 0 means DefaultSlack; below 0 means none.
	Slack float64

	Wait time.Duration // the longest time that a request waits for the store; 0 means DefaultStoreWait
	Away string        // what a program admits while the store is away: share, whole or open; never ""
}

// Defaults and bounds of a Store. They are those of package redislimit.
const (
	DefaultSlack     = 1.0 / 16
	DefaultStoreWait = 25 * time.Millisecond

	maxSlack     = 0.5
	minStoreWait = time.Millisecond
	maxStoreWait = time.Second
)

var storeSchemes = []string{"redis", "rediss", "valkey", "valkeys", "unix", "redis+cluster", "rediss+cluster",
	"redis+sentinel", "rediss+sentinel"}

const storeExample = "{url: redis://127.0.0.1:6379, password_file: store.password}"

func storeKeys() []key[Store] {
	return []key[Store]{
		{"url", func(r *reader, n *node, s *Store) { s.URL = r.storeURL(n) }},
		{"user", func(r *reader, n *node, s *Store) { s.User = r.line(n, "user") }},
		{"password_file", func(r *reader, n *node, s *Store) { s.PasswordFile = r.fileName(n, "password_file", "") }},
		{"ca", func(r *reader, n *node, s *Store) { s.CA = r.fileName(n, "ca", "") }},
		{"cert", func(r *reader, n *node, s *Store) { s.Cert = r.fileName(n, "cert", "") }},
		{"key", func(r *reader, n *node, s *Store) { s.Key = r.fileName(n, "key", "") }},
		{"name", func(r *reader, n *node, s *Store) {
			s.Name = r.line(n, "name")
			if s.Name != "" && (len(s.Name) > 64 || strings.ContainsFunc(s.Name, notInGroupName)) {
				r.fault(n, "name: shop", "name: 1 to 64 letters, digits, hyphens, underscores and dots are needed, not %s",
					quote(s.Name))
			}
		}},
		{"slack", func(r *reader, n *node, s *Store) { s.Slack = r.slack(n) }},
		{"wait", func(r *reader, n *node, s *Store) { s.Wait = r.duration(n, "wait", minStoreWait, maxStoreWait) }},
		{"away", func(r *reader, n *node, s *Store) {
			s.Away = r.choice(n, "away", []string{"share", "whole", "open"}, map[string]string{"true": "open",
				"allow": "open", "pass": "open", "all": "whole"})
		}},
	}
}

func notInGroupName(c rune) bool {
	return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.'
}

func readStore(r *reader, n *node, f *File) {
	s := &Store{Away: "share"}
	if n.kind == scalarNode {
		if s.URL = r.storeURL(n); s.URL != "" {
			f.Store = s
		}
		return
	}
	got := readMap(r, n, "store", storeExample, storeKeys(), s)
	if got == nil {
		return
	}
	if !got.has("url") {
		r.missing(n, "store: "+storeExample, "store: a url is needed")
	}
	if got.has("cert") != got.has("key") {
		r.missing(n, "give both files", "store: cert and key belong together")
	}
	if s.URL != "" && !strings.HasPrefix(s.URL, "rediss") && !strings.HasPrefix(s.URL, "valkeys") {
		for _, name := range []string{"ca", "cert"} {
			if got.has(name) {
				r.fault(got.at(name), "url: rediss://…", "store: %s is for TLS, which the url does not ask for", name)
				break
			}
		}
	}
	f.Store = s
}

// storeURL reads the URL of a store. Passwords in it are a fault, and are not quoted.
func (r *reader) storeURL(n *node) string {
	s := r.line(n, "url")
	if s == "" {
		return ""
	}
	scheme, rest, found := strings.Cut(s, "://")
	if !found || !slices.Contains(storeSchemes, scheme) {
		hint := "url: redis://host:6379, rediss://…, unix:///run/redis/redis.sock, redis+cluster://a,b or " +
			"redis+sentinel://a,b/master"
		if !found && !strings.Contains(s, "@") && strings.Contains(s, ":") && !strings.Contains(s, "/") {
			hint = "url: redis://" + shorten(s)
		}
		r.fault(n, hint, "store: the url of a Redis or Valkey server is needed")
		return ""
	}
	authority, _, _ := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(rest, '@'); at >= 0 && strings.Contains(rest[:at], ":") {
		r.fault(n, "password_file: store.password",
			"store: the url has a password: everybody who reads the policy would see it")
		return ""
	}
	if authority == "" && scheme != "unix" {
		r.fault(n, "url: "+scheme+"://127.0.0.1:6379", "store: the url has no host")
		return ""
	}
	if !strings.ContainsAny(scheme, "+") {
		if _, err := url.Parse(s); err != nil {
			r.fault(n, "url: redis://127.0.0.1:6379", "store: %s is not a url", quote(s))
			return ""
		}
	}
	return s
}

// slack reads a percentage. It returns a value below 0 for 0 %.
func (r *reader) slack(n *node) float64 {
	s := strings.TrimSpace(r.line(n, "slack"))
	if s == "" {
		return 0
	}
	number, isPercent := strings.CutSuffix(s, "%")
	f, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	switch {
	case !isPercent || err != nil || math.IsNaN(f):
		r.fault(n, "slack: 6.25%", "slack: a percentage is needed, not %s", n.describe())
	case f < 0 || f > 100*maxSlack:
		r.fault(n, "", "slack: 0%% to 50%% is possible, not %s", quote(s))
	case f == 0:
		return -1
	default:
		return f / 100
	}
	return 0
}

// Equal reports whether two stores, which may be nil, have the same settings.
func (s *Store) Equal(other *Store) bool {
	return s == other || s != nil && other != nil && *s == *other
}

// TheSlack returns the part of a limit that the programs may admit beyond it, 0 to 0.5.
func (s *Store) TheSlack() float64 {
	switch {
	case s.Slack == 0:
		return DefaultSlack
	case s.Slack < 0:
		return 0
	}
	return s.Slack
}

// TheWait returns the longest time that a request waits for the store.
func (s *Store) TheWait() time.Duration {
	if s.Wait == 0 {
		return DefaultStoreWait
	}
	return s.Wait
}

// Excess returns how many requests, bytes or other units beyond a limit so many programs admit at
// most, if they are asked at the same moment. It is the bound that package redislimit keeps: of
// errors half of the limit, since nearly all requests give back the error that they hold.
func (s *Store) Excess(lim *fairshare.Limit, programs int) int64 {
	if programs < 2 || lim.Exact || lim.EachMember {
		return 0
	}
	members, allowed := int64(programs), lim.Allowed()
	share := int64(s.TheSlack()*float64(allowed)) / members
	if lim.Resource == fairshare.Errors && s.Slack >= 0 {
		share = max(share, (allowed+members)/(2*members))
	}
	return share * members
}

// mostDescribed is how many limits a description of the store names.
const mostDescribed = 3

// storeDescription describes the store in sentences.
func (f *File) storeDescription() string {
	s := f.Store
	lines := fmt.Sprintf("all programs of the group %q count together in %s; a request waits for it at most %s, and "+
		"nothing is refused by an error of the store.", cmp.Or(s.Name, "default"), storePlace(s.URL),
		FormatDuration(s.TheWait()))
	lines += " While it is away, " + map[string]string{
		"share": "each program admits its share of each limit.",
		"whole": "each program admits the whole of each limit: right only if one program sees all requests of a client.",
		"open":  "every request that would have to ask passes.",
	}[s.Away]
	const programs = 3
	var over []string
	more := 0
	for i := range f.Policy.Rules {
		lim := f.Policy.Rules[i].Limit
		if lim == nil {
			continue
		}
		n := s.Excess(lim, programs)
		switch {
		case n == 0 || f.Policy.Rules[i].DryRun:
		case len(over) == mostDescribed:
			more++
		default:
			over = append(over, fmt.Sprintf("%s of %s", excessText(lim.Resource, n), quote(f.Policy.Rules[i].Name)))
		}
	}
	if len(over) == 0 {
		return lines + " No limit admits more than one machine would."
	}
	rest := ""
	if more > 0 {
		rest = fmt.Sprintf(" and likewise for %s", prose.Plural(more, "more limit"))
	}
	return lines + fmt.Sprintf(" Three programs that are asked at the same moment admit at most this much more: %s%s. "+
		"Write exact: true into a limit that must never admit more.", strings.Join(over, ", "), rest)
}

// excessText returns an amount of a resource.
func excessText(res fairshare.Resource, n int64) string {
	switch res {
	case fairshare.Bytes:
		return prose.Size(n)
	case fairshare.CPU, fairshare.Time:
		return prose.Duration(time.Duration(n) * time.Microsecond)
	}
	return prose.Plural(n, "request")
}

// storePlace returns the URL without a user.
func storePlace(s string) string {
	scheme, rest, _ := strings.Cut(s, "://")
	authority, path, slash := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		authority = authority[at+1:]
	}
	if slash {
		path = "/" + path
	}
	return scheme + "://" + authority + path
}
