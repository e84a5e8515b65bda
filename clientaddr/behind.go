package clientaddr

import (
	"fmt"
	"slices"
	"strings"
)

// A Preset is what stands between the clients and us, told by name.
type Preset struct {
	Name   string
	Config Config // without Lists
	Setup  string // what the proxy has to be told, a sentence; "" when there is nothing
}

// near is where a server of one's own stands: on this machine or its private
// network.
var near = []string{"loopback", "private", "unix"}

// presets are all there are. What each proxy does is in its own documentation.
//
// No client can forge its address through them. Most append the address they
// were asked from to the header; what the client sent stands left of that and
// is not read. Caddy, Traefik, Cloudflare and the VCL for Fastly set the header
// themselves, whatever the client sent, unless they are told to trust it.
// docs/serve.md says what keeps it so.
func presets() []Preset {
	own := func(name, setup string) Preset {
		return Preset{Name: name, Config: Config{TrustedProxies: slices.Clone(near), Header: "X-Forwarded-For"}, Setup: told(name, setup)}
	}
	cdn := func(name, header, setup string) Preset {
		return Preset{Name: name, Config: Config{TrustedProxies: []string{name}, Header: header}, Setup: told(name, setup)}
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
		cdn("fastly", "X-Forwarded-For", "in vcl_recv: if (fastly.ff.visits_this_service == 0 && req.restarts == 0) { set req.http.X-Forwarded-For = client.ip; } (by itself Fastly appends over TLS only)"),
		cdn("cloudfront", "X-Forwarded-For", ""),
	}
}

func told(name, setup string) string {
	if setup == "" {
		return ""
	}
	return name + " has to be told: " + setup
}

// byHand are known, but need what only the operator knows.
var byHand = map[string]string{
	"google": "a Google Cloud load balancer appends its own address behind the client's: clients: {trusted_proxies: [130.211.0.0/22, 35.191.0.0/16, and the load balancer's address]}",
	"akamai": "Akamai tells its customers the addresses (Site Shield): clients: {trusted_proxies: [those], header: X-Forwarded-For}",
	"azure":  "the prefixes of the service tag AzureFrontDoor.Backend have to be listed: clients: {trusted_proxies: [those], header: X-Forwarded-For}",
}

// BehindNames returns the names that [Behind] knows.
func BehindNames() []string {
	var names []string
	for _, p := range presets() {
		names = append(names, p.Name)
	}
	return names
}

// Behind returns the preset of a name, or of several joined by commas, as in
// "cloudflare,nginx": requests pass through all of them, in any order. Then
// all are trusted, and the header is X-Forwarded-For, to which all append.
//
// The error is a [*BehindError].
func Behind(names string) (Preset, error) {
	var joined Preset
	for i, name := range strings.Split(names, ",") {
		p, err := behind(strings.ToLower(strings.TrimSpace(name)))
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
		for _, word := range p.Config.TrustedProxies {
			if !slices.Contains(joined.Config.TrustedProxies, word) {
				joined.Config.TrustedProxies = append(joined.Config.TrustedProxies, word)
			}
		}
	}
	return joined, nil
}

func behind(name string) (Preset, error) {
	all := presets()
	if i := slices.IndexFunc(all, func(p Preset) bool { return p.Name == name }); i >= 0 {
		return all[i], nil
	}
	return Preset{}, &BehindError{Name: name}
}

// A BehindError is about a name that is no preset's.
type BehindError struct{ Name string }

func (e *BehindError) Error() string {
	if byHand[e.Name] != "" {
		return fmt.Sprintf("%s has no preset", e.Name)
	}
	return fmt.Sprintf("%q is none of %s", e.Name, strings.Join(BehindNames(), ", "))
}

// Hint says what to do, in one line.
func (e *BehindError) Hint() string {
	if hint := byHand[e.Name]; hint != "" {
		return hint
	}
	best, least := "", 3
	for _, name := range BehindNames() {
		if d := distance(e.Name, name); d < least {
			best, least = name, d
		}
	}
	if best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	return "name the proxy's addresses in the policy: clients: {trusted_proxies: [192.0.2.10], header: X-Forwarded-For}"
}

// distance is how many bytes have to be added, dropped or changed to make b of
// a; for long texts at least 3.
func distance(a, b string) int {
	if len(a) > len(b)+2 || len(b) > len(a)+2 {
		return 3
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		last := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := last
			if a[i] != b[j] {
				cost++
			}
			last = row[j+1]
			row[j+1] = min(cost, row[j]+1, last+1)
		}
	}
	return row[len(b)]
}
