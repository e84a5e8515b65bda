//go:build !unix

package sqlregistry

func give(string) error { return nil }
