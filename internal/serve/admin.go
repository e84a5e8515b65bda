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
	"fairshare/internal/setup"
	"fairshare/internal/traffic"
)

// newConsole returns what shows this server to its operators.
func (s *server) newConsole() *console.Console {
	return console.New(console.Options{Policy: s.policy, Traffic: traffic.New(s.policy.Now()), Version: cli.Version(),
		Address: s.address, Reload: s.callReload, Upstream: func() string { return s.runtime.Load().protected() }})
}

// adminOff is the address for no listener at all.
const adminOff = "off"

// hasAdmin reports whether operators can ask the server.
func (s *server) hasAdmin() bool { return s.options.Admin.Addr != adminOff }

// openAdmin listens for operators and their tools, if they have an address.
func (s *server) openAdmin() (err error) {
	opts := s.options.Admin
	if opts.Addr == "" || opts.Addr == adminOff {
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
		s.adminHandlers())
	return err
}

func (s *server) adminHandlers() admin.Handlers {
	metrics := s.metrics.handler()
	flushed := func(w http.ResponseWriter, r *http.Request) {
		s.policy.FlushReports()
		metrics.ServeHTTP(w, r)
	}
	return admin.Handlers{Metrics: http.HandlerFunc(flushed), Ready: s.ready,
		API:   func(mayAct func(*http.Request) bool) http.Handler { return adminapi.New(s.console, mayAct) },
		Pages: func(isToken func(string) bool) http.Handler { return dashboard.New(s.console, isToken) }}
}

// openPrivate listens at the private socket, if there is none yet. Another server may have it, or the folder may
// not be writable now: so it is called again and again. A problem is logged when it begins, and when its text
// changes.
func (s *server) openPrivate() (opened bool) {
	path := setup.AdminSocket(s.policy.Folder())
	if path == "" || s.private != nil || !s.hasAdmin() {
		return false
	}
	l, err := listenPrivate(path)
	if err == nil {
		s.private, err = admin.Listen(admin.Options{Private: true, Log: s.log},
			func(string) (net.Listener, error) { return l, nil }, s.adminHandlers())
	}
	if err == nil {
		s.privateProblem = ""
		return true
	}
	if problem := cli.OneLine(err); problem != s.privateProblem {
		s.privateProblem = problem
		s.logLine("warning: no admin socket, so fairshare status, top and explain need --admin: " + problem)
	}
	return false
}

// servePrivate answers at the private socket until it is closed.
func (s *server) servePrivate() {
	if s.private == nil {
		return
	}
	s.serving.Go(func() {
		if err := s.private.Serve(); err != nil {
			s.printf("admin socket: %v", err)
		}
	})
}

// takePrivate takes the private socket if it has become possible: the server that had it has ended, or its folder
// can be written.
func (s *server) takePrivate() {
	if s.openPrivate() {
		s.printf("admin: %s", s.describePrivate())
		s.servePrivate()
	}
}

func (s *server) describePrivate() string {
	return addressText(s.private.Addr(), false) + ": for fairshare status, top and explain"
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
	for _, l := range []*admin.Server{s.admin, s.private} {
		if l != nil {
			l.Close()
		}
	}
}

// ready returns why new requests should go to another server; nil if there is no reason.
func (s *server) ready() error {
	switch {
	case s.stopping.Load():
		return errors.New("stopping")
	case s.inbound == nil || !s.inbound.Accepts() || !s.auth.accepts() || !s.plain.accepts():
		return errors.New("no connection is accepted")
	}
	return nil
}
