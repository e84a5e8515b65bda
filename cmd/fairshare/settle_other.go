//go:build !linux

package main

// forgetPages does nothing: the system decides.
func forgetPages() {}
