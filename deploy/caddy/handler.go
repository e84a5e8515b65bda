// Package caddy is a module for Caddy: a handler that enforces a policy file inside Caddy. Its
// configuration is a Caddyfile directive
//
//	fairshare {
//		policy /etc/fairshare/site.yaml
//		state /var/lib/fairshare
//	}
//
// or the JSON of a [Handler]. README.md says how to build a Caddy with it.
package caddy

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"

	"fairshare/site"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func init() {
	caddy.RegisterModule(new(App))
	caddy.RegisterModule(new(Handler))
}

// A Handler judges each request by a policy file before the next handlers get it. All handlers with
// the same file and folder share their counters and bans.
type Handler struct {
	// Policy is the policy file; "" means the built-in policy. Its clients: says whose headers
	// name clients. Caddy's trusted_proxies have no effect on it.
	Policy string `json:"policy,omitempty"`

	// State is the folder for the registry, counters and copies of lists. "" means that nothing is
	// kept when Caddy ends. No other process may use the folder at the same time.
	State string `json:"state,omitempty"`

	guard *guard
}

var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)

// CaddyModule implements [caddy.Module].
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.fairshare", New: func() caddy.Module { return new(Handler) }}
}

// Provision implements [caddy.Provisioner]. It reads the policy file, but opens neither the state
// folder nor what the file names: caddy validate ends here.
func (h *Handler) Provision(ctx caddy.Context) (err error) {
	key := guardKey{policy: h.Policy, state: h.State}
	for _, path := range []*string{&key.policy, &key.state} {
		if *path == "" {
			continue
		}
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	if err := site.Check(key.policy); err != nil {
		return err
	}
	app, err := ctx.App(appName)
	if err != nil {
		return err
	}
	h.guard, err = app.(*App).guard(key)
	return err
}

// ServeHTTP implements [caddyhttp.MiddlewareHandler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if r.Context().Value(ownRequest{}) != nil {
		return next.ServeHTTP(w, r)
	}
	select {
	case <-h.guard.started: // Caddy may listen before the policy is in force
	case <-r.Context().Done():
		return caddyhttp.Error(http.StatusServiceUnavailable, errors.New("fairshare has not started"))
	}
	g := h.guard.inForce
	g.meet(r)
	return g.middleware.Do(w, r, next.ServeHTTP)
}

// errorStatus returns the status with which Caddy's error routes will answer an
// error; 0 for an unknown error.
func errorStatus(err error) int {
	var known caddyhttp.HandlerError
	if errors.As(err, &known) {
		return known.StatusCode
	}
	return 0
}

// ownRequest marks the context of requests that fairshare itself sends, for robots.txt.
type ownRequest struct{}

// meet notes which server of Caddy has the site. fairshare asks for robots.txt after the first request,
// because only then it knows a host of the site.
func (g *inForce) meet(r *http.Request) {
	server, _ := r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if g.server.Load() != server {
		g.server.Store(server)
	}
	g.first.Do(func() {
		g.host = r.Host
		g.middleware = g.site.Middleware(http.HandlerFunc(g.serveOwn))
	})
}

// serveOwn answers requests that fairshare itself sends, as Caddy would answer a client.
func (g *inForce) serveOwn(w http.ResponseWriter, r *http.Request) {
	own := r.WithContext(context.WithValue(r.Context(), ownRequest{}, true))
	if own.Host == site.AnyHost {
		own.Host = g.host
	}
	if server := g.server.Load(); server != nil {
		server.ServeHTTP(w, own)
	}
}
