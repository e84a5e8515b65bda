// Package caddy is a module for Caddy: a handler with a limit of requests. Its
// configuration in JSON:
//
//	{"handler": "fairshare", "requests": 100, "per": "1m"}
package caddy

import (
	"net/http"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/memlimit"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func init() { caddy.RegisterModule(new(Handler)) }

// A Handler limits the requests of each client.
type Handler struct {
	Requests int64          `json:"requests"` // that a client may send per window
	Per      caddy.Duration `json:"per"`      // the window

	guard *httpguard.Handler
}

var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)

// CaddyModule implements [caddy.Module].
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.fairshare", New: func() caddy.Module { return new(Handler) }}
}

// Provision implements [caddy.Provisioner].
func (h *Handler) Provision(caddy.Context) error {
	guard, err := memlimit.NewGuard(&fairshare.Policy{Rules: []fairshare.Rule{{
		Name:  "requests",
		Limit: &fairshare.Limit{Resource: fairshare.Requests, N: h.Requests, Window: time.Duration(h.Per)},
	}}}, memlimit.Options{})
	if err != nil {
		return err
	}
	h.use(guard)
	return nil
}

func (h *Handler) use(guard *fairshare.Guard) {
	h.guard = httpguard.New(guard,
		httpguard.Options{Client: client, RateLimitFields: true, ErrorStatus: errorStatus}, nil)
}

// ServeHTTP implements [caddyhttp.MiddlewareHandler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	return h.guard.Do(w, r, next.ServeHTTP)
}
