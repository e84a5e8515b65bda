package registrar

import (
	"encoding/binary"
	"hash/maphash"
	"net/netip"
	"strings"
	"time"
	"unicode/utf8"

	"fairshare"
	"fairshare/registry"
)

// A Request holds the facts and costs of one request, or of several of one client.
type Request struct {
	Addr      netip.Addr // unmapped or not; an invalid one is not counted
	Via       netip.Addr // as in a fairshare.Request
	Bot       fairshare.Bot
	UserAgent string        // recorded up to 256 bytes
	Fleet     string        // "" for none
	At        time.Time     // arrival of the latest, a time of Options.Now
	First     time.Time     // arrival of the first; zero means At
	N         int64         // requests; 0 means 1
	Took      time.Duration // the upstream's time
	CPU       time.Duration // the upstream's CPU time; 0 if unknown
	Bytes     int64         // of the response bodies
	Errors    int64         // answers of the upstream with a status from 400 to 499
}

// maxAgent bounds a user agent, in bytes.
const maxAgent = 256

// A client holds the counts of one client that are not written yet.
type client struct {
	first, last int64 // Unix ns
	spent       registry.Spent
	agentHash   uint64 // comparing it does not load agent into the cache
	bot         string
	botState    fairshare.BotState
	fleet       string
	agent       []byte // a copy; the memory is reused
}

// key returns the key of a client; known is false for an invalid address.
func (g *Registrar) key(addr, via netip.Addr, bot *fairshare.Bot) (k key, known bool) {
	if bot.Name != "" && trusted(bot) {
		return key{hash: ^maphash.String(g.seed, bot.Name), id: fairshare.ClientID{Bot: bot.Name}}, true
	}
	p := (*g.prefix.Load())(addr.Unmap())
	if !p.IsValid() {
		return key{}, false
	}
	a := p.Addr().As16()
	var b [34]byte
	copy(b[:], a[:])
	b[16] = byte(p.Bits())
	k.id.Prefix = p
	if p.Addr().Is4() {
		b[17] = 4
		k.network = 1<<32 | uint64(a[12])<<8 | uint64(a[13])
	} else {
		k.network = 2<<32 | uint64(binary.BigEndian.Uint32(a[:]))
	}
	if via.IsValid() { // all clients that one peer names are one network: it can name any address
		peer := via.As16()
		copy(b[18:], peer[:])
		k.id.Via, k.network = via, 3<<32|maphash.Bytes(g.seed, peer[:])>>32
	}
	k.hash = maphash.Bytes(g.seed, b[:])
	return k, true
}

// Passed counts requests that reached the upstream and have ended. It does not wait
// for the disk, and is safe for concurrent use.
func (g *Registrar) Passed(p Request) {
	spent := registry.Spent{Requests: max(p.N, 1), CPU: max(p.CPU, 0), Time: max(p.Took, 0), Bytes: max(p.Bytes, 0),
		Errors: p.Errors}
	if k, known := g.key(p.Addr, p.Via, &p.Bot); known {
		g.spend(&k, &p, &spent, true)
	}
}

// spend adds to a client's counts; passes means that the request was not refused.
func (g *Registrar) spend(k *key, p *Request, spent *registry.Spent, passes bool) {
	at, agent := p.At.UnixNano(), truncate(p.UserAgent, maxAgent)
	first := at
	if !p.First.IsZero() {
		first = p.First.UnixNano()
	}
	agentHash := maphash.String(g.seed, agent)
	s := g.clients.lock(k.hash)
	e, isNew := g.clients.find(s, k, passes, max(p.N, 1))
	if e != nil {
		c := &e.record
		if isNew || first < c.first {
			c.first = first
		}
		c.spent.Add(*spent)
		if at >= c.last {
			c.last, c.bot, c.botState, c.fleet = at, p.Bot.Name, p.Bot.State, p.Fleet
			if agentHash != c.agentHash {
				c.agentHash, c.agent = agentHash, append(c.agent[:0], agent...)
			}
		}
		s.touch(e)
	}
	s.mu.Unlock()
}

// truncate returns at most the first n bytes of s, without a part of a character.
func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for i := n; i > n-utf8.UTFMax; i-- {
		if utf8.RuneStart(s[i]) {
			return s[:i]
		}
	}
	return s[:n]
}

// text returns a copy of bytes from a client as valid UTF-8.
func text(b []byte) string { return strings.ToValidUTF8(string(b), "?") }

// takeClients takes at most n clients of a list for writing.
func (g *Registrar) takeClients(b *batch, from entryState, n int) {
	b.clients = g.clients.take(b.clients, from, n, func(e *entry[client]) {
		c := &e.record
		b.Clients = append(b.Clients, registry.ClientDelta{
			Client: e.key.id, FirstSeen: time.Unix(0, c.first), LastSeen: time.Unix(0, c.last),
			Spent: c.spent, UserAgent: text(c.agent), Bot: c.bot, BotState: c.botState, Fleet: c.fleet,
		})
		c.spent = registry.Spent{}
	})
}
