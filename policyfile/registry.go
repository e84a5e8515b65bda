package policyfile

import (
	"net/url"
	"slices"
	"strings"
	"time"
)

// A Registry bounds the records of clients; 0 means the default. A client with a
// ban, a label, a note or an operator's decision is deleted last.
type Registry struct {
	Clients int           // number of clients
	Stories int           // number of recorded refusals
	Age     time.Duration // since the last request, after which clients and refusals are deleted

	URL          string // of the PostgreSQL registry that several servers share; "": each server has a file
	Schema       string // of its tables; "" means fairshare
	ListenURL    string // of the server itself, if URL is that of a pooler; "" means URL
	PasswordFile string // its name as written; "" for none
}

// Defaults and bounds of the registry.
const (
	DefaultRegistryClients = 1_000_000
	DefaultRegistryStories = 100_000
	DefaultRegistryAge     = 90 * 24 * time.Hour

	minRegistryClients = 1000
	maxRegistryClients = 100_000_000
	minRegistryStories = 100
	maxRegistryStories = 10_000_000
	minRegistryAge     = time.Hour
	maxRegistryAge     = 3650 * 24 * time.Hour
)

func registryKeys() []key[Registry] {
	return []key[Registry]{
		{"clients", func(r *reader, n *node, g *Registry) {
			g.Clients = int(r.integer(n, "clients", minRegistryClients, maxRegistryClients))
		}},
		{"stories", func(r *reader, n *node, g *Registry) {
			g.Stories = int(r.integer(n, "stories", minRegistryStories, maxRegistryStories))
		}},
		{"age", func(r *reader, n *node, g *Registry) {
			if n.kind == scalarNode && plainDigits(n.text) {
				r.fault(n, "age: "+shorten(n.text)+"d", "age: a duration is needed, such as 90d, not %s", n.describe())
				return
			}
			g.Age = r.duration(n, "age", minRegistryAge, maxRegistryAge)
		}},
		{"url", func(r *reader, n *node, g *Registry) { g.URL = r.databaseURL(n, "url") }},
		{"password_file", func(r *reader, n *node, g *Registry) {
			g.PasswordFile = r.fileName(n, "password_file", "")
		}},
		{"listen_url", func(r *reader, n *node, g *Registry) { g.ListenURL = r.databaseURL(n, "listen_url") }},
		{"schema", func(r *reader, n *node, g *Registry) { g.Schema = r.schema(n) }},
	}
}

// databaseURL reads the URL of a PostgreSQL server.
func (r *reader) databaseURL(n *node, what string) string {
	const example = "postgres://db/shop?sslmode=verify-full"
	s := r.line(n, what)
	if s == "" {
		return ""
	}
	u, err := url.Parse(s)
	switch {
	case err != nil, u.Scheme != "postgres" && u.Scheme != "postgresql": // the text may contain a password
		r.fault(n, what+": "+example, "%s: the URL of a PostgreSQL server is needed", what)
		return ""
	}
	if _, has := u.User.Password(); has || u.Query().Has("password") {
		r.fault(n, "write it to a file that only fairshare can read, and name that: password_file: db.password",
			"%s: a password does not belong in the URL, which logs and lists of processes show", what)
		return ""
	}
	return s
}

// schema reads the name of a schema.
func (r *reader) schema(n *node) string {
	s := r.line(n, "schema")
	const allowed = "abcdefghijklmnopqrstuvwxyz_0123456789"
	if s != "" && (len(s) > 40 || strings.Trim(s, allowed) != "" || s[0] >= '0' && s[0] <= '9') {
		r.fault(n, "schema: fairshare_shop", "schema: up to 40 lower-case letters, digits and _ are needed, not %s", quote(s))
		return ""
	}
	return s
}

func readRegistry(r *reader, n *node, f *File) {
	const example = "{clients: 1000000, stories: 100000, age: 90d}"
	if n.kind == scalarNode {
		hint := "registry: " + example
		switch word := strings.ToLower(n.text); {
		case slices.Contains([]string{"none", "off", "false", "no", "never"}, word):
			hint = "fairshare serve --registry none runs without a registry"
		case strings.ContainsAny(word, `/\`) || strings.HasSuffix(word, ".db") || strings.Contains(word, "sqlite"):
			hint = "fairshare serve --state DIR sets its folder"
		case strings.Contains(word, "postgres"):
			hint = "registry: {url: \"postgres://db/shop?sslmode=verify-full\", password_file: db.password}"
		}
		r.fault(n, hint, "registry: a map is needed, not %s", n.describe())
		return
	}
	if got := readMap(r, n, "registry", example, registryKeys(), &f.Registry); got != nil && len(n.entries) == 0 {
		r.fault(n, "registry: "+example, "registry: the map is empty")
	} else if got != nil && !got.has("url") {
		for _, name := range []string{"password_file", "listen_url", "schema"} {
			if got.has(name) {
				r.fault(got.at(name), "add url: postgres://db/shop?sslmode=verify-full", "registry: %s needs url", name)
			}
		}
	}
}
