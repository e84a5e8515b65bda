package proxy

import (
	"net/http"
	"net/netip"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/internal/outbound"
)

// A repeat is what is known of the last request of a client's connection. Most clients send the same header again and
// again: then it is neither checked nor rewritten again. A request with a body, or of a trusted proxy, is never
// remembered. One request at a time uses it.
type repeat struct {
	// size is that of the last header. Two headers of one size in a row are probably the same.
	size headerSize

	setup      *setup // nil: the rest is not known
	pool       *pool
	method     string
	host       string
	remoteAddr string
	tls        bool
	sender     sender
	fields     []outbound.Field // of the client, each name once
	lines      []byte           // what all upstreams get after the target
}

// Bounds of what a connection remembers. With the lines, it needs at most 4 KiB.
const (
	repeatedFields = 17
	repeatedBytes  = 1 << 10 // with the method
)

// A sender is the part of a client that the upstream gets to know.
type sender struct {
	judged    bool
	addr, via netip.Addr
	bot       string
	state     fairshare.BotState
}

func senderOf(w http.ResponseWriter) sender {
	c, judged := httpguard.ClientOf(w)
	return sender{judged, c.Addr, c.Via, c.Bot.Name, c.Bot.State}
}

// repeatOf returns what is known of the client's connection; nil if nothing can be remembered.
func repeatOf(r *http.Request) *repeat {
	c, ok := r.Context().(interface{ Memory() *any })
	if !ok || r.ContentLength != 0 {
		return nil
	}
	memory := c.Memory()
	if memory == nil {
		return nil
	}
	m, ok := (*memory).(*repeat)
	if !ok {
		m = new(repeat)
		*memory = m
	}
	return m
}

// isKnown reports whether the present request is as the last one. m may be nil.
func (m *repeat) isKnown() bool { return m != nil && m.setup != nil }

// compare finds out whether a request is as the last one, but for its target. Otherwise m forgets the last one.
func (m *repeat) compare(s *setup, w http.ResponseWriter, r *http.Request) bool {
	if !m.isKnown() {
		return false
	}
	same := m.setup == s && r.Method == m.method && r.Host == m.host && r.RemoteAddr == m.remoteAddr &&
		(r.TLS != nil) == m.tls && len(r.Header) == len(m.fields) && senderOf(w) == m.sender
	for i := 0; i < len(m.fields) && same; i++ {
		values := r.Header[m.fields[i].Name]
		same = len(values) == 1 && values[0] == m.fields[i].Value
	}
	if !same {
		m.setup = nil
	}
	return same
}

// note remembers a request before its header is rewritten. It returns false if it cannot. Otherwise setLines is called
// next.
func (m *repeat) note(q *exchange) bool {
	r := q.r
	if m.size.fields > repeatedFields || m.size.bytes+len(r.Method) > repeatedBytes || q.pool.scheme != "http" ||
		q.OnlyTransport || r.Host == "" || q.Trusts(r.RemoteAddr) {
		*m = repeat{size: m.size}
		return false
	}
	clear(m.fields[:cap(m.fields)]) // they keep the texts of earlier headers
	m.fields = m.fields[:0]
	var space [repeatedBytes]byte
	text := append(append(space[:0], r.Method...), r.Host...)
	for name, values := range r.Header {
		if len(values) != 1 {
			*m = repeat{size: m.size}
			return false
		}
		m.fields = append(m.fields, outbound.Field{Name: name, Value: values[0]})
		text = append(append(text, name...), values[0]...)
	}
	own := string(text) // shares no memory with the client's texts, which may be parts of a long one
	m.method, own = own[:len(r.Method)], own[len(r.Method):]
	m.host, own = own[:len(r.Host)], own[len(r.Host):]
	for i := range m.fields {
		f := &m.fields[i]
		n := len(f.Name)
		f.Name, f.Value, own = own[:n], own[n:n+len(f.Value)], own[n+len(f.Value):]
	}
	m.pool, m.remoteAddr, m.tls, m.sender = q.pool, r.RemoteAddr, r.TLS != nil, senderOf(q.w)
	return true
}

// rewrite decides what the upstream gets of the client's header.
func (q *exchange) rewrite(upgrade bool) {
	m := q.repeat
	if m.isKnown() {
		q.lines = m.lines
		return
	}
	noted := q.isRepeated && !upgrade && m.note(q)
	q.own = q.rewriteHeader(q.space[:0], q.w, q.r, upgrade)
	if noted {
		if q.lines = outbound.AppendHead(m.lines[:0], q.r.Host, q.r.Header, q.own); q.lines != nil {
			m.lines, m.setup = q.lines, q.setup
		}
	}
}
