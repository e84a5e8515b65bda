package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"fairshare/internal/inbound"
)

// A sideServer serves HTTP/1 without TLS at an address of its own, next to the listener for clients. A nil
// sideServer does nothing.
type sideServer struct {
	name    string // the flag or key that has the address
	inbound *inbound.Listener
	http    http.Server
}

// newSideServer returns a server for listener. Requests may have that many more bytes of header than
// the policy file allows.
func (s *server) newSideServer(name string, listener net.Listener, rt *runtime, handler http.Handler,
	moreHeader int) *sideServer {
	a := &sideServer{name: name, inbound: inbound.New(listener, s.sideInboundConfig(rt))}
	a.http.Handler = handler
	s.boundHTTP(&a.http, rt.File, moreHeader)
	a.inbound.Attach(&a.http)
	return a
}

// sideInboundConfig returns the bounds of connections of a side server: a quarter of those for clients.
// A server in front uses a few connections for many questions, and a redirect takes a moment.
func (s *server) sideInboundConfig(rt *runtime) inbound.Config {
	config := s.inboundConfig(rt).Filled()
	config.Connections = max(1, config.Connections/4)
	return config
}

// start answers requests until the server is drained or closed. An error is sent to stopped.
func (a *sideServer) start(stopped chan<- error) {
	if a == nil {
		return
	}
	go func() {
		if err := a.http.Serve(a.inbound); !errors.Is(err, http.ErrServerClosed) {
			stopped <- fmt.Errorf("%s: %w", a.name, err)
		}
	}()
}

func (a *sideServer) replace(config inbound.Config) {
	if a != nil {
		a.inbound.Replace(config)
	}
}

func (a *sideServer) accepts() bool { return a == nil || a.inbound.Accepts() }

// checkItself returns an error if an upstream has the address of the server.
func (a *sideServer) checkItself(rt *runtime) error {
	if a == nil {
		return nil
	}
	return checkItself(a.inbound.Addr(), rt)
}

// drain lets requests in progress end, until ctx ends.
func (a *sideServer) drain(ctx context.Context) {
	if a != nil {
		a.inbound.Drain(ctx)
		a.http.Shutdown(ctx)
	}
}

func (a *sideServer) close() {
	if a != nil {
		a.http.Close()
		a.inbound.Close()
	}
}
