//go:build !linux

package inbound

import "net"

func turnAway(net.Listener)          {}
func someoneWaits(net.Listener) bool { return false }

// canTurnAway says whether turnAway does anything.
const canTurnAway = false
