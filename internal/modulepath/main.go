// Command modulepath changes the path of this module, and of the modules below
// it, everywhere: in go.mod files, imports, and the README. Call it in the root
// of a checkout with the new path:
//
//	go run ./internal/modulepath example.org/fairshare
package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run ./internal/modulepath PATH")
		os.Exit(2)
	}
	if err := change(".", os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "modulepath:", err)
		os.Exit(1)
	}
}

// change gives the module in the folder root the path to.
func change(root, to string) error {
	from, err := modulePath(root)
	if err != nil {
		return err
	}
	if err := editModule(root, "-module", to); err != nil {
		return err // the path is wrong: nothing has changed yet
	}
	return filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && file != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata"):
			return filepath.SkipDir
		case entry.Name() == "go.mod" && filepath.Dir(file) != filepath.Clean(root):
			return changeNested(root, filepath.Dir(file), from, to)
		case strings.HasSuffix(file, ".go"):
			return changeImports(file, from, to)
		case entry.Name() == "README.md":
			return changeText(file, "-require "+from+"@", "-require "+to+"@", "-replace "+from+"=", "-replace "+to+"=")
		}
		return nil
	})
}

// modulePath returns the path of the module in a folder.
func modulePath(folder string) (string, error) {
	text, err := os.ReadFile(filepath.Join(folder, "go.mod"))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if path, ok := strings.CutPrefix(line, "module "); ok {
			return strings.TrimSpace(path), nil
		}
	}
	return "", errors.New("go.mod has no module line")
}

// moved returns path under the new module path, or path itself if it belongs
// to another module.
func moved(path, from, to string) string {
	if rest, ok := strings.CutPrefix(path, from); ok && (rest == "" || rest[0] == '/') {
		return to + rest
	}
	return path
}

// changeNested edits the go.mod of a module below the root. If it uses the root
// module, it replaces that by its folder.
func changeNested(root, folder, from, to string) error {
	own, err := modulePath(folder)
	if err != nil {
		return err
	}
	above, err := filepath.Rel(folder, root)
	if err != nil {
		return err
	}
	args := []string{"-module", moved(own, from, to)}
	text, err := os.ReadFile(filepath.Join(folder, "go.mod"))
	if err != nil {
		return err
	}
	if strings.Contains(string(text), from+" v0.0.0") { // it uses the root module
		args = append(args, "-droprequire", from, "-require", to+"@v0.0.0",
			"-dropreplace", from, "-replace", to+"="+filepath.ToSlash(above)+"/")
	}
	return editModule(folder, args...)
}

func editModule(folder string, args ...string) error {
	cmd := exec.Command("go", append([]string{"mod", "edit"}, args...)...)
	cmd.Dir = folder
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go mod edit in %s: %w: %s", folder, err, bytes.TrimSpace(out))
	}
	return nil
}

func changeImports(file, from, to string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, file, text, parser.ImportsOnly)
	if err != nil {
		return err
	}
	var out []byte
	done := 0
	for _, spec := range parsed.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return err
		}
		if next := moved(path, from, to); next != path {
			begin, end := files.Position(spec.Path.Pos()).Offset, files.Position(spec.Path.End()).Offset
			out = strconv.AppendQuote(append(out, text[done:begin]...), next)
			done = end
		}
	}
	if done == 0 {
		return nil
	}
	if out, err = format.Source(append(out, text[done:]...)); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, out, 0o666)
}

func changeText(file string, oldnew ...string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if next := strings.NewReplacer(oldnew...).Replace(string(text)); next != string(text) {
		return os.WriteFile(file, []byte(next), 0o666)
	}
	return nil
}
