package policyfile

import (
	"fmt"
	"net/netip"
	"strings"

	"fairshare"
)

func matchKeys() []key[fairshare.Match] {
	type match = fairshare.Match
	return []key[match]{
		{"addr", func(r *reader, n *node, m *match) {
			lists := r.file.Lists
			if lists == nil {
				lists = map[string]*AddrSet{}
			}
			m.Addr = r.addrs(n, "addr", lists)
		}},
		{"path", func(r *reader, n *node, m *match) { m.Path = r.patterns(n, "path") }},
		{"query", func(r *reader, n *node, m *match) { m.Query = r.textMap(n, "query") }},
		{"form", func(r *reader, n *node, m *match) { m.Form = r.textMap(n, "form") }},
		{"host", func(r *reader, n *node, m *match) { m.Host = r.hosts(n) }},
		{"method", func(r *reader, n *node, m *match) { m.Method = r.methods(n) }},
		{"user_agent", func(r *reader, n *node, m *match) { m.UserAgent = r.patterns(n, "user_agent") }},
		{"cookie", func(r *reader, n *node, m *match) { m.Cookie = r.cookies(n) }},
		{"header", func(r *reader, n *node, m *match) { m.Header = r.textMap(n, "header") }},
		{"not", func(r *reader, n *node, m *match) { m.Not = r.nots(n) }},
		{"bot", func(r *reader, n *node, m *match) { m.Bot = r.botConditions(n) }},
		{"state", func(r *reader, n *node, m *match) { m.State = r.botStates(n) }},
		{"operator", func(r *reader, n *node, m *match) { m.Operator = r.operatorNames(n) }},
		{"hostname", func(r *reader, n *node, m *match) { m.Hostname = r.hostnames(n) }},
		{"listed", func(r *reader, n *node, m *match) { m.Listed = r.listings(n) }},
		{"asn", func(r *reader, n *node, m *match) { m.ASN = r.owners(n) }},
		{"seen", func(r *reader, n *node, m *match) { m.Seen = r.patterns(n, "seen") }},
		{"attempt", func(r *reader, n *node, m *match) { m.Attempt = r.attempts(n) }},
		{"browser", func(r *reader, n *node, m *match) { m.Browser = r.browsers(n) }},
		{"referer", func(r *reader, n *node, m *match) { m.Referer = r.referers(n) }},
		{"robots", func(r *reader, n *node, m *match) { m.Robots = r.robots(n) }},
		{"label", func(r *reader, n *node, m *match) { m.Label = r.labels(n) }},
	}
}

func (r *reader) match(n *node, what string) fairshare.Match {
	var m fairshare.Match
	if n.kind == scalarNode && strings.HasPrefix(n.text, "/") {
		readMap(r, n, what, fmt.Sprintf("{path: %q}", n.text), matchKeys(), &m)
		return m
	}
	readMap(r, n, what, "", matchKeys(), &m)
	return m
}

// maxRegexp is the length of the longest regexp, in bytes.
const maxRegexp = 16 << 10

// patterns reads texts, some of which may be regexps.
func (r *reader) patterns(n *node, what string) []string {
	list := []string{}
	for _, item := range r.list(n, what) {
		if s, ok := r.pattern(item, what); ok {
			list = append(list, s)
		}
	}
	return list
}

func (r *reader) pattern(n *node, what string) (string, bool) {
	s, ok := r.text(n, what)
	if !ok {
		return "", false
	}
	if isRegexp(s) && len(s) > maxRegexp {
		r.fault(n, "make it several", "%s: a regexp longer than %s", what, FormatSize(maxRegexp))
		return "", false
	}
	if err := fairshare.CheckPattern(s); err != nil {
		r.fault(n, regexpHint(s), "%s: %v", what, err)
		return "", false
	}
	return s, true
}

// regexpHint returns a fix for usual mistakes in regexps.
func regexpHint(s string) string {
	switch {
	case strings.Contains(s, "(?=") || strings.Contains(s, "(?!") || strings.Contains(s, "(?<=") ||
		strings.Contains(s, "(?<!"):
		return "RE2 has no look-ahead and look-behind: use not: {…}"
	case strings.HasPrefix(s, "re:*"):
		return "in a regexp .* stands for any run of characters"
	}
	return ""
}

func (r *reader) hosts(n *node) []string {
	list := []string{}
	for _, item := range r.list(n, "host") {
		s, ok := r.pattern(item, "host")
		if !ok {
			continue
		}
		if !strings.HasPrefix(s, "re:") {
			if scheme, rest, found := strings.Cut(s, "://"); found {
				r.fault(item, "host: "+strings.TrimRight(rest, "/"), "host: a name without %s://", scheme)
				continue
			}
			if addr, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil && addr.Is6() && addr.Zone() == "" {
				list = append(list, "["+addr.String()+"]") // as in requests
				continue
			}
			if name, port, found := strings.Cut(s, ":"); found && plainDigits(port) {
				r.fault(item, "host: "+name, "host: a name without port: the port of a request is ignored")
				continue
			}
			if strings.HasSuffix(s, ".") && s != "." {
				s = strings.TrimSuffix(s, ".") // ignored in requests, too
			}
		}
		list = append(list, s)
	}
	return list
}

func (r *reader) methods(n *node) []string {
	list := []string{}
	for _, item := range r.list(n, "method") {
		s, ok := r.pattern(item, "method")
		if ok && s != "" && !isRegexp(s) && !isToken(s) {
			hint := ""
			if strings.ContainsAny(s, ", |") {
				hint = "write several values in brackets: [GET, HEAD]"
			}
			r.fault(item, hint, "method: %s is not a method", quote(s))
			continue
		}
		if ok {
			list = append(list, s)
		}
	}
	return list
}

// cookies reads names of cookies, and the words none and any.
func (r *reader) cookies(n *node) []string {
	list := []string{}
	for _, item := range r.list(n, "cookie") {
		s, ok := r.pattern(item, "cookie")
		if !ok {
			continue
		}
		if !item.quoted && (s == "false" || s == "true") {
			r.fault(item, map[string]string{"false": "cookie: none", "true": "cookie: any"}[s],
				"cookie: none, any, or names of cookies, not %s", s)
			continue
		}
		if name := strings.ReplaceAll(s, "*", ""); !strings.HasPrefix(s, "re:") && name != "" && !isToken(name) ||
			s == "" {
			hint := ""
			if cookie, _, found := strings.Cut(s, "="); found {
				hint = "only the name is compared: cookie: " + cookie
			}
			r.fault(item, hint, "cookie: %s is not a cookie name", quote(s))
			continue
		}
		list = append(list, s)
	}
	return list
}

// textMap reads a map of names to texts.
func (r *reader) textMap(n *node, what string) map[string][]string {
	if n.kind != mapNode || len(n.entries) == 0 {
		example := "header: {X-Requested-With: XMLHttpRequest}"
		switch what {
		case "query":
			example = `query: {s: "*"}`
		case "form":
			example = "form: {action: heartbeat}"
		}
		r.fault(n, example, "%s: a map of names to texts is needed, not %s", what, n.describe())
		return nil
	}
	texts := map[string][]string{}
	spelled := map[string]string{} // names as written, by name in lower case for headers
	for _, e := range n.entries {
		name := e.key.text
		folded := name
		if what == "header" {
			folded = strings.ToLower(name)
			if !isToken(name) {
				r.fault(e.key, "", "header: %s is not a header name", quote(name))
				continue
			}
		} else if _, ok := r.pattern(e.key, what); !ok {
			continue
		}
		if first, twice := spelled[folded]; twice {
			r.fault(e.key, "", "%s: %s is in this map twice", what, quote(first))
			continue
		}
		spelled[folded] = name
		texts[name] = r.patterns(e.value, name)
	}
	return texts
}

func (r *reader) nots(n *node) []fairshare.Match {
	items := []*node{n}
	if n.kind == listNode {
		items = r.list(n, "not")
	}
	var list []fairshare.Match
	for _, item := range items {
		if item.kind == mapNode && len(item.entries) == 0 {
			r.fault(item, "", "not: an empty match holds for every request, so the rule would never hold")
			continue
		}
		list = append(list, r.match(item, "not"))
	}
	return list
}
