//go:build !unix

package sqlregistry

func chownToFolder(string) error { return nil }
