//go:build race

package registrar_test

const raceEnabled = true
