//go:build !race

package sqlregistry

const slower = 1
