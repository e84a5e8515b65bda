package serve

import (
	"errors"
	"net"
	"net/http"

	"fairshare/internal/admin"
	"fairshare/internal/adminapi"
	"fairshare/internal/cli"
	"fairshare/internal/console"
	"fairshare/internal/dashboard"
	"fairshare/internal/traffic"
)

// newConsole returns what shows this server to its operators.
func (s *server) newConsole() *console.Console {
	return console.New(console.Options{Policy: s.policy, Traffic: traffic.New(s.policy.Now()), Version: cli.Version(),
		Address: s.address, Upstream: func() string { return s.runtime.Load().protected() }})
}

// openAdmin listens for operators and their tools, if they have an address.
func (s *server) openAdmin() (err error) {
	opts := s.options.Admin
	if opts.Addr == "" {
		if opts.TokenFile != "" {
			return wrongFlag("--admin-token-file", errors.New("there is no --admin"),
				"--admin 127.0.0.1:9091 gives operators an address")
		}
		return nil
	}
	if err := checkListen(opts.Addr); err != nil {
		return wrongFlag("--admin", err, listenHint)
	}
	opts.Log = s.log
	s.admin, err = admin.Listen(opts, func(addr string) (net.Listener, error) { return listenOn(addr, "--admin") },
		admin.Handlers{Metrics: s.metrics.handler(), Ready: s.ready,
			API:   func(mayAct func(*http.Request) bool) http.Handler { return adminapi.New(s.console, mayAct) },
			Pages: func(isToken func(string) bool) http.Handler { return dashboard.New(s.console, isToken) }})
	return err
}

func (s *server) closeAdmin() {
	if s.admin != nil {
		s.admin.Close()
	}
}

// ready returns why new requests should go to another server; nil if there is no reason.
func (s *server) ready() error {
	switch {
	case s.stopping.Load():
		return errors.New("stopping")
	case s.inbound == nil || !s.inbound.Accepts():
		return errors.New("no connection is accepted")
	}
	return nil
}
