package memlimit

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"fairshare/internal/durable"
)

const (
	newEnding = ".new-" // of files on their way
	badEnding = ".bad"
)

// SaveFile is [Limiter.Save] to a file of mode 0600. The file is whole at any
// moment, whatever becomes of the program: it is replaced when the new one is
// on the disk. What writes that were cut short have left is removed. Of two
// that save to one path at once, one may get an error.
func (l *Limiter) SaveFile(path string, now time.Time) (err error) {
	folder, name := filepath.Split(path)
	if folder == "" {
		folder = "."
	}
	if err := sweep(folder, name+newEnding); err != nil {
		return fmt.Errorf("saving the counters: %w", err)
	}
	f, err := os.CreateTemp(folder, name+newEnding+"*") // 0600
	if err != nil {
		return fmt.Errorf("saving the counters: %w", err)
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
			err = fmt.Errorf("saving the counters: %w", err)
		}
	}()
	if err := l.Save(f, now); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return durable.SyncFolder(folder)
}

// LoadFile is [Limiter.Load] from a file. The error is fs.ErrNotExist if there
// is none, and ErrUnusable if it is at fault, see [SetAside].
func (l *Limiter) LoadFile(path string, now time.Time) (Loaded, error) {
	f, err := os.Open(path)
	if err != nil {
		return Loaded{}, err
	}
	defer f.Close()
	loaded, err := l.Load(f, now)
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return loaded, err
}

// SavedAt returns the time of a snapshot in a file.
func SavedAt(path string) (time.Time, error) {
	f, err := os.Open(path)
	if err != nil {
		return time.Time{}, err
	}
	defer f.Close()
	in := &snapshot{r: bufio.NewReader(f)}
	head, err := in.next(len(snapshotName + snapshotFormat))
	if err == nil && string(head) != snapshotName+snapshotFormat {
		err = unusable("it is not a snapshot of this format")
	}
	if err == nil {
		_, err = in.next(16 + 8) // seed and sets
	}
	if err == nil {
		head, err = in.next(8)
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("%s: %w", path, err)
	}
	return time.Unix(0, int64(binary.LittleEndian.Uint64(head))), nil
}

// SetAside renames a file that cannot be used, so that it can be looked at and
// is not in the way, and returns its new path. One is kept, the latest.
func SetAside(path string) (to string, err error) {
	to = path + badEnding
	if err := os.Rename(path, to); err != nil {
		return "", err
	}
	folder, _ := filepath.Split(path)
	return to, durable.SyncFolder(folder)
}

// sweep removes the files of a folder whose names begin like that.
func sweep(folder, beginning string) error {
	d, err := os.Open(folder)
	if err != nil {
		return err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	for _, name := range names {
		if strings.HasPrefix(name, beginning) {
			err = errors.Join(err, os.Remove(filepath.Join(folder, name)))
		}
	}
	return err
}
