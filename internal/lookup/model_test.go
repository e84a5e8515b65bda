package lookup

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// A behaviour describes the DNS of an address.
type behaviour struct {
	latency time.Duration // of each answer
	hangs   bool          // the reverse zone never answers
	fails   bool          // SERVFAIL
	name    bool          // the address has a name that confirms it
}

// A modelDNS replaces all of DNS in a bubble. It checks that there is one question at a time for
// each network, and counts the questions at once.
type modelDNS struct {
	t  testing.TB
	of func(netip.Addr) behaviour

	mu        sync.Mutex
	dead      bool // the server itself does not answer
	running   map[netip.Prefix]int
	atOnce    int
	most      int
	questions map[netip.Addr]int // PTR questions
	answers   map[string][]netip.Addr
}

func newModel(t testing.TB, of func(netip.Addr) behaviour) *modelDNS {
	return &modelDNS{t: t, of: of, running: make(map[netip.Prefix]int), questions: make(map[netip.Addr]int),
		answers: make(map[string][]netip.Addr)}
}

func (m *modelDNS) kill(dead bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead = dead
}

func (m *modelDNS) questionsAbout(addr netip.Addr) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.questions[addr]
}

// peak is the greatest number of questions at once.
func (m *modelDNS) peak() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.most
}

// modelName returns the name of an address in the model; modelAddr is its inverse.
func modelName(addr netip.Addr) string {
	return "h" + strings.NewReplacer(".", "-", ":", "z").Replace(addr.String()) + ".real.example"
}

func addrOf(name string, kind dnsmessage.Type) netip.Addr {
	var text string
	switch {
	case kind != dnsmessage.TypePTR:
		text, _, _ = strings.Cut(strings.TrimPrefix(name, "h"), ".")
		text = strings.NewReplacer("-", ".", "z", ":").Replace(text)
	case strings.HasSuffix(name, ".in-addr.arpa."):
		parts := strings.Split(name, ".")
		text = parts[3] + "." + parts[2] + "." + parts[1] + "." + parts[0]
	default:
		parts := strings.Split(name, ".")
		var octets [16]byte
		for i := range octets {
			value, _ := strconv.ParseUint(parts[31-2*i]+parts[30-2*i], 16, 8)
			octets[i] = byte(value)
		}
		return netip.AddrFrom16(octets)
	}
	return netip.MustParseAddr(text)
}

func (m *modelDNS) query(ctx context.Context, name string, kind dnsmessage.Type) (records, error) {
	m.mu.Lock()
	dead := m.dead
	listed, isList := m.answers[name]
	m.mu.Unlock()
	if dead {
		<-ctx.Done()
		return records{}, ctx.Err()
	}
	if name == "." {
		return records{}, nil
	}
	if isList || strings.HasSuffix(name, ".list.example.") {
		return records{addrs: listed}, nil
	}
	addr := addrOf(name, kind)
	b := m.of(addr)
	narrow, _ := prefixes(addr)
	m.mu.Lock()
	if kind == dnsmessage.TypePTR {
		m.questions[addr]++
	}
	if m.running[narrow]++; m.running[narrow] > 1 {
		m.t.Errorf("two questions about %v at once", narrow)
	}
	m.atOnce++
	m.most = max(m.most, m.atOnce)
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		m.running[narrow]--
		m.atOnce--
		m.mu.Unlock()
	}()

	late := time.NewTimer(b.latency)
	defer late.Stop()
	answered := late.C
	if b.hangs {
		answered = nil
	}
	select {
	case <-ctx.Done():
		return records{}, ctx.Err()
	case <-answered:
	}
	switch {
	case b.fails:
		return records{}, rcodeError(dnsmessage.RCodeServerFailure)
	case !b.name:
		return records{}, nil
	case kind == dnsmessage.TypePTR:
		return records{names: []string{modelName(addr)}}, nil
	}
	return records{addrs: []netip.Addr{addr}}, nil
}

func TestModelNamesRoundTrip(t *testing.T) {
	for _, text := range []string{"192.0.2.7", "2001:db8:1234:5678:9abc:def0:1:2"} {
		addr := netip.MustParseAddr(text)
		if got := addrOf(reverseName(addr), dnsmessage.TypePTR); got != addr {
			t.Errorf("%s: %v", text, got)
		}
		if got := addrOf(modelName(addr)+".", dnsmessage.TypeA); got != addr {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// v4 spreads n over wide prefixes, networks in each, and addresses.
func v4(n, wides, networks int) netip.Addr {
	w, rest := n%wides, n/wides
	return netip.AddrFrom4([4]byte{byte(20 + w/256), byte(w), byte(rest % networks), byte(1 + rest/networks)})
}

func v6(n, wides, networks int) netip.Addr {
	w, rest := n%wides, n/wides
	text := fmt.Sprintf("2400:%x:%x::%x", w, rest%networks, 1+rest/networks)
	return netip.MustParseAddr(text)
}
