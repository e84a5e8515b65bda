package sqlregistry

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"fairshare/internal/durable"
	"fairshare/internal/lockfile"
)

// create makes a registry. It builds the file under another name and renames it
// when it is complete, so that no process sees an incomplete file.
func create(ctx context.Context, path string, busy time.Duration, migrations []string) (err error) {
	made := path + ".new-" + strings.ToLower(rand.Text()[:8])
	if err := touch(made); err != nil {
		return folderFault(path, err)
	}
	defer func() {
		for _, suffix := range []string{"", "-journal", "-wal", "-shm"} {
			if e := os.Remove(made + suffix); e != nil && !errors.Is(e, fs.ErrNotExist) && err == nil {
				err = folderFault(path, e)
			}
		}
	}()
	l, err := connect(ctx, made, mode{mode: "rw", pragmas: []string{fmt.Sprintf("page_size = %d", pageSize),
		"synchronous = FULL"}}, busy, smallCache)
	if err != nil {
		return err
	}
	_, err = l.conn.ExecContext(ctx,
		fmt.Sprintf("BEGIN; PRAGMA application_id = %d; %s PRAGMA user_version = %d; COMMIT; PRAGMA journal_mode = WAL",
			applicationID, strings.Join(migrations, ""), len(migrations)))
	if err := errors.Join(err, l.close()); err != nil {
		return err
	}
	if err := moveIntoPlace(ctx, made, path); err != nil {
		return folderFault(path, err)
	}
	syncFolder(path)
	return nil
}

// moveIntoPlace renames a new registry, unless another process was faster. First it
// removes a -wal and -shm file that a deleted registry left behind: SQLite would
// apply them to the new file. The folder is locked meanwhile, so that these files
// cannot belong to the faster process.
func moveIntoPlace(ctx context.Context, made, path string) error {
	if folder, err := os.Open(filepath.Dir(path)); err == nil { // it may be written but not read
		defer folder.Close()
		for !lockfile.TryLock(folder) {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Millisecond):
			}
		}
	}
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	for _, suffix := range []string{"-journal", "-wal", "-shm"} {
		if err := os.Remove(path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	err := os.Link(made, path)
	switch {
	case err == nil || errors.Is(err, fs.ErrExist):
		return nil
	default: // not every file system can
		if _, there := os.Lstat(path); errors.Is(there, fs.ErrNotExist) {
			err = os.Rename(made, path)
		}
		return err
	}
}

// touch creates an empty file that only the owner of its folder can read.
func touch(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(chownToFolder(path), f.Close()); err != nil {
		_ = os.Remove(path)
		return err
	}
	return nil
}

// syncFolder syncs a file's folder. It ignores errors: the folder may be writable but not
// readable, and not every file system can sync a folder.
func syncFolder(path string) { _ = durable.SyncFolder(filepath.Dir(path)) }

// versionOf returns the version of a registry.
func versionOf(ctx context.Context, l *link, path string, known int) (int, error) {
	id, err := l.integer(ctx, "PRAGMA application_id")
	if err != nil {
		return 0, err
	}
	version, err := l.integer(ctx, "PRAGMA user_version")
	switch {
	case err != nil:
		return 0, err
	case id != applicationID || version < 1:
		return 0, &Error{Path: path, Kind: ErrDamaged, Details: "not a registry"}
	case int(version) > known:
		return 0, &Error{Path: path, Kind: ErrNewer, Details: fmt.Sprintf("it has version %d, this program knows %d",
			version, known)}
	}
	return int(version), nil
}

// migrate copies a registry and then updates it to the present version.
func (r *Registry) migrate(ctx context.Context, l *link, migrations []string) error {
	from, err := versionOf(ctx, l, r.path, len(migrations))
	if err != nil || from == len(migrations) {
		return err
	}
	copied := fmt.Sprintf("%s.v%d", r.path, from)
	if err := r.copyTo(ctx, l, copied); err != nil {
		return err
	}
	if _, err := l.conn.ExecContext(ctx, "PRAGMA synchronous = FULL; BEGIN IMMEDIATE"); err != nil {
		return err
	}
	now, err := versionOf(ctx, l, r.path, len(migrations)) // another process may have been faster
	if err == nil && now < len(migrations) {
		_, err = l.conn.ExecContext(ctx, fmt.Sprintf("%s; PRAGMA user_version = %d",
			strings.Join(migrations[now:], ";"), len(migrations)))
	}
	if err == nil {
		_, err = l.conn.ExecContext(ctx, "COMMIT; PRAGMA synchronous = NORMAL")
	}
	if err != nil {
		_, _ = l.conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		return err
	}
	r.o.Log(fmt.Sprintf("registry %s: updated from version %d to %d; a copy of the old file is %s", r.path, from,
		len(migrations), copied))
	return nil
}

// copyTo writes a copy of the registry, and replaces an earlier copy.
func (r *Registry) copyTo(ctx context.Context, l *link, path string) error {
	made := path + ".new-" + strings.ToLower(rand.Text()[:8])
	if err := touch(made); err != nil {
		return folderFault(r.path, err)
	}
	_, err := l.conn.ExecContext(ctx, "VACUUM INTO ?", made)
	if err == nil {
		err = syncFile(made)
	}
	if err == nil {
		err = os.Rename(made, path)
	}
	if err != nil {
		_ = os.Remove(made)
		return folderFault(r.path, err)
	}
	syncFolder(path)
	return nil
}

func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
