package lookup

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// A List is a DNS list of addresses: a DNSBL (RFC 5782) or, with a Key, http:BL of Project Honey
// Pot.
type List struct {
	Zone string // such as "dnsbl.dronebl.org"; "" with a Key: "dnsbl.httpbl.org"
	Key  string // access key of http:BL: twelve letters a to z; never logged
}

// String omits the key.
func (l List) String() string {
	if l.Key != "" {
		return "http:BL " + l.Zone
	}
	return "DNSBL " + l.Zone
}

// GoString omits the key.
func (l List) GoString() string { return l.String() }

const (
	httpblZone = "dnsbl.httpbl.org"
	maxZone    = 180 // bytes: with 32 nibbles in front it is still a valid name
	maxCodes   = 16  // most stored answers for one address
)

// listTerms: an answer of a list is valid for an hour, and no longer while the list does not
// answer.
var listTerms = terms{
	positive: time.Hour,
	renew:    45 * time.Minute,
	hold:     time.Hour,
	negative: time.Hour,
	entries:  1 << 15,
	limits:   [lanes]int{proven: 4, untried: 16, doubtful: 8},
}

// Pauses until a list is tested again, at the next use.
const (
	retestGood   = time.Hour
	retestFaulty = 10 * time.Minute
	retestSilent = time.Minute
)

// A dnsList is one list, its look-ups and its self-test.
type dnsList struct {
	name   string // in the policy
	suffix string // of every question: the zone, with its final dot
	prefix string // of every question: the key of http:BL, with a dot
	line   *line[netip.Addr]
	query  queryFunc
	log    func(string)

	holds     atomic.Bool  // false: untested, or the list has every address
	testAt    atomic.Int64 // in the line's time: a request starts a test from then on
	tested    chan struct{}
	once      sync.Once
	mu        sync.Mutex
	lastFault string // last logged fault; "" if none
}

var errKey = errors.New("the access key of http:BL has twelve letters a to z")

func newList(name string, l List, h *health) (*dnsList, error) {
	zone := l.Zone
	if zone == "" && l.Key != "" {
		zone = httpblZone
	}
	zone, ok := hostname(strings.ToLower(zone))
	if !ok || len(zone) > maxZone {
		return nil, fmt.Errorf("DNS list %s: zone %q is not a host name of at most %d bytes", name, l.Zone, maxZone)
	}
	d := &dnsList{name: name, suffix: zone + ".", query: h.watched, log: h.log, tested: make(chan struct{})}
	if l.Key != "" {
		if len(l.Key) != 12 || strings.Trim(l.Key, "abcdefghijklmnopqrstuvwxyz") != "" {
			return nil, fmt.Errorf("DNS list %s: %w", name, errKey)
		}
		d.prefix = l.Key + "."
	}
	rate := func(codes []netip.Addr) rank {
		if len(codes) > 0 {
			return preferred
		}
		return unconfirmed
	}
	d.line = newLine(listTerms, d.codes, rate, h.silent.Load)
	return d, nil
}

// question returns the name to ask for.
func (d *dnsList) question(addr netip.Addr) string {
	b := make([]byte, 0, 255)
	b = append(b, d.prefix...)
	b = appendReversed(b, addr)
	return string(append(b, d.suffix...))
}

var (
	errRefused = errors.New(
		"it refuses our questions (127.255.255.x), as it does for open resolvers and after too many questions")
	errNoList = errors.New("its answer is not in 127.0.0.0/8: is the zone a DNS list?")
)

// codes asks the list about one address. 127.255.255.x means that the list refuses to answer, which
// is an error; so is an answer outside 127.0.0.0/8.
func (d *dnsList) codes(ctx context.Context, addr netip.Addr) ([]netip.Addr, error) {
	found, err := d.query(ctx, d.question(addr), dnsmessage.TypeA)
	if err != nil {
		return nil, err
	}
	return listCodes(found.addrs)
}

func listCodes(answers []netip.Addr) (codes []netip.Addr, err error) {
	for _, a := range answers {
		octets := a.As4()
		switch {
		case octets[0] != 127:
			err = errNoList
		case octets[1] == 255 && octets[2] == 255:
			err = errRefused
		case len(codes) < maxCodes:
			codes = append(codes, a)
		}
	}
	if len(codes) > 0 {
		return codes, nil
	}
	return nil, err
}

// accepts reports whether the list may be asked about an address. The address goes to a third party,
// which knows nothing about private addresses.
func (d *dnsList) accepts(addr netip.Addr) bool {
	if addr.Is4() {
		octets := addr.As4()
		shared := octets[0] == 100 && octets[1]&0xC0 == 64 // RFC 6598
		if shared || octets[0] == 0 || octets[0] >= 240 {
			return false
		}
	} else if d.prefix != "" {
		return false // http:BL supports only IPv4
	}
	return addr.IsGlobalUnicast() && !addr.IsPrivate()
}

func (d *dnsList) get(addr netip.Addr) []netip.Addr {
	if !d.accepts(addr) {
		return nil
	}
	now := d.line.now()
	if now >= d.testAt.Load() {
		d.test()
	}
	if !d.holds.Load() {
		return nil
	}
	codes, _ := d.line.get(addr, now)
	return codes
}

func (d *dnsList) wait(ctx context.Context, addr netip.Addr) (codes []netip.Addr, known bool) {
	if !d.accepts(addr) {
		return nil, false
	}
	select {
	case <-d.tested:
	case <-ctx.Done():
		return nil, false
	case <-d.line.ctx.Done():
		return nil, false
	}
	if !d.holds.Load() {
		return nil, false
	}
	return d.line.wait(ctx, addr)
}

// test starts the self-test of RFC 5782 §5, unless one is in progress.
func (d *dnsList) test() {
	at := d.testAt.Load()
	if d.line.now() < at || !d.testAt.CompareAndSwap(at, d.line.now()+int64(retestSilent)) {
		return
	}
	l := d.line
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.ended.Add(1)
	go func() {
		defer l.ended.Done()
		fault, again := d.fault(l.ctx)
		if l.ctx.Err() == nil {
			d.testAt.Store(l.now() + int64(again))
			d.logFault(fault)
			d.once.Do(func() { close(d.tested) })
		}
	}()
}

// fault runs the self-test, and returns the fault it finds and when to test again. The answers of a
// list that lists a forbidden address are ignored. Any other fault is only logged.
func (d *dnsList) fault(ctx context.Context) (fault string, again time.Duration) {
	nobody, somebody := netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.AddrFrom4([4]byte{127, 0, 0, 2})
	if d.prefix != "" {
		somebody = netip.AddrFrom4([4]byte{127, 1, 1, 1}) // http:BL API specification, Testing
	}
	no, err := d.probe(ctx, nobody)
	if err == nil && len(no) > 0 {
		d.holds.Store(false)
		return fmt.Sprintf(
			"lists %v, and so all addresses: its answers are ignored until that ends (tested again every %v)", nobody,
			retestFaulty), retestFaulty
	}
	if err == nil || !d.tainted() {
		d.holds.Store(true)
	}
	if err != nil {
		return "could not be tested: " + reason(err), retestSilent
	}
	yes, err := d.probe(ctx, somebody)
	switch {
	case err != nil:
		return "could not be tested: " + reason(err), retestSilent
	case len(yes) == 0 && d.prefix != "":
		return fmt.Sprintf(
			"does not list its test entry %v: the access key may be wrong or no longer active; its answers are used as they are", somebody), retestFaulty
	case len(yes) == 0:
		return fmt.Sprintf(
			"does not list its test entry %v: the zone may be wrong or gone; its answers are used as they are",
			somebody), retestFaulty
	}
	return "", retestGood
}

func (d *dnsList) probe(ctx context.Context, addr netip.Addr) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return d.codes(ctx, addr)
}

// tainted reports whether the last conclusive test found that the list lists all addresses.
func (d *dnsList) tainted() bool {
	select {
	case <-d.tested:
		return !d.holds.Load()
	default:
		return false
	}
}

// logFault logs a fault of the list once, and once its end.
func (d *dnsList) logFault(fault string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if fault == d.lastFault {
		return
	}
	d.lastFault = fault
	if fault == "" {
		fault = "works again"
	}
	d.log("DNS list " + d.name + " " + fault)
}
