//go:build !linux

package inbound

import "net"

func refuseNew(net.Listener)      {}
func hasQueued(net.Listener) bool { return false }

// canRefuse reports whether refuseNew has an effect.
const canRefuse = false
