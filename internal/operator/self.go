package operator

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"fairshare"
)

// Prefixes that are shorter hold a large part of all clients.
const (
	widest4 = 8
	widest6 = 19 // the shortest that a registry was ever given
)

// tooWide says why a prefix is too wide to mean some clients; "" when not.
func tooWide(id fairshare.ClientID) string {
	p := id.Prefix
	switch {
	case !p.IsValid():
		return ""
	case p.Bits() == 0 && p.Addr().Is4():
		return "every client that uses IPv4"
	case p.Bits() == 0:
		return "every client that uses IPv6"
	case p.Bits() < widest4 && p.Addr().Is4() || p.Bits() < widest6 && p.Addr().Is6():
		return "a large part of the internet"
	}
	return ""
}

// hitsSelf says whom a ban would hit by mistake: the site itself, or the
// operator; "" when nobody.
func (o *operation) hitsSelf(id fairshare.ClientID) string {
	p := id.Prefix
	if !p.IsValid() {
		return ""
	}
	if why := tooWide(id); why != "" {
		return why
	}
	for _, loopback := range []string{"127.0.0.0/8", "::1/128"} {
		if p.Overlaps(netip.MustParsePrefix(loopback)) {
			return "this machine itself (loopback)"
		}
	}
	for _, proxy := range o.settings.TrustedProxies {
		if p.Overlaps(proxy) {
			return fmt.Sprintf("a trusted proxy (%s), and with it all clients behind it", fairshare.PrefixID(proxy))
		}
	}
	own, _ := net.InterfaceAddrs() // without them the rest still holds
	for _, a := range own {
		if n, ok := a.(*net.IPNet); ok {
			if addr, ok := netip.AddrFromSlice(n.IP); ok && p.Contains(addr.Unmap()) {
				return fmt.Sprintf("this machine itself (%s)", addr.Unmap())
			}
		}
	}
	if addr := cameFrom(); p.Contains(addr) {
		return fmt.Sprintf("you, who are logged in from %s", addr)
	}
	return ""
}

// cameFrom returns the address that the operator is logged in from, invalid
// when it is not known.
func cameFrom() netip.Addr {
	for _, name := range []string{"SSH_CONNECTION", "SSH_CLIENT"} {
		if addr := firstAddr(os.Getenv(name)); addr.IsValid() {
			return addr
		}
	}
	return cameThrough(os.Getppid())
}

// cameThrough looks for the address in the environments of a process and its
// parents: sudo hands on none of ssh.
func cameThrough(pid int) netip.Addr {
	for range 16 {
		dir := "/proc/" + strconv.Itoa(pid) // proc(5)
		env, _ := os.ReadFile(dir + "/environ")
		for entry := range bytes.SplitSeq(env, []byte{0}) {
			if value, found := strings.CutPrefix(string(entry), "SSH_CONNECTION="); found {
				return firstAddr(value)
			}
		}
		stat, err := os.ReadFile(dir + "/stat")
		if err != nil {
			break
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // after the name: state, parent
		if len(fields) < 2 {
			break
		}
		if pid, err = strconv.Atoi(fields[1]); err != nil || pid <= 1 {
			break
		}
	}
	return netip.Addr{}
}

// firstAddr reads the address that a text begins with.
func firstAddr(text string) netip.Addr {
	word, _, _ := strings.Cut(text, " ")
	addr, err := netip.ParseAddr(word)
	if err != nil {
		return netip.Addr{}
	}
	return addr.Unmap().WithZone("")
}
