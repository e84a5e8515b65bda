//go:build !unix

package prefixes

// syncFolder does nothing: a folder cannot be synced here.
func syncFolder(string) error { return nil }
