package serve

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

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
		Address: s.address, Reload: s.callReload, Upstream: func() string { return s.runtime.Load().protected() }})
}

// openAdmin listens for operators and their tools, if they have an address.
func (s *server) openAdmin() (err error) {
	opts := s.options.Admin
	if opts.Addr == "" {
		for _, flag := range [][2]string{{"--admin-token-file", opts.TokenFile}, {"--admin-cert", opts.CertFile},
			{"--admin-key", opts.KeyFile}, {"--admin-client-ca", opts.ClientCAFile}} {
			if flag[1] != "" {
				return wrongFlag(flag[0], errors.New("there is no --admin"),
					"--admin 127.0.0.1:9091 gives operators an address")
			}
		}
		return nil
	}
	if err := checkListen(opts.Addr); err != nil {
		return wrongFlag("--admin", err, listenHint)
	}
	if err := s.loadAdminTLS(&opts); err != nil {
		return err
	}
	opts.Log = s.log
	s.admin, err = admin.Listen(opts, func(addr string) (net.Listener, error) { return listenOn(addr, "--admin") },
		admin.Handlers{Metrics: s.metrics.handler(), Ready: s.ready,
			API:   func(mayAct func(*http.Request) bool) http.Handler { return adminapi.New(s.console, mayAct) },
			Pages: func(isToken func(string) bool) http.Handler { return dashboard.New(s.console, isToken) }})
	return err
}

// loadAdminTLS loads the certificates that the options name, and sets TLS.
func (s *server) loadAdminTLS(opts *admin.Options) (err error) {
	const both = "TLS needs a certificate and its key: --admin-cert FILE --admin-key FILE"
	switch {
	case opts.CertFile == "" && opts.KeyFile == "" && opts.ClientCAFile == "":
		return nil
	case opts.CertFile == "":
		return wrongFlag("--admin-cert", errors.New("it is missing"), both)
	case opts.KeyFile == "":
		return wrongFlag("--admin-key", errors.New("it is missing"), both)
	case strings.HasPrefix(opts.Addr, unixPrefix):
		return wrongFlag("--admin-cert", errors.New("a Unix socket has no TLS"),
			"the permissions of the socket's folder and a token protect it; for TLS, listen on a host and a port")
	}
	if s.adminTLS, err = loadCertificates(opts.CertFile, opts.KeyFile, opts.ClientCAFile); err != nil {
		return fmt.Errorf("--admin: %w", err)
	}
	opts.TLS = s.adminTLS.config()
	return nil
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
	case s.inbound == nil || !s.inbound.Accepts() || !s.auth.accepts():
		return errors.New("no connection is accepted")
	}
	return nil
}
