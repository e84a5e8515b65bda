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

// A shorter prefix contains a large part of all clients.
const (
	widest4 = 8
	widest6 = 19 // the shortest prefix that a regional registry has been given
)

// tooWide returns a description of a prefix that is probably a mistake because
// it is very wide, "" for any other client.
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

// selfWithin returns what a ban of a client would hit by mistake: the machine, a
// trusted proxy or the operator; "" if none of them.
func (o *operation) selfWithin(id fairshare.ClientID) string {
	p := id.Prefix
	if !p.IsValid() {
		return ""
	}
	if width := tooWide(id); width != "" {
		return width
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
	if addr := loginAddr(); p.Contains(addr) {
		return fmt.Sprintf("you, who are logged in from %s", addr)
	}
	return ""
}

// loginAddr returns the address from which the operator is logged in by SSH;
// invalid if it is not known. Without it an operator could lock themselves out:
// an address in the logs that sends many requests is often their own.
func loginAddr() netip.Addr {
	for _, name := range []string{"SSH_CONNECTION", "SSH_CLIENT"} {
		if addr := firstAddr(os.Getenv(name)); addr.IsValid() {
			return addr
		}
	}
	return loginAddrOf(os.Getppid())
}

// loginAddrOf looks for SSH_CONNECTION in the environments of a process and its
// ancestors. Most operators use sudo, which removes the variable, and only the
// shell before sudo still has it.
func loginAddrOf(pid int) netip.Addr {
	for range 16 { // more than the shells, sudo and tmux between a login and a command
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

// firstAddr reads the address at the start of a text.
func firstAddr(text string) netip.Addr {
	word, _, _ := strings.Cut(text, " ")
	addr, err := netip.ParseAddr(word)
	if err != nil {
		return netip.Addr{}
	}
	return addr.Unmap().WithZone("")
}
