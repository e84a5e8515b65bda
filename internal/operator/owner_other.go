//go:build !unix

package operator

// giveTo does nothing: files belong to whom their folder belongs to.
func giveTo(dir, path string) {}

// sudoFor returns what makes a command that of a folder's owner.
func sudoFor(string) string { return "sudo" }
