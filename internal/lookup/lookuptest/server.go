// Package lookuptest is a DNS server on loopback for tests. It answers over UDP and
// TCP, correctly or with the faults that an Answer sets. Start with Start.
package lookuptest

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// An Answer is the server's answer to one question. The zero Answer is empty: the
// name exists and has no such record.
type Answer struct {
	Names []string     // of PTR or NS records; a missing final dot is added
	Addrs []netip.Addr // of A and AAAA records
	Alias string       // a CNAME record comes first, and the records belong to this name
	Code  dnsmessage.RCode

	Delay    time.Duration // before the answer
	Silent   bool          // no answer
	Noise    bool          // first garbage, and answers with a wrong ID and question
	Truncate bool          // over UDP, only a truncated answer
	NoTCP    bool          // TCP connections are closed without an answer
	Referral bool          // neither authoritative nor recursive
	Raw      []byte        // replaces the whole answer; the first two bytes become the ID
}

// NotThere is the answer for a name that does not exist.
var NotThere = Answer{Code: dnsmessage.RCodeNameError}

// A Server gives the answers that were set. Other names do not exist. It is safe for
// concurrent use.
type Server struct {
	udp net.PacketConn
	tcp net.Listener

	mu      sync.Mutex
	answers map[question]Answer
	others  Answer
	silent  bool
	queries map[question]int
	conns   map[net.Conn]bool
	ended   sync.WaitGroup
	done    chan struct{}
}

type question struct {
	name string // lower case, rooted
	kind dnsmessage.Type
}

// Start starts a server on 127.0.0.1. It is closed at the end of the test.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{
		answers: make(map[question]Answer),
		others:  NotThere,
		queries: make(map[question]int),
		conns:   make(map[net.Conn]bool),
		done:    make(chan struct{}),
	}
	if err := s.listen(); err != nil {
		t.Fatal(err)
	}
	s.ended.Add(2)
	go s.serveUDP()
	go s.serveTCP()
	t.Cleanup(s.Close)
	return s
}

// listen finds a port that is free for UDP and TCP.
func (s *Server) listen() (err error) {
	for range 20 {
		if s.tcp, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return err
		}
		if s.udp, err = net.ListenPacket("udp", s.tcp.Addr().String()); err == nil {
			return nil
		}
		s.tcp.Close()
	}
	return err
}

// Addr returns the server's address with its port.
func (s *Server) Addr() string { return s.udp.LocalAddr().String() }

// Close stops the server before the end of the test: its port does not answer any
// more.
func (s *Server) Close() {
	s.mu.Lock()
	select {
	case <-s.done:
	default:
		close(s.done)
	}
	s.udp.Close()
	s.tcp.Close()
	for conn := range s.conns {
		conn.Close()
	}
	s.mu.Unlock()
	s.ended.Wait()
}

// Set sets the answer to questions of one kind about a name.
func (s *Server) Set(name string, kind dnsmessage.Type, a Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[question{rooted(name), kind}] = a
}

// SetOthers sets the answer for all names without an answer of their own.
func (s *Server) SetOthers(a Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.others = a
}

// Silence makes the server answer nothing, or answer again.
func (s *Server) Silence(silent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = silent
}

// Host sets the name of an address in both directions. It replaces the other names
// of the address and the other addresses of the name.
func (s *Server) Host(addr, name string) {
	a := netip.MustParseAddr(addr)
	s.PTR(addr, name)
	kind, other := dnsmessage.TypeA, dnsmessage.TypeAAAA
	if a.Is6() {
		kind, other = other, kind
	}
	s.Set(name, kind, Answer{Addrs: []netip.Addr{a}})
	s.Set(name, other, Answer{})
}

// PTR sets the names in the reverse zone of an address.
func (s *Server) PTR(addr string, names ...string) {
	s.Set(Reverse(addr), dnsmessage.TypePTR, Answer{Names: names})
}

// List sets the answer of a DNS list for an address.
func (s *Server) List(zone, addr string, codes ...string) {
	a := Answer{}
	for _, code := range codes {
		a.Addrs = append(a.Addrs, netip.MustParseAddr(code))
	}
	s.Set(reversed(addr)+zone, dnsmessage.TypeA, a)
}

// HTTPBL sets the answer of http:BL in a zone for an address, for clients with the
// key.
func (s *Server) HTTPBL(key, zone, addr, code string) {
	s.Set(key+"."+reversed(addr)+zone, dnsmessage.TypeA, Answer{Addrs: []netip.Addr{netip.MustParseAddr(code)}})
}

// Queries returns how often a question was asked.
func (s *Server) Queries(name string, kind dnsmessage.Type) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queries[question{rooted(name), kind}]
}

// Questions returns the number of all questions.
func (s *Server) Questions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, count := range s.queries {
		n += count
	}
	return n
}

// Reverse returns the rooted name that has the PTR records of an address.
func Reverse(addr string) string {
	if netip.MustParseAddr(addr).Is4() {
		return reversed(addr) + "in-addr.arpa."
	}
	return reversed(addr) + "ip6.arpa."
}

func reversed(addr string) string {
	var b strings.Builder
	raw := netip.MustParseAddr(addr).AsSlice()
	for i := len(raw) - 1; i >= 0; i-- {
		if len(raw) == 4 {
			b.WriteString(strconv.Itoa(int(raw[i])) + ".")
			continue
		}
		digits := strconv.FormatInt(int64(raw[i])|0x100, 16)
		b.WriteString(digits[2:] + "." + digits[1:2] + ".")
	}
	return b.String()
}

func rooted(name string) string {
	return strings.TrimSuffix(strings.ToLower(name), ".") + "."
}

func (s *Server) serveUDP() {
	defer s.ended.Done()
	buffer := make([]byte, 4096)
	for {
		n, from, err := s.udp.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		query := append([]byte(nil), buffer[:n]...)
		s.ended.Add(1)
		go func() {
			defer s.ended.Done()
			for _, message := range s.reply(query, true) {
				s.udp.WriteTo(message, from)
			}
		}()
	}
}

func (s *Server) serveTCP() {
	defer s.ended.Done()
	for {
		conn, err := s.tcp.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns[conn] = true
		s.ended.Add(1)
		s.mu.Unlock()
		go func() {
			defer s.ended.Done()
			s.serveConn(conn)
			conn.Close()
			s.mu.Lock()
			delete(s.conns, conn)
			s.mu.Unlock()
		}()
	}
}

func (s *Server) serveConn(conn net.Conn) {
	var length [2]byte
	for {
		if _, err := io.ReadFull(conn, length[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(length[:]))
		if _, err := io.ReadFull(conn, query); err != nil {
			return
		}
		messages := s.reply(query, false)
		if len(messages) == 0 {
			return
		}
		for _, message := range messages {
			conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(message))), message...))
		}
	}
}

// reply returns the messages that are sent for a query, in order.
func (s *Server) reply(query []byte, udp bool) [][]byte {
	var p dnsmessage.Parser
	h, err := p.Start(query)
	if err != nil {
		return nil
	}
	q, err := p.Question()
	if err != nil {
		return nil
	}
	key := question{rooted(q.Name.String()), q.Type}
	s.mu.Lock()
	s.queries[key]++
	a, ok := s.answers[key]
	if !ok {
		a = s.others
	}
	silent := s.silent || a.Silent || !udp && a.NoTCP
	s.mu.Unlock()

	if a.Delay > 0 {
		select {
		case <-time.After(a.Delay):
		case <-s.done:
		}
	}
	var messages [][]byte
	if a.Noise && udp {
		lie := Answer{Names: []string{"lie.example."}, Addrs: a.Addrs}
		other := q
		other.Name = dnsmessage.MustNewName("other.example.")
		messages = append(messages, []byte("not DNS"), nil, query,
			build(dnsmessage.Header{ID: h.ID + 1, Response: true}, q, lie),
			build(dnsmessage.Header{ID: h.ID, Response: true}, other, lie))
	}
	switch {
	case silent:
	case a.Raw != nil:
		raw := append([]byte(nil), a.Raw...)
		if len(raw) >= 2 {
			binary.BigEndian.PutUint16(raw, h.ID)
		}
		messages = append(messages, raw)
	default:
		header := dnsmessage.Header{
			ID: h.ID, Response: true, RecursionDesired: h.RecursionDesired,
			RecursionAvailable: !a.Referral, RCode: a.Code,
		}
		message := build(header, q, a)
		if udp && (a.Truncate || len(message) > 512) {
			header.Truncated = true
			message = build(header, q, Answer{})
		}
		messages = append(messages, message)
	}
	return messages
}

func build(h dnsmessage.Header, q dnsmessage.Question, a Answer) []byte {
	b := dnsmessage.NewBuilder(nil, h)
	b.EnableCompression()
	b.StartQuestions()
	b.Question(q)
	b.StartAnswers()
	owner := dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 60}
	if a.Alias != "" {
		alias := dnsmessage.MustNewName(dotted(a.Alias))
		b.CNAMEResource(owner, dnsmessage.CNAMEResource{CNAME: alias})
		owner.Name = alias
	}
	for _, name := range a.Names {
		n := dnsmessage.MustNewName(dotted(name))
		switch q.Type {
		case dnsmessage.TypePTR:
			b.PTRResource(owner, dnsmessage.PTRResource{PTR: n})
		case dnsmessage.TypeNS:
			b.NSResource(owner, dnsmessage.NSResource{NS: n})
		}
	}
	for _, addr := range a.Addrs {
		switch {
		case addr.Is4() && q.Type == dnsmessage.TypeA:
			b.AResource(owner, dnsmessage.AResource{A: addr.As4()})
		case addr.Is6() && q.Type == dnsmessage.TypeAAAA:
			b.AAAAResource(owner, dnsmessage.AAAAResource{AAAA: addr.As16()})
		}
	}
	message, err := b.Finish()
	if err != nil {
		panic("lookuptest: an answer that is not a DNS message: " + err.Error())
	}
	return message
}

func dotted(name string) string {
	return strings.TrimSuffix(name, ".") + "."
}
