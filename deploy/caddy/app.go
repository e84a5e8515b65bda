package caddy

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"fairshare/httpguard"
	"fairshare/site"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

const appName = "fairshare"

// An App puts the policies of all handlers in force when Caddy starts, and keeps their counters and
// bans when Caddy's configuration is loaded again. Handlers create it; it has no configuration.
type App struct {
	guards map[guardKey]*guard
	used   []guardKey // keys that this App has taken from the pool
	logger *slog.Logger
	ctx    caddy.Context
}

var (
	_ caddy.App          = (*App)(nil)
	_ caddy.Provisioner  = (*App)(nil)
	_ caddy.CleanerUpper = (*App)(nil)
)

// A guardKey says which handlers share a guard. Its paths are absolute, or "".
type guardKey struct{ policy, state string }

// A guard is a policy of one configuration of Caddy.
type guard struct {
	started chan struct{} // closed when inForce is set
	inForce *inForce
}

// inForce is a policy in force. It stays over changes of Caddy's configuration.
type inForce struct {
	site   *site.Site
	log    *movedHandler
	server atomic.Pointer[caddyhttp.Server] // the latest that had a request

	first      sync.Once // what follows is set by the first request
	middleware *site.Middleware
	host       string
}

// Destruct implements [caddy.Destructor].
func (g *inForce) Destruct() error {
	g.site.Close()
	return nil
}

// pool has the policies in force of this process.
var pool = caddy.NewUsagePool()

// CaddyModule implements [caddy.Module].
func (*App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: appName, New: func() caddy.Module { return new(App) }}
}

// Provision implements [caddy.Provisioner].
func (a *App) Provision(ctx caddy.Context) error {
	a.ctx, a.logger, a.guards = ctx, ctx.Slogger(), map[guardKey]*guard{}
	return nil
}

// guard returns the guard of a handler. Caddy provisions one handler after the other.
func (a *App) guard(key guardKey) (*guard, error) {
	if g := a.guards[key]; g != nil {
		return g, nil
	}
	for other := range a.guards {
		if key.state != "" && other.state == key.state {
			return nil, fmt.Errorf("fairshare: the policies %s and %s have the same state folder %s: "+
				"give each one its own", other.policy, key.policy, key.state)
		}
	}
	g := &guard{started: make(chan struct{})}
	a.guards[key] = g
	return g, nil
}

// Start implements [caddy.App]. It puts the policies in force. A policy that was in force before is
// loaded again.
func (a *App) Start() error {
	for key, g := range a.guards {
		value, loaded, err := pool.LoadOrNew(key, func() (caddy.Destructor, error) {
			return open(a.ctx, key, a.logger)
		})
		if err != nil {
			return err
		}
		a.used = append(a.used, key)
		g.inForce = value.(*inForce)
		if loaded {
			old := g.inForce.log.to.Swap(ptr(a.logger.Handler()))
			if err := g.inForce.site.Reload(a.ctx); err != nil {
				g.inForce.log.to.Store(old)
				return err
			}
		}
		close(g.started)
	}
	return nil
}

// Stop implements [caddy.App]. Requests may still be in progress; Cleanup does the work.
func (*App) Stop() error { return nil }

// Cleanup implements [caddy.CleanerUpper]. Policies that the next configuration does not use are closed.
func (a *App) Cleanup() error {
	for _, key := range a.used {
		if _, err := pool.Delete(key); err != nil {
			return err
		}
	}
	return nil
}

// open puts a policy in force.
func open(ctx context.Context, key guardKey, logger *slog.Logger) (*inForce, error) {
	g := &inForce{log: new(movedHandler)}
	g.log.to.Store(ptr(logger.Handler()))
	moved := slog.New(g.log)
	var err error
	g.site, err = site.Open(ctx, key.policy, site.Options{State: key.state, Logger: moved, Guard: httpguard.Options{
		ErrorStatus: errorStatus,
		Refused: func(r *httpguard.Report) {
			moved.LogAttrs(r.HTTP.Context(), slog.LevelInfo, "refused", slog.Any("request", r))
		},
	}})
	if err != nil {
		return nil, err
	}
	return g, nil
}

func ptr[T any](v T) *T { return &v }

// A movedHandler passes records to the logger of Caddy's current configuration.
type movedHandler struct{ to atomic.Pointer[slog.Handler] }

func (h *movedHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return (*h.to.Load()).Enabled(ctx, level)
}

func (h *movedHandler) Handle(ctx context.Context, record slog.Record) error {
	return (*h.to.Load()).Handle(ctx, record)
}

func (h *movedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return (*h.to.Load()).WithAttrs(attrs)
}
func (h *movedHandler) WithGroup(name string) slog.Handler { return (*h.to.Load()).WithGroup(name) }
