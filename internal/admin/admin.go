// Package admin is the listener for operators and their tools: pages, the JSON API, metrics for
// Prometheus, and whether the server lives and is ready. Start with [Listen].
package admin

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"fairshare/internal/cli"
	"fairshare/internal/inbound"
)

// Options are the address of the listener, and what a request needs.
type Options struct {
	// Addr is a host and a port, or unix:PATH. A listener for other machines needs a token or certificates
	// of clients.
	Addr string
	// Private says that only the user of this process, and root, can reach the listener. They may act without
	// a token: they could do the same in the state folder.
	Private bool
	// TokenFile is the file of the token; "": no token. Its first line is the token.
	TokenFile string
	// CertFile, KeyFile and ClientCAFile are the files that TLS was made from; "": none.
	CertFile, KeyFile, ClientCAFile string
	// TLS encrypts connections; nil: they are not encrypted. If it verifies certificates of clients, a
	// certificate has the same rights as the token.
	TLS *tls.Config

	Log *log.Logger // of errors of connections
}

// A Server answers operators and their tools.
type Server struct {
	listener net.Listener // opened by listen
	inbound  *inbound.Listener
	http     http.Server
	token    []byte // nil: none is known
	private  bool
	mutual   bool // certificates of clients are verified
	guesses  guesses
	log      *log.Logger
}

const (
	leastToken = 16 // characters
	mostToken  = 4096
	// timeout is for the header of a request, and then for its body. The answer may take three times as long.
	timeout     = 10 * time.Second
	idleTimeout = time.Minute
	// connections is how many there are at most. When it is reached, a new one takes the place of another: of the
	// client that has most, or of the one that has been idle for longest.
	connections = 256
)

// Handlers are what the listener answers with.
type Handlers struct {
	Metrics http.Handler
	// API answers requests below /api/. mayAct reports whether the sender of a request has shown a token:
	// without one it may only read.
	API func(mayAct func(*http.Request) bool) http.Handler
	// Pages answers all other requests. isToken reports whether a text is the token; nil: there is none, and
	// everybody who reaches the listener may read. The handler itself must refuse requests without the token.
	Pages func(isToken func(string) bool) http.Handler
	// Ready returns why requests are not answered now, or nil.
	Ready func() error
}

// Listen begins to listen, but answers nothing yet: see Serve. listen opens an address. Errors have hints.
func Listen(opts Options, listen func(addr string) (net.Listener, error), handlers Handlers) (*Server, error) {
	s := &Server{private: opts.Private, log: opts.Log,
		mutual: opts.TLS != nil && opts.TLS.ClientAuth >= tls.VerifyClientCertIfGiven}
	if opts.TokenFile != "" {
		token, err := readToken(opts.TokenFile)
		if err != nil {
			return nil, err
		}
		s.token = token
	} else if !opts.Private && !isLocal(opts.Addr) && !s.mutual {
		return nil, cli.WrongUsage(cli.Hint(
			fmt.Errorf("--admin %s: other machines could read it", opts.Addr),
			"listen on 127.0.0.1 or unix:/run/fairshare/admin.sock, or give --admin-token-file FILE, "+
				"made by: openssl rand -hex 32 > FILE; or certificates of clients: --admin-client-ca FILE"))
	}
	var err error
	if s.listener, err = listen(opts.Addr); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", s.guarded(handlers.Metrics))
	mux.Handle(apiPrefix, s.guarded(handlers.API(func(*http.Request) bool { return s.private || s.needsProof() })))
	if s.token != nil {
		mux.Handle("/", handlers.Pages(s.isToken))
	} else {
		mux.Handle("/", s.guarded(handlers.Pages(nil))) // with certificates of clients these are needed to read
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) { plain(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := handlers.Ready(); err != nil {
			plain(w, http.StatusServiceUnavailable, err.Error())
			return
		}
		plain(w, http.StatusOK, "ready")
	})
	s.http = http.Server{Handler: inTime(s.byName(mux)), ReadHeaderTimeout: timeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: 16 << 10, ErrorLog: opts.Log, TLSConfig: opts.TLS, Protocols: new(http.Protocols)}
	s.http.Protocols.SetHTTP1(true)
	s.inbound = inbound.New(s.listener, inbound.Config{Connections: connections, Log: opts.Log,
		Exempt: netip.Addr.IsLoopback})
	s.inbound.Attach(&s.http)
	return s, nil
}

// inTime bounds the time of a request after its header.
func inTime(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, now := http.NewResponseController(w), time.Now()
		if errors.Join(conn.SetReadDeadline(now.Add(timeout)), conn.SetWriteDeadline(now.Add(3*timeout))) != nil {
			panic(http.ErrAbortHandler) // the connection has ended
		}
		next.ServeHTTP(w, r)
	})
}

// Addr returns the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Serve answers until Close. It returns nil after Close.
func (s *Server) Serve() error {
	serve := s.http.Serve
	if s.http.TLSConfig != nil {
		serve = func(l net.Listener) error { return s.http.ServeTLS(l, "", "") }
	}
	if err := serve(s.inbound); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Close ends the listener. Requests in progress have a second to end.
func (s *Server) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		s.http.Close()
	}
	s.inbound.Close() // if Serve was not called
}

// needsProof reports whether requests need a token or a certificate.
func (s *Server) needsProof() bool { return s.token != nil || s.mutual }

// byName refuses requests for names that are not this machine's, unless a token or certificate is needed. Otherwise
// another site could give its own name this address, and its pages could read the answers in the browser
// of an operator (DNS rebinding). A browser reaches a Unix socket too, through a tunnel of ssh.
func (s *Server) byName(next http.Handler) http.Handler {
	if s.needsProof() {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err != nil && host != "localhost" {
			refuse(w, r, http.StatusForbidden, "this listener has no other name than localhost",
				"use an address such as 127.0.0.1 or localhost, not the name of another host")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isToken compares in the same time for all wrong tokens of one length.
func (s *Server) isToken(given string) bool {
	return s.token != nil && subtle.ConstantTimeCompare([]byte(given), s.token) == 1
}

// guarded answers 401 without the token and without a certificate.
func (s *Server) guarded(next http.Handler) http.Handler {
	if !s.needsProof() {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !(ok && s.isToken(given)) && !s.hasCertificate(r) {
			if ok && s.token != nil {
				s.guesses.note(s.log, r, time.Now())
			}
			w.Header().Set("WWW-Authenticate", `Bearer realm="fairshare"`)
			text, hint := "the token is missing or wrong", "Authorization: Bearer TOKEN"
			if s.mutual {
				text, hint = "no client certificate was sent", "send one of an authority that --admin-client-ca names"
				if s.token != nil {
					text, hint = text+", and no correct token", hint+", or Authorization: Bearer TOKEN"
				}
			}
			refuse(w, r, http.StatusUnauthorized, text, hint)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// hasCertificate reports whether the connection began with a certificate that was verified, and still is
// valid.
func (s *Server) hasCertificate(r *http.Request) bool {
	return s.mutual && r.TLS != nil && len(r.TLS.VerifiedChains) > 0 &&
		time.Now().Before(r.TLS.PeerCertificates[0].NotAfter)
}

// apiPrefix begins the paths of the JSON API.
const apiPrefix = "/api/"

// refuse answers with an error as the path needs it.
func refuse(w http.ResponseWriter, r *http.Request, status int, text, hint string) {
	if !strings.HasPrefix(r.URL.Path, apiPrefix) {
		plain(w, status, text+": "+hint)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]string{"error": text, "hint": hint})
}

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	io.WriteString(w, text+"\n")
}

// isLocal reports whether only this machine can reach an address.
func isLocal(addr string) bool {
	if strings.HasPrefix(addr, "unix:") {
		return true
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return true // listening fails, and says why
	}
	at, err := netip.ParseAddr(host)
	return err == nil && at.Unmap().IsLoopback() || host == "localhost"
}

func readToken(path string) ([]byte, error) {
	fault := func(err error) error {
		return cli.Hint(fmt.Errorf("--admin-token-file: %w", err),
			fmt.Sprintf("openssl rand -hex 32 > %s; chmod 600 %[1]s", path))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fault(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o007 != 0 {
		return nil, cli.Hint(fmt.Errorf("--admin-token-file: every user of this machine can read %s", path),
			"chmod 600 "+path)
	}
	text, err := io.ReadAll(io.LimitReader(f, mostToken+1))
	if err != nil {
		return nil, fault(err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	token := strings.TrimSpace(line)
	if len(text) > mostToken || len(token) < leastToken || strings.ContainsAny(token, " \t") {
		return nil, fault(fmt.Errorf("the first line of %s is not a token of %d to %d characters without spaces", path,
			leastToken, mostToken))
	}
	return []byte(token), nil
}
