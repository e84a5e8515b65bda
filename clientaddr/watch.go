package clientaddr

import (
	"hash/maphash"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"
)

// Bounds of a Watch.
const (
	suspectAfter   = 100 // requests with a forwarding header make a peer suspected,
	suspectClients = 3   // when they name so many clients
	hidingAgents   = 10  // user agents make a peer that sends no header look like a proxy
	maxPeers       = 256 // watched, in each of the two tables
	maxSilent      = 128 // of them those that sent no header when they were first seen
	sampled        = 16  // one of so many requests of a suspected peer is looked at closely
	forgetAfter    = time.Hour
)

// A Watch finds proxies that nobody named, and trusted ones that do not name
// their clients. It is fed by [Watch.Look] and tells by [Watch.Lines].
//
// It sees peers on this machine and its private network alone. Somebody there
// may pass for a proxy, and gains no more than that the limits of its own
// address only report: what it claims of other clients is never believed.
//
// At most 512 peers are watched at a time, in less than 256 KiB. A Watch is
// safe for concurrent use and outlives its Resolvers.
type Watch struct {
	seed    maphash.Seed
	peers   table[peer]  // that are not trusted
	proxies table[proxy] // trusted, that failed to name a client
}

// NewWatch returns a Watch that has seen nobody.
func NewWatch() *Watch { return &Watch{seed: maphash.MakeSeed()} }

// A peer is one that is not trusted: an address of this machine or of a
// private network, or all Unix sockets together.
type peer struct {
	requests  atomic.Int64                  // all
	checked   atomic.Int64                  // those whose headers were looked at: all, until it is suspected
	forwarded atomic.Int64                  // of them, those with a forwarding header
	by        [len(forwarding)]atomic.Int64 // of them, those with this one
	clients   distinct
	agents    distinct
	suspect   atomic.Bool
	hiding    atomic.Bool // many user agents, no header
	spared    atomic.Bool // Hides said so since Lines was called
	seen      atomic.Bool // a forwarding header since Lines was called

	// Of Lines.
	told     int64     // requests, at the last call
	askedAt  time.Time // the last call that found new requests
	headerAt time.Time // the last call that found seen
	saidAt   time.Time // that it hides its clients
}

// A proxy is a trusted peer that failed to name a client.
type proxy struct {
	requests  atomic.Int64 // since Lines was called, as the next four
	missing   atomic.Int64
	malformed atomic.Int64
	instead   [len(forwarding)]atomic.Int64 // missing, but with this header
	agents    distinct                      // of those that failed

	// Of Lines.
	failedAt time.Time // the last call that found a failure
	saidAt   time.Time
}

// Look notes one request: what r made of it, and its headers. It reports
// whether the peer is a suspected proxy, so that limits keyed by it should
// only report.
//
// A peer is suspected from its hundredth request with a forwarding header on,
// when these named three different clients, none of them trusted by r. It is
// no longer when r trusts it, nor an hour after its last such header.
func (w *Watch) Look(r *Resolver, res Result, h Header) (suspect bool) {
	if res.PeerTrusted {
		if res.Missing || res.Malformed || w.proxies.n.Load() > 0 {
			w.lookAtProxy(r, res, h)
		}
		return false
	}
	return local(res.Peer) && w.lookAtPeer(r, res.Peer, h)
}

// Suspects reports whether a peer is a suspected proxy now, without noting
// anything. The address is as [Canonical] gives it, invalid for Unix sockets.
func (w *Watch) Suspects(peer netip.Addr) bool {
	if !local(peer) {
		return false
	}
	p := w.peers.get(peer)
	return p != nil && p.suspect.Load()
}

// Hides reports whether a peer is likely to be a proxy that does not name its
// clients: a hundred requests with ten or more user agents and without a
// forwarding header. The address is as for Suspects. While it does, Lines tells
// of it each time.
func (w *Watch) Hides(peer netip.Addr) bool {
	if !local(peer) {
		return false
	}
	p := w.peers.get(peer)
	if p == nil || !p.hiding.Load() || p.requests.Load() < suspectAfter {
		return false
	}
	if !p.spared.Load() {
		p.spared.Store(true)
	}
	return true
}

// local reports whether an address is of the names loopback and private, or
// the one that stands for Unix sockets.
func local(addr netip.Addr) bool {
	return addr.IsPrivate() || addr.IsLoopback() || addr.IsLinkLocalUnicast() || !addr.IsValid()
}

func (w *Watch) lookAtPeer(r *Resolver, addr netip.Addr, h Header) (suspect bool) {
	p := w.peers.get(addr)
	var names headerSet
	if p == nil {
		most := maxSilent
		if names = headersOf(h); names != 0 {
			most = maxPeers
		}
		if p = w.peers.add(addr, most); p == nil {
			return false
		}
		p.requests.Add(1)
	} else {
		n := p.requests.Add(1)
		if p.suspect.Load() && n%sampled != 0 && p.seen.Load() {
			return true
		}
		names = headersOf(h)
	}
	p.checked.Add(1)
	if names == 0 {
		if !p.hiding.Load() && p.agents.add(w.hash(agentOf(h))) == hidingAgents {
			p.hiding.Store(true)
		}
		return p.suspect.Load()
	}
	if !p.seen.Load() {
		p.seen.Store(true)
	}
	first := -1
	for i := range forwarding {
		if names.has(i) {
			p.by[i].Add(1)
			if first < 0 {
				first = i
			}
		}
	}
	n := p.forwarded.Add(1)
	if p.suspect.Load() {
		return true
	}
	clients := p.clients.len()
	if clients < suspectClients {
		if client, ok := r.named(first, h); ok {
			clients = p.clients.add(maphash.Comparable(w.seed, client))
		}
	}
	if n < suspectAfter || clients < suspectClients {
		return false
	}
	p.suspect.Store(true)
	return true
}

func (w *Watch) lookAtProxy(r *Resolver, res Result, h Header) {
	p := w.proxies.get(res.Peer)
	failed := res.Missing || res.Malformed
	if p == nil {
		if !failed {
			return
		}
		if p = w.proxies.add(res.Peer, maxPeers); p == nil {
			return
		}
	}
	p.requests.Add(1)
	switch {
	case res.Missing:
		p.missing.Add(1)
		names := headersOf(h)
		for i := range forwarding {
			if names.has(i) {
				p.instead[i].Add(1)
			}
		}
	case res.Malformed:
		p.malformed.Add(1)
	}
	if failed {
		p.agents.add(w.hash(agentOf(h)))
	}
}

// named returns the client that a header of forwarding names, as if the peer
// were trusted. ok is false when it cannot be read or names no client but a
// trusted proxy.
func (r *Resolver) named(i int, h Header) (client netip.Addr, ok bool) {
	reader := Resolver{trusted: r.trusted, kind: forwarding[i].kind}
	var res Result
	reader.walk(&res, valuesOf(h, forwarding[i].key))
	return res.Addr, res.Addr.IsValid() && !res.Proxy && !res.Malformed
}

// valuesOf returns all values of a header; key is canonical.
func valuesOf(h Header, key string) []string {
	switch h := h.(type) {
	case nil:
		return nil
	case http.Header:
		return h[key] // Values would spell the key anew
	}
	return h.Values(key)
}

func (w *Watch) hash(s string) uint64 { return maphash.String(w.seed, s) }

// agentOf returns the first User-Agent, "" when there is none.
func agentOf(h Header) string {
	if values := valuesOf(h, "User-Agent"); len(values) > 0 {
		return values[0]
	}
	return ""
}

// forwarding are the headers in which proxies name their client, the safest to
// believe first: a list that each proxy appends to, then those that some
// proxies set and others pass on as the client sent them.
var forwarding = [...]struct {
	key  string // canonical
	name string // as it is usually written
	kind headerKind
}{
	{"X-Forwarded-For", "X-Forwarded-For", listHeader},
	{"Forwarded", "Forwarded", forwardedHeader},
	{"X-Real-Ip", "X-Real-IP", singleHeader},
	{"Cf-Connecting-Ip", "CF-Connecting-IP", singleHeader},
	{"True-Client-Ip", "True-Client-IP", singleHeader},
	{"Fastly-Client-Ip", "Fastly-Client-IP", singleHeader},
	{"X-Azure-Clientip", "X-Azure-ClientIP", singleHeader},
	{"X-Client-Ip", "X-Client-IP", singleHeader},
	{"X-Cluster-Client-Ip", "X-Cluster-Client-IP", singleHeader},
}

// A headerSet holds one bit for each header of forwarding.
type headerSet uint16

func (s headerSet) has(i int) bool { return s>>i&1 != 0 }

func headersOf(h Header) headerSet {
	var set headerSet
	for i := range forwarding {
		if values := valuesOf(h, forwarding[i].key); len(values) > 1 || len(values) == 1 && trim(values[0]) != "" {
			set |= 1 << i
		}
	}
	return set
}
