package fairshare_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// mayImport lists, for each package, the packages of this module that it may
// import: imports point at the root. A package that is not listed may import
// the root alone; cmd may import all.
var mayImport = map[string][]string{
	"httpguard":          {"share"},
	"share":              {"share/capacity"},
	"internal/proxy":     {"httpguard"},
	"internal/replay":    {"internal/accesslog", "internal/census"},
	"internal/registrar": {"sqlregistry"},
	"internal/journal":   {"internal/lockfile"},
	"sqlregistry":        {"internal/lockfile"},
	"bots":               {"internal/prefixes"},
}

// standardOnly may be imported by other programs, which then need nothing
// else.
var standardOnly = []string{".", "httpguard", "memlimit", "share", "share/capacity"}

func TestImportsPointAtTheRoot(t *testing.T) {
	packages := 0
	err := filepath.WalkDir(".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == "testdata" || entry.Name() == "bench" || strings.HasPrefix(entry.Name(), ".") && file != ".") {
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
	own, ours := strings.CutPrefix(imported, "fairshare/")
	first, _, _ := strings.Cut(imported, "/")
	switch {
	case imported == "fairshare":
		if folder == "." {
			return "the root imports itself"
		}
		return ""
	case ours && folder == ".":
		return "the root imports no adapter"
	case ours && strings.HasPrefix(folder, "cmd/"), ours && strings.HasPrefix(folder, own+"/"), ours && strings.HasPrefix(own, folder+"/"):
		return ""
	case ours:
		for _, allowed := range mayImport[folder] {
			if own == allowed {
				return ""
			}
		}
		return "adapters do not import each other"
	case strings.Contains(first, "."):
		for _, standard := range standardOnly {
			if folder == standard {
				return "the standard library is enough here"
			}
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
		{".", "fairshare/memlimit", true},
		{".", "github.com/gaissmai/bart", true},
		{"memlimit", "fairshare", false},
		{"memlimit", "fairshare/httpguard", true},
		{"internal/proxy", "fairshare/httpguard", false},
		{"internal/replay", "fairshare/policyfile", true},
		{"policyfile", "github.com/goccy/go-yaml", false},
		{"httpguard", "github.com/dunglas/httpsfv", true},
		{"cmd/fairshare", "fairshare/internal/replay", false},
	} {
		if got := importFault(c.folder, c.imported); (got != "") != c.fault {
			t.Errorf("%s imports %s: %q, want a fault: %v", c.folder, c.imported, got, c.fault)
		}
	}
}
