package caddy

import (
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
)

func init() {
	httpcaddyfile.RegisterDirective("fairshare", parseCaddyfile)
	// Before handlers that change the request or answer it.
	httpcaddyfile.RegisterDirectiveOrder("fairshare", httpcaddyfile.Before, "header")
}

var _ caddyfile.Unmarshaler = (*Handler)(nil)

func parseCaddyfile(h httpcaddyfile.Helper) ([]httpcaddyfile.ConfigValue, error) {
	h.Next()
	for _, arg := range h.RemainingArgs() {
		if strings.HasSuffix(arg, ".yaml") || strings.HasSuffix(arg, ".yml") {
			return nil, h.Errf("here %s is a matcher for paths; name the policy file in a block: "+
				"fairshare { policy %[1]s }", arg)
		}
	}
	h.Reset()
	h.Next()
	matchers, err := h.ExtractMatcherSet()
	if err != nil {
		return nil, err
	}
	handler := new(Handler)
	if err := handler.UnmarshalCaddyfile(h.Dispenser); err != nil {
		return nil, err
	}
	return h.NewRoute(matchers, handler), nil
}

// UnmarshalCaddyfile implements [caddyfile.Unmarshaler]:
//
//	fairshare [<matcher>] {
//		policy <file>
//		state  <folder>
//	}
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if d.NextArg() {
		return d.ArgErr()
	}
	for d.NextBlock(0) {
		value := map[string]*string{"policy": &h.Policy, "state": &h.State}[d.Val()]
		switch {
		case value == nil:
			return d.Errf("fairshare has no %q; it has policy and state", d.Val())
		case *value != "":
			return d.Errf("%s is given twice", d.Val())
		case !d.AllArgs(value):
			return d.ArgErr()
		}
	}
	return nil
}
