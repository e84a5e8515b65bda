package policyfile

import (
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"fairshare"
)

// A Source is the file or URL of a list.
type Source struct {
	Name  string
	File  string        // see File.ResolvePath; "" if the list comes from URL
	URL   string        // http or https
	Every time.Duration // how often the URL is fetched; 0 for a file, which is read again when it changes
	Set   *AddrSet      // the list: AddrSet.Replace gives it its prefixes
}

// DefaultEvery is how often a list is fetched from its URL.
const DefaultEvery = 24 * time.Hour

const (
	maxSources = 100 // lists from files and URLs; each is updated on its own
	minEvery   = time.Minute
	maxEvery   = 31 * 24 * time.Hour
)

func listKeys() []key[Source] {
	return []key[Source]{
		{"file", func(r *reader, n *node, s *Source) { s.File = r.fileName(n, "file", "url") }},
		{"url", func(r *reader, n *node, s *Source) { s.URL = r.sourceURL(n) }},
		{"every", func(r *reader, n *node, s *Source) { s.Every = r.duration(n, "every", minEvery, maxEvery) }},
	}
}

func readLists(r *reader, n *node, f *File) {
	if n.kind != mapNode {
		r.fault(n, "lists: {office: [192.0.2.0/24]}", "lists: a map of names and addresses is needed, not %s",
			n.describe())
		return
	}
	f.Lists = map[string]*AddrSet{}
	for _, e := range n.entries {
		name := e.key.text
		switch {
		case f.Lists[name] != nil:
			r.fault(e.key, "", "the list %s is listed twice", quote(name))
			continue
		case name == "" || strings.ContainsFunc(name, control):
			r.fault(e.key, "", "a list needs a name, without control characters")
			continue
		case slices.Contains(fixedNames, name):
			r.fault(e.key, "", "lists: the name %s has a fixed meaning and cannot be redefined", quote(name))
			continue
		case looksLikeAddr(name):
			r.fault(e.key, "", "lists: %s looks like an address", quote(name))
			continue
		}
		if e.value.kind == mapNode && len(f.Sources) == maxSources {
			r.fault(e.key, "", "lists: more than %d come from files and URLs", maxSources)
			return
		}
		if e.value.kind == mapNode {
			f.Lists[name] = r.listSource(name, e.value)
			continue
		}
		if e.value.kind == listNode && len(e.value.items) == 0 {
			f.Lists[name] = &AddrSet{} // an empty list is valid
			continue
		}
		if e.value.kind == scalarNode {
			if s := e.value.text; strings.Contains(s, "://") {
				r.fault(e.value, "{url: "+shorten(s)+"}", "lists: %s is neither an address nor a prefix", quote(s))
				f.Lists[name] = &AddrSet{}
				continue
			} else if listFile(s) {
				r.fault(e.value, "{file: "+shorten(s)+"}", "lists: %s is neither an address nor a prefix", quote(s))
				f.Lists[name] = &AddrSet{}
				continue
			}
		}
		f.Lists[name] = r.addrs(e.value, "lists", nil)
	}
}

// listFile reports whether s looks like the name of a file with a list.
func listFile(s string) bool {
	return slices.Contains([]string{".txt", ".json", ".list", ".netset", ".ipset", ".zone"}, filepath.Ext(s))
}

// listSource reads the source of a list, and returns the list's empty set.
func (r *reader) listSource(name string, n *node) *AddrSet {
	s := Source{Name: name, Set: &AddrSet{external: true}}
	got := readMap(r, n, "a list", "", listKeys(), &s)
	switch {
	case got.has("file") && got.has("url"):
		r.fault(got.at("url"), "make two lists, and name both in the rule",
			"lists: url and file: a list has only one source")
	case !got.has("file") && !got.has("url"):
		if got.has("every") || len(n.entries) == 0 {
			r.fault(n, "{file: drop.txt}, {url: https://…, every: 1h}, or the addresses themselves: [192.0.2.0/24]",
				"lists: a file or url is needed")
		}
	case got.has("every") && got.has("file"):
		r.fault(got.at("every"), "remove it: a file is read again when it changes", "every belongs to a url")
	case got.has("url") && s.Every == 0:
		s.Every = DefaultEvery
	}
	r.file.Sources = append(r.file.Sources, s)
	return s.Set
}

// fetched reports whether the list of that name comes from a URL.
func (r *reader) fetched(name string) bool {
	return slices.ContainsFunc(r.file.Sources, func(s Source) bool { return s.Name == name && s.URL != "" })
}

// fileName reads the name of a file that Parse does not open. urlKey is the key
// for a URL instead of the file; "" if there is none.
func (r *reader) fileName(n *node, what, urlKey string) string {
	if n.kind == listNode {
		r.fault(n, "give each file its own name", "%s: one file is needed, not a list", what)
		return ""
	}
	s := r.line(n, what)
	switch {
	case s == "":
	case strings.Contains(s, "://"):
		hint := "download it into a file"
		if urlKey != "" {
			hint = urlKey + ": " + shorten(s)
		}
		if rest, ok := strings.CutPrefix(s, "file://"); ok {
			hint = what + ": " + shorten(rest)
		}
		r.fault(n, hint, "%s: a file is needed, not a URL", what)
	case s == "-" || strings.HasSuffix(s, "/") || s == "." || s == "..":
		r.fault(n, "", "%s: %s is not a file", what, quote(s))
	case strings.HasPrefix(s, "~"):
		r.fault(n, "write the full path", "%s: ~ is not expanded here", what)
	case strings.ContainsAny(s, "*?"):
		r.fault(n, "", "%s: one file is needed, not the pattern %s", what, quote(s))
	case r.sameFile(s, filepath.Base(r.file.Name)):
		r.fault(n, "", "%s: this is the policy file itself", what)
	default:
		r.file.references = append(r.file.references, fileReference{s, n.line, n.column, r.source(n.line)})
		return s
	}
	return ""
}

// sourceURL reads the URL of a list.
func (r *reader) sourceURL(n *node) string {
	s := r.line(n, "url")
	if s == "" {
		return ""
	}
	u, err := url.Parse(s)
	if _, query, found := strings.Cut(s, "?"); found && query != "" {
		r.hideSecret(query) // it may contain a key
	}
	redacted := withoutQuery(s)
	hint := ""
	switch {
	case err == nil && u.User != nil:
		r.fault(n, "download it into a file", "url: a name or password in it would appear in logs")
		return ""
	case err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && u.Fragment == "":
		return s
	case err == nil && u.Fragment != "":
		hint = "url: " + shorten(strings.TrimSuffix(redacted, "#"+u.EscapedFragment()))
	case strings.HasPrefix(s, "file://"):
		hint = "file: " + shorten(strings.TrimPrefix(redacted, "file://"))
	case !strings.Contains(s, "://") && strings.HasPrefix(s, "/"), strings.HasPrefix(s, "./"),
		listFile(s) && !strings.Contains(s, "/"):
		hint = "file: " + shorten(redacted)
	case !strings.Contains(s, "://"):
		hint = "url: https://" + shorten(redacted)
	}
	r.fault(n, hint, "url: http or https, a host and a path are needed, not %s", quote(redacted))
	return ""
}

// withoutQuery returns a URL with "…" instead of its query, which may contain a
// key.
func withoutQuery(s string) string {
	address, query, _ := strings.Cut(s, "?")
	if query != "" {
		return address + "?…"
	}
	return address
}

// usedLists returns the lists and the DNS lists that rules use.
func (r *reader) usedLists() (sets map[*AddrSet]bool, dns map[string]bool) {
	sets, dns = map[*AddrSet]bool{}, map[string]bool{}
	var look func(m *fairshare.Match)
	look = func(m *fairshare.Match) {
		if set, ok := m.Addr.(*AddrSet); ok {
			for _, list := range set.lists {
				sets[list] = true
			}
		}
		for _, l := range m.Listed {
			dns[l.List] = true
		}
		for i := range m.Not {
			look(&m.Not[i])
		}
	}
	for i := range r.file.Policy.Rules {
		rule := &r.file.Policy.Rules[i]
		look(&rule.Match)
		if rule.Ban != nil && rule.Ban.Unless != nil {
			look(rule.Ban.Unless)
		}
	}
	return sets, dns
}

// warnSources warns of lists that no rule uses, of lists that others on the network
// can change, and of URLs of pages instead of files.
func (r *reader) warnSources() {
	sets, dns := r.usedLists()
	for name := range r.file.DNS.Lists {
		if !dns[name] {
			r.warn(firstNode(find(find(find(r.root, "dns"), "lists"), name)), "match: {method: POST, listed: "+name+"}",
				"dns: no rule uses the list %s", quote(name))
		}
	}
	lists := find(r.root, "lists")
	for _, s := range r.file.Sources {
		at := find(find(lists, s.Name), "url")
		if !sets[s.Set] && !slices.Contains(r.file.TrustedProxies, s.Name) {
			r.warn(firstNode(at, find(find(lists, s.Name), "file")), "match: {addr: "+s.Name+"}",
				"lists: no rule uses the list %s", quote(s.Name))
		}
		if at == nil {
			continue
		}
		u, err := url.Parse(s.URL)
		if err != nil {
			continue
		}
		switch host := strings.ToLower(u.Hostname()); {
		case host == "github.com" && strings.Contains(u.Path, "/blob/"):
			r.warn(at, "url: https://raw.githubusercontent.com"+strings.Replace(u.Path, "/blob/", "/", 1),
				"url: this is a page about the file, not the file itself")
		case u.Scheme == "http" && host != "localhost" && !strings.HasPrefix(host, "127.") && host != "::1":
			r.warn(at, "use https, if the site supports it",
				"url: with http, anybody on the network path can change the list %s",
				quote(s.Name))
		}
	}
}
