package policyfile

import (
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
	}
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
		}
		r.fault(n, hint, "registry: a map is needed, not %s", n.describe())
		return
	}
	if got := readMap(r, n, "registry", example, registryKeys(), &f.Registry); got != nil && len(n.entries) == 0 {
		r.fault(n, "registry: "+example, "registry: the map is empty")
	}
}
