// Package remote has the commands that ask a running server: its admin listener answers. Start with
// [Open].
package remote

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"fairshare/internal/adminapi"
	"fairshare/internal/cli"
	"fairshare/internal/console"
)

// DefaultAddr is where the commands look for a server.
const DefaultAddr = "127.0.0.1:9091"

const timeout = 10 * time.Second

// mostAnswer is the size of the longest answer that is read, in bytes.
const mostAnswer = 16 << 20

// A Server is a running server.
type Server struct {
	addr    string
	sockets []string // where no server answers
	base    string
	token   string
	client  http.Client
}

// Options name an admin listener and what it needs. "" means none for each file.
type Options struct {
	// Addr is a host and a port, https:// with these, or unix:PATH. "" means the first of Sockets that a
	// server answers at, then DefaultAddr unless OnlySockets is true.
	Addr string
	// Sockets are paths of Unix sockets.
	Sockets     []string
	OnlySockets bool
	// TokenFile has the listener's token in its first line.
	TokenFile string
	// CAFile has the authorities of the listener's certificate, "" means those of the system. CertFile and
	// KeyFile have the certificate that the client shows. All are PEM files, and need https://.
	CAFile, CertFile, KeyFile string
}

// Open returns the server with an admin listener. Nothing is sent yet.
func Open(opts Options) (*Server, error) {
	addr, tokenFile := opts.Addr, opts.TokenFile
	if addr == "" {
		var err error
		if addr, err = find(opts.Sockets, opts.OnlySockets); err != nil {
			return nil, err
		}
	}
	scheme := "http"
	if name, host, ok := strings.Cut(addr, "://"); ok && (name == "http" || name == "https") {
		scheme, addr = name, strings.TrimSuffix(host, "/")
	}
	s := &Server{addr: addr, base: scheme + "://" + addr}
	if opts.Addr == "" {
		s.sockets = opts.Sockets
	}
	transport := &http.Transport{}
	config, err := opts.tls(scheme == "https")
	if err != nil {
		return nil, err
	}
	transport.TLSClientConfig = config
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		s.base = "http://localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
	} else if _, _, err := net.SplitHostPort(addr); err != nil {
		return nil, cli.WrongUsage(cli.Hint(fmt.Errorf("--admin: %w", err),
			"it is a host and a port, as serve --admin has them: 127.0.0.1:9091, https://127.0.0.1:9091 if it has "+
				"TLS, or unix:/run/fairshare/admin.sock"))
	}
	s.client = http.Client{Transport: transport, Timeout: timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if tokenFile != "" {
		text, err := os.ReadFile(tokenFile)
		if err != nil {
			return nil, fmt.Errorf("--admin-token-file: %w", err)
		}
		line, _, _ := strings.Cut(string(text), "\n")
		s.token = strings.TrimSpace(line)
	}
	return s, nil
}

// find returns the address of a server on this machine: of the first socket that answers, otherwise DefaultAddr
// or, with only, an error.
func find(sockets []string, only bool) (string, error) {
	for _, path := range sockets {
		conn, err := net.DialTimeout("unix", path, time.Second)
		if err == nil {
			conn.Close()
			return "unix:" + path, nil
		}
		if errors.Is(err, fs.ErrPermission) {
			return "", cli.Hint(fmt.Errorf("the server at %s belongs to another user", path),
				"run the command as that user or root: sudo fairshare …")
		}
	}
	if only {
		return "", cli.Hint(fmt.Errorf("no server answers at %s", strings.Join(sockets, " or ")),
			"--state names the folder that serve has; serve prints the address of its socket when it starts")
	}
	return DefaultAddr, nil
}

// tls reads the files for TLS. It returns nil if https is false.
func (o *Options) tls(https bool) (*tls.Config, error) {
	if !https {
		if o.CAFile+o.CertFile+o.KeyFile != "" {
			return nil, cli.WrongUsage(cli.Hint(errors.New("--admin: certificates need TLS"),
				"write https:// before the address: --admin https://HOST:PORT"))
		}
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CAFile != "" {
		text, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("--admin-ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, cli.Hint(fmt.Errorf("--admin-ca: %s has no certificate", o.CAFile),
				"it is a PEM file with the certificate of the authority that signed the listener's")
		}
	}
	switch {
	case o.CertFile == "" && o.KeyFile == "":
		return config, nil
	case o.CertFile == "" || o.KeyFile == "":
		return nil, cli.WrongUsage(errors.New("--admin-cert and --admin-key belong together"))
	}
	cert, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
	if err != nil {
		return nil, cli.Hint(fmt.Errorf("--admin-cert %s with --admin-key %s: %w", o.CertFile, o.KeyFile, err),
			"both are PEM files; the certificate comes first in its file, then those that signed it")
	}
	// It is sent even if the server names other authorities: the error then says what is wrong.
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
	return config, nil
}

// failure describes why no answer came, with a hint.
func (s *Server) failure(err error) error {
	var wrapped *url.Error // it would repeat the address
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	var verify *tls.CertificateVerificationError
	var header tls.RecordHeaderError
	var alert tls.AlertError
	text := err.Error()
	switch {
	case errors.As(err, &verify):
		return cli.Hint(fmt.Errorf("the certificate of %s is not valid: %w", s.addr, verify.Err),
			"--admin-ca FILE names the authority that signed it, and --admin https://HOST:PORT a host that is in it")
	case errors.As(err, &alert), strings.Contains(text, "remote error: tls:"):
		return cli.Hint(fmt.Errorf("%s refuses the connection: %w", s.addr, err),
			"the certificate of --admin-cert has to be valid, and of an authority of serve --admin-client-ca")
	case errors.As(err, &header), strings.Contains(text, "HTTP response to HTTPS client"):
		return cli.Hint(fmt.Errorf("%s has no TLS", s.addr), "write --admin http://"+s.addr)
	}
	hint := "name the address that serve --admin has: --admin ADDR"
	if len(s.sockets) > 0 {
		hint = "nor at " + strings.Join(s.sockets, " or ") + "; serve prints the address of its socket when it " +
			"starts: --state DIR names its folder, --admin ADDR another address"
	}
	return cli.Hint(fmt.Errorf("no server answers at %s: %w", s.addr, err), hint)
}

// Get asks for a path of the API and reads the answer into a value.
func (s *Server) Get(ctx context.Context, path string, q url.Values, into any) error {
	req, err := http.NewRequestWithContext(ctx, "GET", s.base+adminapi.Prefix+path+"?"+q.Encode(), nil)
	if err != nil {
		return err
	}
	return s.do(ctx, req, into)
}

// Act asks the server to act.
func (s *Server) Act(ctx context.Context, action console.Action) (*console.Result, error) {
	result := new(console.Result)
	return result, s.post(ctx, "actions", action, result)
}

// post sends a body to a path of the API and reads the answer into a value.
func (s *Server) post(ctx context.Context, path string, body, into any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, "POST", s.base+adminapi.Prefix+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	return s.do(ctx, req, into)
}

// do sends a request and reads the answer into a value.
func (s *Server) do(ctx context.Context, req *http.Request, into any) error {
	if s.token != "" {
		req.Header.Set("Authorization", "Bearer "+s.token)
	}
	resp, err := s.client.Do(req)
	switch {
	case ctx.Err() != nil:
		return cli.ErrReported
	case err != nil:
		return s.failure(err)
	}
	defer resp.Body.Close()
	body := json.NewDecoder(io.LimitReader(resp.Body, mostAnswer))
	if resp.StatusCode == http.StatusOK {
		if err := body.Decode(into); err != nil {
			return fmt.Errorf("the answer of %s cannot be read: %w", s.addr, err)
		}
		return nil
	}
	var refused adminapi.Error
	if err := body.Decode(&refused); err != nil || refused.Error == "" {
		if resp.StatusCode == http.StatusBadRequest && !strings.HasPrefix(s.base, "https:") {
			return cli.Hint(fmt.Errorf("%s answers %s", s.addr, resp.Status),
				"if it has TLS, write --admin https://"+s.addr)
		}
		return cli.Hint(fmt.Errorf("%s answers %s", s.addr, resp.Status),
			"it is not the admin listener of this version of fairshare")
	}
	err = errors.New(refused.Error)
	switch resp.StatusCode {
	case http.StatusUnauthorized:
		return cli.Hint(err, "the listener needs its token: --admin-token-file FILE, or a certificate: --admin-cert FILE "+
			"--admin-key FILE")
	case http.StatusBadRequest:
		return cli.WrongUsage(cli.Hint(err, refused.Hint))
	}
	if refused.Hint == "" {
		return err
	}
	return cli.Hint(err, refused.Hint)
}
