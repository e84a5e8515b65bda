//go:build unix

package prefixes

import "os"

// syncFolder writes a rename to the disk.
func syncFolder(folder string) error {
	d, err := os.Open(folder)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
