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
	checkedAll   = 100 // the headers of a peer's first 100 requests are checked,
	sampled      = 16  // then those of one request in 16
	hidingAfter  = 100 // a peer without a forwarding header is a likely proxy after 100 requests
	hidingAgents = 10  // with at least 10 user agents
	maxPeers     = 256 // in each of the two tables
	maxSilent    = 128 // of them, peers whose first request had no forwarding header
	forgetAfter  = time.Hour
)

// A Watch detects proxies that the configuration does not name, and trusted
// proxies that do not name their clients. [Watch.Observe] takes requests and
// [Watch.Reports] returns the findings.
//
// Of the peers that are not trusted it observes only those on this machine and
// its private network. It does not change how requests are resolved.
//
// It observes at most 512 peers at a time, in less than 256 KiB. A Watch is safe
// for concurrent use and outlives its Resolvers.
type Watch struct {
	seed    maphash.Seed
	peers   table[peer]  // that are not trusted
	proxies table[proxy] // trusted, that failed to name a client
}

// NewWatch returns a Watch that has observed no requests.
func NewWatch() *Watch { return &Watch{seed: maphash.MakeSeed()} }

// A peer is an untrusted address of this machine or of a private network, or all
// Unix sockets together.
type peer struct {
	requests  atomic.Int64
	forwarded atomic.Int64                  // requests that named a client provisionally
	checked   atomic.Int64                  // requests whose headers were checked
	by        [len(forwarding)]atomic.Int64 // checked requests with this header
	clients   distinct
	agents    distinct
	hiding    atomic.Bool // many user agents, no header
	exempted  atomic.Bool // HidesClients returned true since the last Reports

	// Used by Reports only.
	lastRequests  int64     // requests at the last call
	lastForwarded int64     // forwarded at the last call
	activeAt      time.Time // the last call that found new requests
	reportedAt    time.Time // when Reports last said that the peer hides its clients
}

// A proxy is a trusted peer that failed to name a client. Reports counts its
// requests in periods: a period ends with a report, or after an hour.
type proxy struct {
	// In this period.
	requests  atomic.Int64
	missing   atomic.Int64
	malformed atomic.Int64
	instead   [len(forwarding)]atomic.Int64 // missing, but with this header
	agents    distinct                      // of requests without the header

	since time.Time // when the period began; used by Reports only
}

// Resolve returns what r.Resolve returns for a request, and records the request as
// Observe does. It costs less than both.
func (w *Watch) Resolve(r *Resolver, peer string, h Header) Result {
	f := fields{header: h}
	res := r.resolve(peer, &f)
	w.observe(r, res, &f)
	return res
}

// Observe records one request: its headers, and the result that r gave for it.
func (w *Watch) Observe(r *Resolver, res Result, h Header) { w.observe(r, res, &fields{header: h}) }

func (w *Watch) observe(r *Resolver, res Result, f *fields) {
	switch {
	case res.PeerTrusted:
		if res.Missing || res.Malformed || w.proxies.n.Load() > 0 {
			w.observeProxy(res, f)
		}
	case r.MayNameClients(res.Peer):
		w.observePeer(res, f)
	}
}

// HidesClients reports whether a peer is likely to be a proxy that does not name
// its clients: it sent a hundred requests with ten or more user agents and
// without a forwarding header. The address is as [Canonical] returns it, invalid
// for Unix sockets. The next Reports names every peer for which this is true.
func (w *Watch) HidesClients(peer netip.Addr) bool {
	p := w.peers.get(peer)
	if p == nil || !p.hiding.Load() || p.requests.Load() < hidingAfter {
		return false
	}
	if !p.exempted.Load() {
		p.exempted.Store(true)
	}
	return true
}

func (w *Watch) observePeer(res Result, f *fields) {
	named := res.Via.IsValid()
	p := w.peers.get(res.Peer)
	if p == nil {
		most := maxSilent
		if named {
			most = maxPeers
		}
		if p = w.peers.add(res.Peer, most); p == nil {
			return
		}
	}
	n := p.requests.Add(1)
	if named {
		p.forwarded.Add(1)
	}
	if n > checkedAll && n%sampled != 0 && p.forwarded.Load() > 0 {
		return
	}
	p.checked.Add(1)
	names := f.forwarding()
	for i := range forwarding {
		if names.has(i) {
			p.by[i].Add(1)
		}
	}
	switch {
	case named:
		p.clients.add(maphash.Comparable(w.seed, res.Addr))
	case names == 0 && !p.hiding.Load():
		if p.agents.add(w.hash(agentOf(f.header))) == hidingAgents {
			p.hiding.Store(true)
		}
	}
}

func (w *Watch) observeProxy(res Result, f *fields) {
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
		p.agents.add(w.hash(agentOf(f.header)))
		names := f.forwarding()
		for i := range forwarding {
			if names.has(i) {
				p.instead[i].Add(1)
			}
		}
	case res.Malformed:
		p.malformed.Add(1)
	}
}

// valuesOf returns all values of a header; key is canonical.
func valuesOf(h Header, key string) []string {
	switch h := h.(type) {
	case nil:
		return nil
	case http.Header:
		return h[key] // Values would canonicalize the key again
	}
	return h.Values(key)
}

func (w *Watch) hash(s string) uint64 { return maphash.String(w.seed, s) }

// agentOf returns the first User-Agent, "" if there is none.
func agentOf(h Header) string {
	if values := valuesOf(h, "User-Agent"); len(values) > 0 {
		return values[0]
	}
	return ""
}

// forwarding lists the headers in which proxies name their client, the safest
// first. Each proxy appends to the lists; some proxies set the other headers and
// some pass on the value that the client sent.
var forwarding = [...]forwardingHeader{
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

type forwardingHeader struct {
	key  string // canonical
	name string // in the usual spelling
	kind headerKind
}

// A headerSet holds one bit for each header of forwarding.
type headerSet uint16

func (s headerSet) has(i int) bool { return s>>i&1 != 0 }

// fields are the headers of one request, searched for those of forwarding at most once.
type fields struct {
	header   Header
	present  headerSet
	searched bool
}

// forwarding returns the headers of forwarding that are present and not blank.
func (f *fields) forwarding() headerSet {
	if !f.searched {
		f.present, f.searched = headersOf(f.header), true
	}
	return f.present
}

// smallMap is how many elements a map of Go holds in one group. A search of such a map
// compares each key, so that one pass over the map costs less than nine searches.
const smallMap = 8

func headersOf(h Header) headerSet {
	if all, ok := h.(http.Header); ok && len(all) <= smallMap {
		return headersAmong(all)
	}
	var set headerSet
	for i := range forwarding {
		if named(valuesOf(h, forwarding[i].key)) {
			set |= 1 << i
		}
	}
	return set
}

// headersAmong is headersOf, in one pass over the headers.
func headersAmong(all http.Header) headerSet {
	var set headerSet
	for key, values := range all {
		if key == "" || forwardingLengths[key[0]]>>len(key)&1 == 0 {
			continue
		}
		for i := range forwarding {
			if key == forwarding[i].key && named(values) {
				set |= 1 << i
			}
		}
	}
	return set
}

// forwardingLengths has a bit for each length of a key of forwarding, by its first byte.
var forwardingLengths = func() (of [256]uint32) {
	for i := range forwarding {
		of[forwarding[i].key[0]] |= 1 << len(forwarding[i].key)
	}
	return of
}()

// named reports whether a header with these values is present and not blank.
func named(values []string) bool {
	return len(values) > 1 || len(values) == 1 && trim(values[0]) != ""
}
