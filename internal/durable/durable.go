// Package durable makes changes of folders survive a power failure.
package durable

import "os"

// SyncFolder writes a folder to the disk, so that a rename or a new file in it survives a power
// failure. "" means the working folder. On systems that cannot sync folders it does nothing. The
// error may also mean that the folder cannot be read, or that the file system cannot sync it; the
// change in the folder was made nevertheless.
func SyncFolder(path string) error {
	if !canSync {
		return nil
	}
	if path == "" {
		path = "."
	}
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
