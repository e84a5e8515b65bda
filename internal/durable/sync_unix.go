//go:build unix

package durable

const canSync = true
