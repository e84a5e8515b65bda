package clientaddr

import (
	"embed"
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Proxies is what one word of trusted_proxies stands for.
type Proxies struct {
	Prefixes []netip.Prefix // masked, IPv4-mapped ones as IPv4
	Unix     bool           // peers on Unix sockets
}

// Names are the words that stand for more than one prefix or for none.
func Names() []string {
	return []string{"loopback", "private", "unix", "cloudflare", "fastly", "cloudfront"}
}

// FixedNames are those of [Names] that no list can replace.
func FixedNames() []string { return []string{"loopback", "private", "unix"} }

// ParseProxies reads one word of trusted_proxies: a prefix, an address, or one
// of [Names]:
//
//	loopback    127.0.0.0/8, ::1
//	private     RFC 1918, fc00::/7, and link-local addresses; not loopback, and
//	            not the carriers' 100.64.0.0/10, where clients may sit
//	unix        peers on Unix sockets
//	cloudflare, fastly, cloudfront    as published; the files in ranges say when
//
// Bits behind a prefix's length are dropped.
func ParseProxies(word string) (Proxies, error) {
	switch word {
	case "loopback":
		return Proxies{Prefixes: mustPrefixes("127.0.0.0/8", "::1/128")}, nil
	case "private":
		return Proxies{Prefixes: mustPrefixes("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "fc00::/7", "fe80::/10")}, nil
	case "unix":
		return Proxies{Unix: true}, nil
	case "cloudflare", "fastly", "cloudfront":
		return Proxies{Prefixes: mustPrefixes(publishedRanges(word)...)}, nil
	}
	prefix, err := parsePrefix(word)
	if err != nil {
		return Proxies{}, err
	}
	return Proxies{Prefixes: []netip.Prefix{prefix}}, nil
}

var (
	errNoProxy     = errors.New("neither a prefix, an address, nor a known name")
	errZone        = errors.New("an address with a zone is no prefix: leave out all from % on")
	errFixed       = errors.New("a list of this name cannot replace what the name stands for: call the list something else")
	errEmptyList   = errors.New("the list of this name is empty")
	errUnspecified = errors.New("no proxy has this address; for all addresses write 0.0.0.0/0 and ::/0")
)

// parsePrefix reads a prefix or an address, IPv4-mapped ones as IPv4.
func parsePrefix(word string) (netip.Prefix, error) {
	if strings.IndexByte(word, '%') >= 0 {
		return netip.Prefix{}, errZone
	}
	if strings.IndexByte(word, '/') < 0 {
		addr, err := netip.ParseAddr(word)
		if err != nil {
			return netip.Prefix{}, errNoProxy
		}
		if addr = addr.Unmap(); addr.IsUnspecified() {
			return netip.Prefix{}, errUnspecified
		}
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(word)
	if err != nil {
		if addr, bits, _ := strings.Cut(word, "/"); validAddr(addr) {
			return netip.Prefix{}, fmt.Errorf("/%s is no length of a prefix", bits)
		}
		return netip.Prefix{}, errNoProxy
	}
	return canonicalPrefix(prefix)
}

// canonicalPrefix masks a prefix and takes IPv4-mapped ones as IPv4.
func canonicalPrefix(prefix netip.Prefix) (netip.Prefix, error) {
	if prefix.Addr().Is4In6() {
		if prefix.Bits() < 96 {
			return netip.Prefix{}, fmt.Errorf("/%d is too short for an IPv4-mapped prefix: at least /96", prefix.Bits())
		}
		prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
	}
	if !prefix.IsValid() {
		return netip.Prefix{}, errNoProxy
	}
	return prefix.Masked(), nil
}

func validAddr(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil
}

// Each file in ranges holds one prefix a line; lines that begin with # say
// where they are from.
//
//go:embed ranges/*.txt
var rangeFiles embed.FS

func publishedRanges(name string) []string {
	text, err := rangeFiles.ReadFile("ranges/" + name + ".txt")
	if err != nil {
		panic(err) // it is part of the program
	}
	var words []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			words = append(words, line)
		}
	}
	return words
}

func mustPrefixes(words ...string) []netip.Prefix {
	prefixes := make([]netip.Prefix, len(words))
	for i, word := range words {
		prefixes[i] = netip.MustParsePrefix(word)
	}
	return prefixes
}
