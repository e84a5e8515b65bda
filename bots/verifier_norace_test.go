//go:build !race

package bots

const underRace = false
