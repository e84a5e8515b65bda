package clientaddr

import (
	"fmt"
	"slices"
	"strings"

	"fairshare/internal/prose"
)

// A Preset is the configuration for a well-known server, load balancer or CDN
// in front of this program.
type Preset struct {
	Name   string
	Config Config // without Lists
	Setup  string // how to configure the proxy, as one clause; "" if its defaults work
}

// localProxies are the trusted proxies of a server that the operator runs on this
// machine or in its private network.
var localProxies = []string{"loopback", "private", "unix"}

// presets returns all presets.
//
// No client can forge its address through these proxies. Most append the address
// of their peer to the header; the text that the client sent is left of it and is
// not read. Caddy, Traefik, Cloudflare and the VCL for Fastly replace the header
// that a client sent, unless they are configured to trust it. docs/serve.md has
// the settings that each proxy needs.
func presets() []Preset {
	own := func(name, setup string) Preset {
		return Preset{Name: name, Config: Config{TrustedProxies: slices.Clone(localProxies), Header: "X-Forwarded-For"},
			Setup: setupText(name, setup)}
	}
	cdn := func(name, header, setup string) Preset {
		return Preset{Name: name, Config: Config{TrustedProxies: []string{name}, Header: header},
			Setup: setupText(name, setup)}
	}
	return []Preset{
		own("nginx", "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;"),
		own("apache", ""),
		own("caddy", ""),
		own("haproxy", "option forwardfor (without if-none)"),
		own("traefik", ""),
		own("varnish", ""),
		own("envoy", "use_remote_address: true (HTTP connection manager)"),
		own("alb", ""),
		cdn("cloudflare", "CF-Connecting-IP", ""),
		cdn("fastly", "X-Forwarded-For",
			"in vcl_recv: if (fastly.ff.visits_this_service == 0 && req.restarts == 0) { set req.http.X-Forwarded-For = client.ip; } (by itself Fastly appends over TLS only)"),
		cdn("cloudfront", "X-Forwarded-For", ""),
	}
}

func setupText(name, setup string) string {
	if setup == "" {
		return ""
	}
	return name + " needs this setting: " + setup
}

// manualHints are for well-known proxies without a preset: their configuration
// needs facts that only the operator has.
var manualHints = map[string]string{
	"google": "a Google Cloud load balancer appends its own address after the client's: clients: {trusted_proxies: [130.211.0.0/22, 35.191.0.0/16, and the load balancer's address]}",
	"akamai": "Akamai gives its addresses to its customers (Site Shield): clients: {trusted_proxies: [those addresses], header: X-Forwarded-For}",
	"azure":  "list the prefixes of the service tag AzureFrontDoor.Backend: clients: {trusted_proxies: [those prefixes], header: X-Forwarded-For}",
}

// BehindNames returns the names that [Behind] knows.
func BehindNames() []string {
	var names []string
	for _, p := range presets() {
		names = append(names, p.Name)
	}
	return names
}

// Behind returns the preset of a name, or of several names joined by commas, such
// as "cloudflare,nginx". Several names mean that requests pass through all of
// these proxies, in any order. Then all are trusted; if their headers differ, the
// header is X-Forwarded-For, to which all append.
//
// The error is a [*BehindError].
func Behind(names string) (Preset, error) {
	var joined Preset
	for i, name := range strings.Split(names, ",") {
		p, err := findPreset(strings.ToLower(strings.TrimSpace(name)))
		if err != nil {
			return Preset{}, err
		}
		if i == 0 {
			joined = p
			continue
		}
		joined.Name += "," + p.Name
		if joined.Setup != "" && p.Setup != "" {
			joined.Setup += " and "
		}
		joined.Setup += p.Setup
		if p.Config.Header != joined.Config.Header {
			joined.Config.Header = "X-Forwarded-For"
		}
		for _, proxy := range p.Config.TrustedProxies {
			if !slices.Contains(joined.Config.TrustedProxies, proxy) {
				joined.Config.TrustedProxies = append(joined.Config.TrustedProxies, proxy)
			}
		}
	}
	return joined, nil
}

func findPreset(name string) (Preset, error) {
	all := presets()
	if i := slices.IndexFunc(all, func(p Preset) bool { return p.Name == name }); i >= 0 {
		return all[i], nil
	}
	return Preset{}, &BehindError{Name: name}
}

// A BehindError reports a name that has no preset.
type BehindError struct{ Name string }

func (e *BehindError) Error() string {
	if manualHints[e.Name] != "" {
		return fmt.Sprintf("%s has no preset", e.Name)
	}
	return fmt.Sprintf("%q is not one of %s", e.Name, strings.Join(BehindNames(), ", "))
}

// Hint returns one line that says how to correct the name or what to configure
// instead.
func (e *BehindError) Hint() string {
	if hint := manualHints[e.Name]; hint != "" {
		return hint
	}
	if hint := prose.DidYouMean(e.Name, BehindNames()); hint != "" {
		return hint
	}
	return "list the proxy's addresses in the policy: clients: {trusted_proxies: [192.0.2.10], header: X-Forwarded-For}"
}
