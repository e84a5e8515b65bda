//go:build !unix

package inbound

func openFiles() uint64 { return 0 }
