package policyfile

import (
	"slices"
	"strings"
	"time"
)

// Sessions sets how bots without cookies share sessions of the upstream.
type Sessions struct {
	Cookies []string      // session cookies of the upstream; "*" means any run of characters
	Share   bool          // requests of one bot without cookies share a session
	Bot     time.Duration // the time that a bot's session is used
	Person  time.Duration // the same for all other clients
}

// Defaults and bounds of sessions.
const (
	DefaultBotSession    = 2 * time.Minute
	DefaultPersonSession = 30 * time.Minute
	maxSession           = 31 * 24 * time.Hour
	maxSessionCookies    = 16
)

func sessionKeys() []key[Sessions] {
	return []key[Sessions]{
		{"cookies", func(r *reader, n *node, s *Sessions) { s.Cookies = r.sessionCookies(n) }},
		{"bots", func(r *reader, n *node, s *Sessions) { s.Share = r.share(n) }},
		{"bot", func(r *reader, n *node, s *Sessions) { s.Bot = r.duration(n, "bot", time.Second, maxSession) }},
		{"person", func(r *reader, n *node, s *Sessions) {
			s.Person = r.duration(n, "person", time.Second, maxSession)
		}},
	}
}

const sessionsExample = "{cookies: [PHPSESSID], bots: share}"

func readSessions(r *reader, n *node, f *File) {
	f.Sessions = &Sessions{Bot: DefaultBotSession, Person: DefaultPersonSession}
	got := readMap(r, n, "sessions", sessionsExample, sessionKeys(), f.Sessions)
	switch {
	case got == nil:
	case len(n.entries) == 0:
		r.fault(n, "sessions: "+sessionsExample, "sessions: the map is empty")
	case f.Sessions.Share && !got.has("cookies"):
		r.missing(n, "sessions: "+sessionsExample,
			"sessions: cookies are needed: the names of the session cookies of the site")
	}
}

// share reads the only valid value, share.
func (r *reader) share(n *node) bool {
	if n.kind == scalarNode && n.text == "share" {
		return true
	}
	hint := `did you mean "share"?`
	if n.kind != scalarNode || slices.Contains([]string{"false", "off", "no", "none", "own", "keep"},
		strings.ToLower(n.text)) {
		hint = "remove the key, or write bots: share"
	}
	r.fault(n, hint, "bots: only share is allowed here, not %s", n.describe())
	return false
}

// sessionCookies reads names of session cookies.
func (r *reader) sessionCookies(n *node) []string {
	list := []string{}
	for i, item := range r.list(n, "cookies") {
		if i == maxSessionCookies {
			r.fault(item, "", "cookies: more than %d names", maxSessionCookies)
			break
		}
		s, ok := r.text(item, "cookies")
		hint := ""
		name, _, pair := strings.Cut(s, "=")
		switch {
		case !ok:
			continue
		case slices.Contains(list, s):
			r.fault(item, "", "cookies: %s is listed twice", quote(s))
			continue
		case pair && isToken(name):
			hint = "only the name is needed: cookies: " + name
		case strings.ContainsAny(s, ", ;"):
			hint = "write several values in brackets: [a, b]"
		case isRegexp(s):
			hint = "* stands for any run of characters: ASPSESSIONID*"
		case s != "" && strings.Trim(s, "*") == "":
			hint = "name the session cookies: only they may be shared"
		case isToken(s):
			list = append(list, s)
			continue
		}
		r.fault(item, hint, "cookies: %s is not a cookie name", quote(s))
	}
	return list
}

// notSessionNames are parts of the names of cookies that are not session cookies.
// If clients shared such a cookie, they would be logged in as others, or could not
// send forms.
var notSessionNames = []string{"csrf", "xsrf", "token", "auth", "logged", "login", "remember", "jwt"}

// warnSessions warns of shared login cookies, and of settings without effect.
func (r *reader) warnSessions() {
	n := find(r.root, "sessions")
	s := r.file.Sessions
	if s == nil {
		return
	}
	if len(s.Cookies) > 0 && !s.Share {
		r.warn(firstNode(find(n, "cookies")), "bots: share", "cookies have no effect without bots: share")
	}
	if s.Share {
		for _, item := range items(find(n, "cookies")) {
			name := strings.ToLower(item.text)
			if name == "cftoken" { // half of a ColdFusion session
				continue
			}
			if slices.ContainsFunc(notSessionNames, func(part string) bool { return strings.Contains(name, part) }) {
				r.warn(item, "name only the session cookie of the site",
					"cookies: %s looks like a login or a form token, not like a session", quote(item.text))
			}
		}
	}
	if s.Bot > s.Person {
		r.warn(firstNode(find(n, "bot"), find(n, "person"), n), "",
			"the session of a bot is kept for %s, longer than that of a person (%s)", FormatDuration(s.Bot),
			FormatDuration(s.Person))
	}
}
