package policyfile

import "cmp"

// mostConnections is the default number of connections that serve accepts. The
// system may allow fewer.
const mostConnections = 16384

// Bounds limits what clients may open and send; 0 means the default of serve.
type Bounds struct {
	Connections int   // connections in total
	PerAddr     int   // connections of one address
	Fields      int   // fields of a request's header
	Header      int64 // bytes of a request's header
	Streams     int   // concurrent HTTP/2 requests on one connection
}

func boundsKeys() []key[Bounds] {
	count := func(name string, least, most int64, field func(*Bounds) *int) key[Bounds] {
		return key[Bounds]{name, func(r *reader, n *node, b *Bounds) {
			*field(b) = int(r.integer(n, name, least, most))
		}}
	}
	return []key[Bounds]{
		count("connections", 16, 1<<20, func(b *Bounds) *int { return &b.Connections }),
		count("connections_per_addr", 6, 1<<20, func(b *Bounds) *int { return &b.PerAddr }), // browsers open six
		count("fields", 32, 1000, func(b *Bounds) *int { return &b.Fields }),
		{"header", func(r *reader, n *node, b *Bounds) { b.Header = r.bytes(n, "header", 8<<10, 1<<20) }},
		count("streams", 8, 1000, func(b *Bounds) *int { return &b.Streams }),
	}
}

func readBounds(r *reader, n *node, f *File) {
	got := readMap(r, n, "bounds", "{connections: 10000}", boundsKeys(), &f.Bounds)
	if b := f.Bounds; got != nil && b.Connections > 0 && b.PerAddr > b.Connections {
		r.fault(got.values["connections_per_addr"], "", "connections_per_addr: %d is more than connections: %d",
			b.PerAddr, b.Connections)
	}
}

// warnBounds warns when serve allows one address fewer connections than the policy
// says.
func (r *reader) warnBounds() {
	connections := cmp.Or(r.file.Bounds.Connections, mostConnections)
	if wanted, most := r.file.Bounds.PerAddr, connections/4; wanted > most {
		r.warn(firstNode(find(find(r.root, "bounds"), "connections_per_addr")), "",
			"connections_per_addr: one address gets at most a quarter of all connections: %d of %d, not %d", most,
			connections, wanted)
	}
}
