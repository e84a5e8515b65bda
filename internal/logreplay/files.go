package logreplay

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"fairshare/internal/accesslog"
	"fairshare/internal/cli"
)

// logError adds a hint to the error of a log that cannot be read.
func logError(err error) error {
	var format *accesslog.FormatError
	var path *fs.PathError
	switch {
	case errors.As(err, &format) && format.Format != "": // that of --format
		return cli.WrongUsage(cli.Hint(err, format.Hint))
	case errors.As(err, &format) && format.Hint != "":
		return cli.Hint(err, format.Hint)
	case errors.As(err, &path) && errors.Is(err, fs.ErrNotExist):
		return cli.Hint(err,
			"servers keep their logs in /var/log/nginx, /var/log/apache2 or /var/log/caddy; - reads standard input")
	case errors.As(err, &path) && isDirectory(path.Path):
		return cli.Hint(err, "name the logs in it, as in "+filepath.Join(path.Path, "access.log*"))
	case errors.As(err, &path) && errors.Is(err, fs.ErrPermission):
		return cli.Hint(err,
			"logs are often readable for root and the group adm only: run it with sudo, or copy the log")
	}
	return err
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// An outputFile is a file that a replay writes. It is created only when the logs can
// be read.
type outputFile struct {
	flag     string // that names it
	path     string
	*os.File // nil before create and after Close
}

// create creates the file. It must not be one of the logs.
func (f *outputFile) create(logs []string) error {
	if existing, err := os.Stat(f.path); err == nil {
		for _, path := range logs {
			if log, err := os.Stat(path); path != "-" && err == nil && os.SameFile(existing, log) {
				return cli.WrongUsage(fmt.Errorf("%s: %s is a log to be read: it would be overwritten", f.flag, f.path))
			}
		}
	}
	file, err := os.Create(f.path)
	if err != nil {
		return cli.Hint(fmt.Errorf("%s: %w", f.flag, err),
			"name a file in "+filepath.Clean(filepath.Dir(f.path))+" that can be written, or another directory")
	}
	f.File = file
	return nil
}

// Close closes the file, if it is open.
func (f *outputFile) Close() error {
	if f.File == nil {
		return nil
	}
	err := f.File.Close()
	f.File = nil
	return err
}
