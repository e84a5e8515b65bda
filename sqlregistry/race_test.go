//go:build race

package sqlregistry

// SQLite is compiled to Go, and about ten times slower under the race detector. So the
// tests do fewer steps.
const slower = 10
