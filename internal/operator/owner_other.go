//go:build !unix

package operator

// chownToFolder does nothing: a file has the owner of its folder.
func chownToFolder(dir, path string) {}

// sudoFor returns the command that runs a program as the owner of a folder.
func sudoFor(string) string { return "sudo" }
