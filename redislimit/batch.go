package redislimit

import (
	"cmp"
	"encoding/binary"
	"iter"
	"slices"

	"fairshare/memlimit"
)

// A batch is what a carrier has on its way.
type batch struct {
	inquiries []inquiry
	refs      []ref
	states    []sent
	sorted    []*sent // by tag and key
	scripts   []script
	units     []unit
	began     int64 // own time when it was sent
	second    int64 // of the master when it was prepared, or 0
	token     [tokenBytes]byte
	floors    bool
	deferred  []ref // on their way with another carrier
}

// A sent state is one of a batch.
type sent struct {
	stated
	ref         ref
	key         bookKey
	tag         uint64
	unacked     int64
	provisional int64  // of the inquiries in this batch, in the unit of deltas
	slot        uint16 // in the message
	isKnown     bool   // the store has the state stored, unless others have written
	known       bool   // see entry
	offset      uint16
	records     uint8
	ends        uint32
	stored      memlimit.State
	swap        swap
	reply       reply
}

// A script is one command of a batch: some of its units.
type script struct {
	*command
	units   []unit
	keys    []string
	message []byte
}

// A command is a script that the store runs.
type command struct{ digest, text string }

var take, swapping = &command{takeDigest, takeScript}, &command{swapDigest, swapScript}

// encode makes the scripts of a batch.
func (k *carrier) encode() {
	c, b := k.core, &k.batch
	b.sorted = b.sorted[:0]
	for i := range b.states {
		b.sorted = append(b.sorted, &b.states[i])
	}
	slices.SortFunc(b.sorted, func(x, y *sent) int {
		switch {
		case x.tag != y.tag:
			return cmp.Compare(x.tag, y.tag)
		case x.key.a != y.key.a:
			return cmp.Compare(x.key.a, y.key.a)
		case x.key.b != y.key.b:
			return cmp.Compare(x.key.b, y.key.b)
		}
		return cmp.Compare(x.offset-1, y.offset-1) // without a record: last
	})
	b.units = b.units[:0]
	nextAsk := 0
	for i := 0; i < len(b.sorted); {
		u, tag := unit{from: i, asksFrom: nextAsk}, b.sorted[i].tag
		for ; i < len(b.sorted) && b.sorted[i].tag == tag; i++ {
			if i == u.from || b.sorted[i-1].key.name != b.sorted[i].key.name {
				u.keys++
			}
		}
		for nextAsk < len(b.inquiries) && b.inquiries[nextAsk].tag == tag {
			nextAsk++
		}
		u.to, u.asksTo = i, nextAsk
		b.units = append(b.units, u)
	}
	var rest []unit
	var sc script
	for i := range b.units {
		if sc.command == nil {
			n := 1 // units
			if c.store.topology != cluster {
				n = min(len(b.units)-i, scriptKeys)
			}
			sc = script{command: swapping, units: make([]unit, 0, n), keys: make([]string, 0, n),
				message: make([]byte, 0, (b.units[i+n-1].to-b.units[i].from)*(2*recordBytes+16))}
		}
		keys, size := len(sc.keys), len(sc.message)
		if !k.swaps(&sc, &b.units[i]) {
			sc.keys, sc.message = sc.keys[:keys], sc.message[:size]
			rest = append(rest, b.units[i])
			continue
		}
		if sc.units = append(sc.units, b.units[i]); c.store.topology == cluster || len(sc.keys) >= scriptKeys {
			b.scripts = append(b.scripts, sc)
			sc = script{}
		}
	}
	if len(sc.units) > 0 {
		b.scripts = append(b.scripts, sc)
	}
	b.scripts = k.takes(b.scripts, rest)
}

// takes appends the scripts that decide units.
func (k *carrier) takes(scripts []script, units []unit) []script {
	c, b := k.core, &k.batch
	for i := 0; i < len(units); {
		sc := script{command: take}
		from := i
		for ; i < len(units) && (i == from || c.store.topology != cluster && len(sc.keys) < scriptKeys); i++ {
			u := &units[i]
			for j := u.from; j < u.to; j++ {
				if j == u.from || b.sorted[j-1].key.name != b.sorted[j].key.name {
					sc.keys = append(sc.keys, keyOf(c.limits, b.sorted[j].tag, b.sorted[j].key.name))
				}
			}
		}
		sc.units = units[from:i]
		sc.message = k.message(&sc)
		scripts = append(scripts, sc)
	}
	return scripts
}

// message returns the message of a script.
func (k *carrier) message(sc *script) []byte {
	c, b := k.core, &k.batch
	var specs []*spec
	var ids []uint16
	count := 0
	for _, u := range sc.units {
		for _, st := range b.sorted[u.from:u.to] {
			at := 0
			for at < len(ids) && (ids[at] != st.key.id || specs[at].w != st.spec.w) {
				at++
			}
			if at == len(ids) {
				ids, specs = append(ids, st.key.id), append(specs, st.spec)
			}
			st.index, st.slot = uint16(at), uint16(count)
			count++
		}
	}
	m := make([]byte, 0, 64+72*len(specs)+96*count)
	m = append(m, b.token[:]...)
	m = append(m, c.me[:]...)
	m = binary.LittleEndian.AppendUint16(append(m, flag(b.floors)), uint16(len(specs)))
	for _, s := range specs {
		m = appendSpec(m, s)
	}
	for _, u := range sc.units {
		for i := u.from; i < u.to; {
			count := len(m)
			m = append(m, 0)
			for key := b.sorted[i].key.name; i < u.to && b.sorted[i].key.name == key; i++ {
				if st := b.sorted[i]; st.isKnown {
					st.view = st.reported()
				}
				m = b.sorted[i].append(m)
				m[count]++
			}
		}
	}
	at, decisions := len(m), 0
	m = append(m, 0, 0)
	for a := range k.inquiriesOf(sc.units) {
		parts := a.q.parts[a.from:a.to]
		if parts[0].reads {
			continue
		}
		decisions++
		dry := 0
		head := len(m)
		m = append(m, byte(len(parts)), 0)
		for i := range parts {
			p := &parts[i]
			if p.dry {
				dry++
			}
			p.state = k.index(p)
			m = binary.LittleEndian.AppendUint16(m, b.states[p.state].slot)
			if p.spec.kind == gcra && !p.spec.tracked {
				t := p.spec.moment(p.spec.deltaSpan(p.amount))
				m = appendFloats(m, t.us, t.rest)
			} else {
				m = appendFloats(m, float64(p.cost), 0)
			}
		}
		m[head+1] = byte(dry)
	}
	binary.LittleEndian.PutUint16(m[at:], uint16(decisions))
	return m
}

// statesOf returns the states of units, inquiriesOf the inquiries.
func (k *carrier) statesOf(units []unit) iter.Seq[*sent] {
	return func(yield func(*sent) bool) {
		for _, u := range units {
			for _, st := range k.batch.sorted[u.from:u.to] {
				if !yield(st) {
					return
				}
			}
		}
	}
}

func (k *carrier) inquiriesOf(units []unit) iter.Seq[inquiry] {
	return func(yield func(inquiry) bool) {
		for _, u := range units {
			for _, a := range k.batch.inquiries[u.asksFrom:u.asksTo] {
				if !yield(a) {
					return
				}
			}
		}
	}
}

// index returns the place of a part's state in the batch.
func (k *carrier) index(p *part) int {
	sh := &k.core.book[p.ref.shard()]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return int(k.core.book.at(p.ref).batch) - 1
}
