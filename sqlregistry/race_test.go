//go:build race

package sqlregistry

// SQLite is Go here: under the race detector it is some ten times slower, and
// tests do less of the same.
const slower = 10
