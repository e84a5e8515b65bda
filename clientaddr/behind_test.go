package clientaddr_test

import (
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairshare/clientaddr"
)

// The headers that each proxy sends if a client forged every header.
func TestBehindFindsTheClientThatForgesHeaders(t *testing.T) {
	const client, forged = "192.0.2.1", "6.6.6.6"
	appended := []string{"X-Forwarded-For: " + forged + ", " + client}
	replaced := []string{"X-Forwarded-For: " + client}
	own := []string{"127.0.0.1:1", "[::1]:1", "10.0.0.1:1", "[fd00::1]:1", "@"}
	tests := []struct {
		name  string
		peers []string
		sent  []string
	}{
		{"nginx", own, appended},
		{"apache", own, appended},
		{"caddy", own, replaced},
		{"haproxy", own, []string{"X-Forwarded-For: " + forged, "X-Forwarded-For: " + client}}, // a line of its own
		{"traefik", own, replaced},
		{"varnish", own, appended},
		{"envoy", own, appended},
		{"alb", own, appended},
		{"cloudflare", []string{"104.16.0.1:1", "[2606:4700::1]:1"},
			[]string{"CF-Connecting-IP: " + client, "X-Forwarded-For: " + forged}},
		// shielded
		{"fastly", []string{"151.101.0.1:1"}, []string{"X-Forwarded-For: " + client + ", 151.101.1.1",
			"Fastly-Client-IP: " + forged}},
		{"cloudfront", []string{"15.158.27.206:1"}, appended},
		{"cloudflare,nginx", own, []string{"X-Forwarded-For: " + forged + ", " + client + ", 104.16.0.1",
			"CF-Connecting-IP: " + forged}},
		{"NGINX, CloudFlare", own, []string{"X-Forwarded-For: " + forged + ", " + client + ", 104.16.0.1",
			"CF-Connecting-IP: " + forged}},
		{"nginx,haproxy", own, append(appended, "X-Forwarded-For: 10.0.0.1")},
	}
	var names []string
	for _, test := range tests {
		preset, err := clientaddr.Behind(test.name)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if !strings.ContainsAny(test.name, ", ") {
			names = append(names, test.name)
			if preset.Name != test.name {
				t.Errorf("%s is called %s", test.name, preset.Name)
			}
		}
		if preset.Setup != "" && !strings.Contains(preset.Setup, " needs this setting: ") ||
			strings.Contains(preset.Setup, "\n") {
			t.Errorf("%s: %+v", test.name, preset)
		}
		r, err := clientaddr.New(preset.Config)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		for _, peer := range test.peers {
			if got := r.Resolve(peer, headers(test.sent...)); got.Addr != addr(client) || got.Proxy || got.Malformed {
				t.Errorf("%s: from %s with %q: %+v", test.name, peer, test.sent, got)
			}
		}
		// A client that connects directly is the peer, whatever it sends.
		if got := r.Resolve("198.51.100.1:1", headers(
			append(test.sent, "CF-Connecting-IP: 6.6.6.6")...)); got.Addr != addr("198.51.100.1") {
			t.Errorf("%s: the header of an untrusted peer was believed: %+v", test.name, got)
		}
	}
	if !slices.Equal(names, clientaddr.BehindNames()) {
		t.Errorf("BehindNames() = %q, tested are %q", clientaddr.BehindNames(), names)
	}
}

func TestBehindSeveralTrustsAll(t *testing.T) {
	got, err := clientaddr.Behind("cloudflare,nginx,haproxy")
	if err != nil || !slices.Equal(got.Config.TrustedProxies, []string{"cloudflare", "loopback", "private", "unix"}) ||
		got.Config.Header != "X-Forwarded-For" || got.Name != "cloudflare,nginx,haproxy" ||
		!strings.HasPrefix(got.Setup, "nginx needs this setting: proxy_set_header ") ||
		!strings.Contains(got.Setup, "; and haproxy needs this setting: ") {
		t.Errorf("%+v, %v", got, err)
	}
	// Presets share nothing that one of them could change.
	got.Config.TrustedProxies[1] = "0.0.0.0/0"
	if again, _ := clientaddr.Behind("nginx"); again.Config.TrustedProxies[0] != "loopback" {
		t.Errorf("%+v", again)
	}
}

func TestBehindReportsUnknownNames(t *testing.T) {
	tests := []struct{ name, err, hint string }{
		{"ngnix",
			`"ngnix" is not one of nginx, apache, caddy, haproxy, traefik, varnish, envoy, alb, cloudflare, fastly, cloudfront`, `did you mean "nginx"?`},
		{"cloudflair", "is not one of", `did you mean "cloudflare"?`},
		{"nginx,cadddy", `"cadddy" is not one of`, `did you mean "caddy"?`},
		{"pound", "is not one of", "trusted_proxies: [192.0.2.10]"},
		{"", "is not one of", "trusted_proxies"},
		{"nginx,", "is not one of", "trusted_proxies"},
		{strings.Repeat("nginx", 1000), "is not one of", "trusted_proxies"},
		{"google", "google has no preset", "130.211.0.0/22, 35.191.0.0/16"},
		{"Akamai", "akamai has no preset", "Site Shield"},
		{"azure", "azure has no preset", "AzureFrontDoor.Backend"},
	}
	for _, test := range tests {
		got, err := clientaddr.Behind(test.name)
		var unknown *clientaddr.BehindError
		if !errors.As(err, &unknown) || got.Config.TrustedProxies != nil {
			t.Errorf("Behind(%q) = %+v, %v", test.name, got, err)
			continue
		}
		if !strings.Contains(err.Error(), test.err) || !strings.Contains(unknown.Hint(), test.hint) {
			t.Errorf("Behind(%q): %v; hint: %s", test.name, err, unknown.Hint())
		}
	}
}

func TestListsReplacePublishedAddresses(t *testing.T) {
	lists := prefixLists{"cloudflare": {"203.0.113.0/24"}, "ours": {"::ffff:198.51.100.1/128", "2001:db8::1/32"},
		"private": {"203.0.113.0/24"}, "none": {}}
	r, err := clientaddr.New(clientaddr.Config{TrustedProxies: []string{"cloudflare", "ours", "loopback"},
		Lists: lists.parsed()})
	if err != nil {
		t.Fatal(err)
	}
	for s, want := range map[string]bool{"203.0.113.9": true, "104.16.0.1": false, "198.51.100.1": true,
		"198.51.100.2": false, "2001:db8:ffff::1": true, "127.0.0.1": true} {
		if r.Trusts(addr(s)) != want {
			t.Errorf("Trusts(%s) = %v", s, !want)
		}
	}
	if got := r.Resolve("203.0.113.9:1", http.Header{"X-Forwarded-For": {"192.0.2.1"}}); got.Addr != addr("192.0.2.1") {
		t.Errorf("%+v", got)
	}
	_, err = clientaddr.New(clientaddr.Config{TrustedProxies: []string{"private", "none", "fastly"},
		Lists: lists.parsed()})
	var faults clientaddr.ConfigErrors
	if !errors.As(err, &faults) || len(faults) != 2 ||
		!strings.Contains(faults[0].Error(), `"private": a list cannot replace`) ||
		!strings.Contains(faults[1].Error(), `"none": the list of this name is empty`) {
		t.Errorf("%v", err)
	}
	// A list that the configuration does not name is not checked.
	if _, err = clientaddr.New(clientaddr.Config{TrustedProxies: []string{"loopback"},
		Lists: lists.parsed()}); err != nil {
		t.Error(err)
	}
}

type prefixLists map[string][]string

func (lists prefixLists) parsed() map[string][]netip.Prefix {
	parsed := map[string][]netip.Prefix{}
	for name, text := range lists {
		parsed[name] = []netip.Prefix{}
		for _, word := range text {
			parsed[name] = append(parsed[name], netip.MustParsePrefix(word))
		}
	}
	return parsed
}
