package banexport

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"fairshare/internal/durable"
)

// A bansFile is a file that is replaced as a whole, so that no reader sees a part of it.
type bansFile struct {
	path    string
	private bool // only the user of this process may read a new one
}

// holds reports whether the file has this content.
func (f bansFile) holds(content []byte) bool {
	present, err := os.ReadFile(f.path)
	return err == nil && bytes.Equal(present, content)
}

// replace writes the whole file. It keeps its permissions; a new one can be read by all
// unless it is private.
func (f bansFile) replace(content []byte) (err error) {
	path := f.path
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	mode := fs.FileMode(0o644)
	if f.private {
		mode = 0o600
	}
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	next, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			next.Close()
			os.Remove(next.Name())
		}
	}()
	if _, err = next.Write(content); err != nil {
		return err
	}
	if err = next.Chmod(mode); err != nil {
		return err
	}
	if err = next.Sync(); err != nil {
		return err
	}
	if err = next.Close(); err != nil {
		return err
	}
	if err = os.Rename(next.Name(), path); err != nil {
		return err
	}
	return durable.SyncFolder(filepath.Dir(path))
}

// untilText says when a ban ends, for people.
func untilText(b *Ban) string {
	text := "until unbanned"
	if !b.Until.IsZero() {
		text = "until " + b.Until.UTC().Format(time.RFC3339)
	}
	if b.Rule != "" {
		return text + ", rule " + fmt.Sprintf("%q", b.Rule)
	}
	return text + ", an operator"
}
