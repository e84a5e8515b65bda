// Package remote has the commands that ask a running server: its admin listener answers. Start with
// [Open].
package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"fairshare/internal/adminapi"
	"fairshare/internal/cli"
)

// DefaultAddr is where the commands look for a server.
const DefaultAddr = "127.0.0.1:9091"

const timeout = 10 * time.Second

// mostAnswer is the size of the longest answer that is read, in bytes.
const mostAnswer = 16 << 20

// A Server is a running server.
type Server struct {
	addr   string
	base   string
	token  string
	client http.Client
}

// Open returns the server with an admin listener at an address: a host and a port, or unix:PATH. "" means
// DefaultAddr. tokenFile has the listener's token in its first line; "" means none. Nothing is sent yet.
func Open(addr, tokenFile string) (*Server, error) {
	if addr == "" {
		addr = DefaultAddr
	}
	s := &Server{addr: addr, base: "http://" + addr}
	transport := &http.Transport{}
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		s.base = "http://localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
	} else if _, _, err := net.SplitHostPort(addr); err != nil {
		return nil, cli.WrongUsage(cli.Hint(fmt.Errorf("--admin: %w", err),
			"it is a host and a port, as serve --admin has them: 127.0.0.1:9091, or unix:/run/fairshare/admin.sock"))
	}
	s.client = http.Client{Transport: transport, Timeout: timeout}
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

// get asks for a path of the API and reads the answer into a value.
func (s *Server) get(ctx context.Context, path string, q url.Values, into any) error {
	req, err := http.NewRequestWithContext(ctx, "GET", s.base+adminapi.Prefix+path+"?"+q.Encode(), nil)
	if err != nil {
		return err
	}
	if s.token != "" {
		req.Header.Set("Authorization", "Bearer "+s.token)
	}
	resp, err := s.client.Do(req)
	switch {
	case ctx.Err() != nil:
		return cli.ErrReported
	case err != nil:
		var wrapped *url.Error // it would repeat the address
		if errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		return cli.Hint(fmt.Errorf("no server answers at %s: %w", s.addr, err),
			"start it with fairshare serve --admin "+DefaultAddr+", or name the address that it has: --admin ADDR")
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
		return cli.Hint(fmt.Errorf("%s answers %s", s.addr, resp.Status),
			"it is not the admin listener of this version of fairshare")
	}
	err = errors.New(refused.Error)
	switch resp.StatusCode {
	case http.StatusUnauthorized:
		return cli.Hint(err, "the listener needs its token: --admin-token-file FILE")
	case http.StatusBadRequest:
		return cli.WrongUsage(cli.Hint(err, refused.Hint))
	}
	if refused.Hint == "" {
		return err
	}
	return cli.Hint(err, refused.Hint)
}
