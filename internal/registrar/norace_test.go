//go:build !race

package registrar_test

const raceEnabled = false
