//go:build !unix

package operator

// chownToFolder does nothing: a file has the owner of its folder.
func chownToFolder(dir, path string) {}

// sudoFor returns what makes a command that of a folder's owner.
func sudoFor(string) string { return "sudo" }
