//go:build race

package bots

const underRace = true
