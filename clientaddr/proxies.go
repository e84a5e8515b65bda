package clientaddr

import (
	"embed"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"fairshare/internal/network"
)

// Proxies holds the peers that one element of trusted_proxies stands for.
type Proxies struct {
	Prefixes []netip.Prefix // masked, IPv4-mapped ones as IPv4
	Unix     bool           // peers on Unix sockets
}

// proxyNames returns the names that [ParseProxies] knows.
func proxyNames() []string {
	return []string{"loopback", "private", "unix", "cloudflare", "fastly", "cloudfront"}
}

// fixedNames returns those of proxyNames that no list can replace.
func fixedNames() []string { return []string{"loopback", "private", "unix"} }

// ParseProxies reads one element of trusted_proxies: a prefix, an address, or one
// of these names:
//
//	loopback    127.0.0.0/8, ::1
//	private     RFC 1918, fc00::/7, and link-local addresses; neither loopback
//	            nor the carriers' 100.64.0.0/10, which may contain clients
//	unix        peers on Unix sockets
//	cloudflare, fastly, cloudfront    as published; the files in ranges have the date
//
// Bits after a prefix's length are dropped.
func ParseProxies(text string) (Proxies, error) {
	switch text {
	case "loopback":
		return Proxies{Prefixes: mustPrefixes("127.0.0.0/8", "::1/128")}, nil
	case "private":
		return Proxies{Prefixes: mustPrefixes("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16",
			"fc00::/7", "fe80::/10")}, nil
	case "unix":
		return Proxies{Unix: true}, nil
	case "cloudflare", "fastly", "cloudfront":
		return Proxies{Prefixes: mustPrefixes(publishedRanges(text)...)}, nil
	}
	prefix, err := parsePrefix(text)
	if err != nil {
		return Proxies{}, err
	}
	return Proxies{Prefixes: []netip.Prefix{prefix}}, nil
}

var (
	errNoProxy = errors.New("not a prefix, an address or a known name")
	errZone    = errors.New("an address with a zone is not a prefix: remove the % and the text after it")
	errFixed   = errors.New(
		"a list cannot replace this built-in name: rename the list")
	errEmptyList   = errors.New("the list of this name is empty")
	errUnspecified = errors.New("a proxy cannot have this address; for all addresses write 0.0.0.0/0 and ::/0")
)

// parsePrefix reads a prefix or an address: see [network.Parse].
func parsePrefix(text string) (netip.Prefix, error) {
	if strings.IndexByte(text, '%') >= 0 {
		return netip.Prefix{}, errZone
	}
	prefix, err := network.Parse(text)
	addr, bits, slash := strings.Cut(text, "/")
	switch {
	case errors.Is(err, network.ErrMapped):
		return netip.Prefix{}, errMapped(bits)
	case err != nil && slash && validAddr(addr):
		return netip.Prefix{}, fmt.Errorf("/%s is not a valid prefix length", bits)
	case err != nil:
		return netip.Prefix{}, errNoProxy
	case !slash && prefix.Addr().IsUnspecified():
		return netip.Prefix{}, errUnspecified
	}
	return prefix, nil
}

func errMapped(bits string) error {
	return fmt.Errorf("/%s is too short for an IPv4-mapped prefix: at least /96", bits)
}

// canonicalPrefix returns a prefix of Proxies.Prefixes in the form of
// [network.Canonical].
func canonicalPrefix(prefix netip.Prefix) (netip.Prefix, error) {
	if prefix.Addr().Is4In6() && prefix.Bits() < 96 {
		return netip.Prefix{}, errMapped(strconv.Itoa(prefix.Bits()))
	}
	if prefix = network.Canonical(prefix); !prefix.IsValid() {
		return netip.Prefix{}, errNoProxy
	}
	return prefix, nil
}

func validAddr(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil
}

// Each file in ranges holds one prefix per line; lines that begin with # give the
// source.
//
//go:embed ranges/*.txt
var rangeFiles embed.FS

func publishedRanges(name string) []string {
	text, err := rangeFiles.ReadFile("ranges/" + name + ".txt")
	if err != nil {
		panic(err) // the file is embedded
	}
	var prefixes []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			prefixes = append(prefixes, line)
		}
	}
	return prefixes
}

func mustPrefixes(texts ...string) []netip.Prefix {
	prefixes := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		prefixes[i] = netip.MustParsePrefix(text)
	}
	return prefixes
}
