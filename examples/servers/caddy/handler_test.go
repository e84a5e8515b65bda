package caddy

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"fairshare"
	"fairshare/examples/servers/internal/servertest"
	"fairshare/httpguard"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// newSite returns a server that answers errors after its handlers have returned,
// as Caddy does.
func newSite(h *Handler) http.Handler {
	pages := caddyhttp.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		switch r.URL.Path {
		case "/hello":
		case "/report":
			httpguard.From(r.Context()).ReportCost(10)
		default:
			return caddyhttp.Error(http.StatusNotFound, errors.New("no such page"))
		}
		return nil
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := context.WithValue(r.Context(), caddyhttp.VarsCtxKey,
			map[string]any{caddyhttp.ClientIPVarKey: "192.0.2.7"})
		if err := h.ServeHTTP(w, r.WithContext(ctx), pages); err != nil {
			w.WriteHeader(err.(caddyhttp.HandlerError).StatusCode)
		}
	})
}

func TestHandler(t *testing.T) {
	servertest.Run(t, func(guard *fairshare.Guard) http.Handler {
		h := new(Handler)
		h.use(guard)
		return newSite(h)
	})
}

func TestProvision(t *testing.T) {
	h := &Handler{Requests: 1, Per: caddy.Duration(time.Hour)}
	if err := h.Provision(caddy.Context{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{200, 429} {
		w := httptest.NewRecorder()
		newSite(h).ServeHTTP(w, httptest.NewRequest("GET", "/hello", nil))
		if w.Code != want {
			t.Errorf("status %d, want %d", w.Code, want)
		}
	}
	if err := new(Handler).Provision(caddy.Context{}); err == nil {
		t.Error("a handler without a limit is accepted")
	}
}
