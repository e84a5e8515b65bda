package main

import (
	"testing"

	"fairshare/examples/servers/internal/servertest"
)

func TestSite(t *testing.T) { servertest.Run(t, newSite) }
