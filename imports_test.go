package fairshare_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"fairshare"
)

// mayImport lists the packages of this module that each package may import, in
// addition to the root, the registry and the leaves. Imports point at the root.
// cmd may import all packages.
var mayImport = map[string][]string{
	"memlimit":       {"membans"},
	"redislimit":     {"memlimit"},
	"httpguard":      {"browser", "fleets", "logins", "memlimit", "robots", "share", "texts", "visitor", "waitingroom"},
	"waitingroom":    {"texts"},
	"fleets":         {"browser"},
	"visitor":        {"memlimit"},
	"share":          {"share/capacity"},
	"policyfile":     {"botauth", "texts", "waitingroom"}, // the form of agents; texts; bounds
	"internal/proxy": {"httpguard", "internal/outbound"},
	"internal/replay": {"browser", "fleets", "internal/accesslog", "internal/census", "logins", "membans",
		"robots"},
	"internal/cputime": {"httpguard"},
	"internal/journal": {"internal/lockfile"},
	"sqlregistry":      {"internal/lockfile"},
	"bots":             {"botauth", "internal/prefixes"},

	// livepolicy puts a policy file in force; site and internal/serve are the composition roots that
	// give it to a program and to the reverse proxy.
	"internal/livepolicy": {"asn", "botauth", "bots", "browser", "clientaddr", "fleets", "httpguard",
		"internal/amount", "internal/banexport", "internal/census", "internal/journal", "internal/lockfile",
		"internal/registrar", "internal/reports", "internal/sessions", "internal/setup", "internal/storebans",
		"logins", "membans", "memlimit",
		"pgregistry", "policyfile", "redislimit", "robots", "share", "sqlregistry", "texts", "visitor", "waitingroom"},
	// traffic counts for the operator's eyes, and console shows it with all else that a server knows.
	"internal/storebans": {"redislimit"},
	"internal/reports":   {"httpguard"},
	"internal/census":    {"httpguard", "internal/reports"},
	"internal/traffic":   {"internal/reports", "internal/toplist"},
	"internal/console": {"clientaddr", "httpguard", "internal/amount", "internal/census", "internal/livepolicy",
		"internal/operator", "internal/toplist", "internal/traffic", "policyfile"},
	"internal/admin":     {"internal/inbound"},
	"internal/adminapi":  {"internal/console"},
	"internal/dashboard": {"internal/console", "internal/traffic"},
	"internal/top":       {"internal/console"},
	"internal/remote":    {"internal/adminapi", "internal/console", "internal/traffic"},
	"internal/acmecerts": {"internal/lockfile"},
	"internal/serve": {"clientaddr", "clientaddr/proxyprotocol", "httpguard", "internal/acmecerts", "internal/admin",
		"internal/adminapi",
		"internal/console", "internal/dashboard",
		"internal/cputime", "internal/traffic",
		"internal/inbound", "internal/journal", "internal/livepolicy", "internal/proxy", "internal/reports",
		"internal/sessions",
		"internal/lockfile", "internal/otlp", "internal/setup", "internal/systemd", "policyfile", "redislimit",
		"internal/accesslog", "internal/watch"}, // of forward-auth
	"internal/watch": {"httpguard", "internal/accesslog", "internal/journal", "internal/livepolicy",
		"internal/replay",
		"internal/setup", "internal/systemd", "policyfile"},
	"site": {"httpguard", "internal/livepolicy", "internal/sessions", "internal/setup", "policyfile"},

	// The commands check, bot and replay, which need a policy but no server.
	"internal/check": {"asn", "botauth", "bots", "browser", "internal/amount", "clientaddr", "internal/livepolicy",
		"internal/proxy", "internal/setup", "internal/storebans", "logins", "membans",
		"memlimit", "policyfile", "redislimit", "robots"},
	"internal/logreplay": {"asn", "clientaddr", "internal/accesslog", "internal/amount", "internal/lookup",
		"internal/operator", "internal/registrar", "internal/replay", "internal/setup", "memlimit", "policyfile",
		"sqlregistry"},

	// What serve, site and the commands share to open a policy file.
	"internal/setup": {"asn", "botauth", "bots", "clientaddr", "internal/lookup", "internal/prefixes",
		"pgregistry", "sqlregistry",
		"internal/proxy",
		"policyfile", "redislimit", "robots"},
	"internal/operator": {"asn", "bots", "clientaddr", "internal/amount", "internal/lockfile", "internal/setup",
		"policyfile", "sqlregistry"},
}

// leaves may be imported by every adapter; the root may import internal/network and
// internal/offheap alone. They import nothing of this module.
var leaves = []string{"internal/cli", "internal/durable", "internal/httpfield", "internal/network",
	"internal/offheap", "internal/prose", "internal/socket"}

// standardOnly may be imported by other programs, which then need nothing
// else.
var standardOnly = []string{".", "registry", "registry/key", "internal/durable", "internal/network",
	"internal/offheap", "httpguard",
	"httpguard/httpguardtest", "fleets", "membans", "memlimit", "share", "share/capacity", "visitor", "waitingroom",
	"internal/prose", "browser", "robots", "logins", "texts"}

// otherModules are folders with a module of their own.
var otherModules = []string{"examples/servers", "packaging", "deploy/caddy", "internal/acmetest"}

// modulePath is the path of this module.
var modulePath = reflect.TypeFor[fairshare.Guard]().PkgPath()

func TestImportsPointAtTheRoot(t *testing.T) {
	packages := 0
	err := filepath.WalkDir(".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == "testdata" || entry.Name() == "bench" ||
			slices.Contains(otherModules, file) || strings.HasPrefix(entry.Name(), ".") && file != ".") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		packages++
		folder := path.Dir(filepath.ToSlash(file))
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if fault := importFault(folder, imported); fault != "" {
				t.Errorf("%s imports %s: %s", file, imported, fault)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if packages < 10 {
		t.Errorf("only %d files were looked at", packages)
	}
}

func importFault(folder, imported string) string {
	own, ours := strings.CutPrefix(imported, modulePath+"/")
	first, _, _ := strings.Cut(imported, "/")
	switch {
	case imported == modulePath:
		if folder == "." {
			return "the root imports itself"
		}
		return ""
	case folder == "." && (own == "internal/network" || own == "internal/offheap"):
		return ""
	case ours && folder == ".":
		return "the root imports no adapter"
	case ours && strings.HasPrefix(folder, "cmd/"), ours && strings.HasPrefix(folder, own+"/"),
		ours && strings.HasPrefix(own, folder+"/"):
		return ""
	case ours && slices.Contains(leaves, folder):
		return "a leaf imports nothing of this module"
	case ours && folder == "registry":
		return "the records need only the root"
	case own == "registry", own == "registry/key": // plain values, as those of the root
		return ""
	case ours && slices.Contains(leaves, own):
		return ""
	case ours:
		if slices.Contains(mayImport[folder], own) {
			return ""
		}
		return "adapters do not import each other"
	case strings.Contains(first, "."):
		if slices.Contains(standardOnly, folder) {
			return "the standard library is enough here"
		}
	}
	return ""
}

func TestImportFault(t *testing.T) {
	for _, c := range []struct {
		folder, imported string
		fault            bool
	}{
		{".", "net/netip", false},
		{".", modulePath + "/memlimit", true},
		{".", "github.com/gaissmai/bart", true},
		{".", modulePath + "/internal/network", false},
		{"share", modulePath + "/internal/network", false},
		{"internal/network", modulePath + "/share", true},
		{"internal/network", "github.com/gaissmai/bart", true},
		{"memlimit", modulePath, false},
		{"sqlregistry", modulePath + "/registry", false},
		{"registry", modulePath + "/sqlregistry", true},
		{"registry", modulePath + "/internal/prose", true},
		{".", modulePath + "/registry", true},
		{"memlimit", modulePath + "/httpguard", true},
		{"internal/proxy", modulePath + "/httpguard", false},
		{"internal/replay", modulePath + "/policyfile", true},
		{"internal/replay", modulePath + "/internal/prose", false},
		{".", modulePath + "/internal/prose", true},
		{"internal/prose", modulePath + "/policyfile", true},
		{"internal/prose", "github.com/dustin/go-humanize", true},
		{"policyfile", "github.com/goccy/go-yaml", false},
		{"httpguard", "github.com/dunglas/httpsfv", true},
		{"cmd/fairshare", modulePath + "/internal/replay", false},
	} {
		if got := importFault(c.folder, c.imported); (got != "") != c.fault {
			t.Errorf("%s imports %s: %q, want a fault: %v", c.folder, c.imported, got, c.fault)
		}
	}
}
