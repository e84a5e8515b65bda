package robots

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"fairshare"
)

// Bounds of Sites.
const (
	mostSites   = 64      // hosts
	mostBytes   = 8 << 20 // of all files
	mostWanted  = 16      // hosts that Wanted returns at a time
	renewEvery  = 10 * time.Minute
	askAgain    = time.Hour        // the site's own hosts, and those that verified bots visit
	askSoon     = time.Minute      // after a question without an answer, and if clients get another file
	askOthers   = 10 * time.Second // from one host that no policy names to the next, for each reason to ask
	reportEvery = time.Minute      // from one line about such a host to the next
	shownFaults = 3                // in a message
)

// Sites holds the robots.txt of each host of a site. It is safe for concurrent use.
//
// A file comes from questions to the upstream only: for the hosts that SetHosts names,
// and for others after a verified bot has visited them or a client has asked for their
// file. A client that gets another file than others, because of its user agent or its
// address, only causes a question. So invented hosts cause few questions. At
// most 64 hosts are kept; a new one replaces the one that was read least often, never
// one of SetHosts.
type Sites struct {
	name func(token string) string
	log  func(line string)
	seed maphash.Seed

	hosts atomic.Pointer[map[string]*site] // is replaced as a whole

	mu       sync.Mutex // of what follows, and of writing hosts
	own      map[string]bool
	wanted   []string
	nextAt   [reasons]time.Time // of a question about a host that is not own
	reportAt time.Time          // of a line about such a host
}

// A reason to ask for the file of a host that is not own. Each has its own bound: clients
// that invent hosts do not keep other questions from being asked.
type reason int

const (
	visited reason = iota // by a verified bot
	differs               // a client got another file
	unknown               // a client got a file, and none is known
	reasons
)

// DefaultHost is the host of the file that holds for hosts without one of
// their own, see Sites.Judge.
const DefaultHost = ""

// A site is the robots.txt of one host.
type site struct {
	file     *File // nil: the site has none
	hash     uint64
	size     int
	at       time.Time // of the last good answer, or of one to a client that is the same
	askedAt  time.Time // of the last question
	down     bool      // which had no answer
	renewals int
	fault    string // of the last answer; "" if it was good
}

// due reports whether to ask again.
func (h *site) due(now time.Time) bool {
	if h.down {
		return now.Sub(h.askedAt) >= askSoon
	}
	return now.Sub(h.askedAt) >= askAgain
}

// NewSites returns Sites without files. name is that of Parse; log gets a line
// when a file is new, has changed, or is faulty. Both may be nil.
func NewSites(name func(token string) string, log func(line string)) *Sites {
	if log == nil {
		log = func(string) {}
	}
	return &Sites{name: name, log: log, seed: maphash.MakeSeed(), own: map[string]bool{}}
}

// SetHosts sets the hosts of the site, which Wanted returns at the start and every hour.
// DefaultHost may be among them.
func (s *Sites) SetHosts(hosts []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.own)
	for _, host := range hosts {
		if len(s.own) < mostSites/2 {
			s.own[HostKey(host)] = true
		}
	}
}

// Judge returns what the robots.txt of a host says about a request of a bot. It
// allocates nothing but for long targets with percent escapes.
//
// For a host without a file, that of DefaultHost counts, except for verified bots if the
// host has a name: it may be a site of its own, and its file is asked for next.
func (s *Sites) Judge(bot *fairshare.Bot, host, userAgent, target string, now time.Time) fairshare.Robots {
	if bot.State == fairshare.NoBot {
		return fairshare.Robots{}
	}
	var known *site
	hosts := s.hosts.Load()
	if hosts != nil {
		known = (*hosts)[HostKey(host)]
	}
	if bot.State == fairshare.Verified && !bot.UserTriggered &&
		(known == nil || known.due(now)) {
		s.visit(host, now)
	}
	if known == nil && hosts != nil && (bot.State != fairshare.Verified || !hasName(host)) {
		known = (*hosts)[DefaultHost]
	}
	if known == nil || known.file == nil {
		return fairshare.Robots{}
	}
	return known.file.Judge(bot, userAgent, target)
}

// hasName reports whether a host is a name that several sites could have, not an
// address or a name of this machine.
func hasName(host string) bool {
	key := HostKey(host)
	if i := strings.LastIndexByte(key, ':'); i >= 0 && !strings.HasSuffix(key, "]") {
		key = key[:i]
	}
	if _, err := netip.ParseAddr(strings.Trim(key, "[]")); err == nil {
		return false
	}
	return strings.Contains(key, ".")
}

// visit notes that a verified bot has visited a host whose file is not known or
// old.
func (s *Sites) visit(host string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if key := HostKey(host); !s.own[key] {
		s.want(key, visited, now)
	}
}

// want has a host asked for soon.
func (s *Sites) want(key string, why reason, now time.Time) {
	if len(s.wanted) >= mostWanted || slices.Contains(s.wanted, key) || !plainName(key) {
		return
	}
	if !s.own[key] {
		if now.Before(s.nextAt[why]) {
			return
		}
		s.nextAt[why] = now.Add(askOthers)
	}
	s.wanted = append(s.wanted, key)
}

// plainName reports whether a host can be asked for: nothing but the characters of names,
// addresses and ports.
func plainName(host string) bool {
	for i := range len(host) {
		c := host[i]
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || strings.IndexByte(".-_:[]", c) >= 0) {
			return false
		}
	}
	return host != ""
}

// Wanted returns the hosts whose robots.txt should be asked for now, and counts them as
// asked. Call it often, such as every second.
func (s *Sites) Wanted(now time.Time) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	wanted := s.wanted
	s.wanted = nil
	next := s.copy()
	changed := false
	for key := range s.own {
		if old := next[key]; (old == nil || old.due(now)) && !slices.Contains(wanted, key) {
			wanted = append(wanted, key)
		}
	}
	for _, key := range wanted {
		if old := next[key]; old != nil {
			asked := *old
			asked.askedAt = now
			next[key], changed = &asked, true
		} else if s.own[key] {
			next[key], changed = &site{askedAt: now}, true
		}
	}
	if changed {
		s.hosts.Store(&next)
	}
	return wanted
}

func (s *Sites) copy() map[string]*site {
	next := map[string]*site{}
	if old := s.hosts.Load(); old != nil {
		for key, site := range *old {
			next[key] = site
		}
	}
	return next
}

// An Answer is an answer to GET /robots.txt.
type Answer struct {
	Status int
	Body   []byte // as sent, decompressed; not more than MaxBytes and one are needed
}

// Learn reads an answer for a host to a question of this program, and reports whether it
// counts from now on.
//
// With 200 the file counts from now on. An answer that is not a robots.txt, such as an
// HTML page, changes nothing and is reported. A status from 500 on changes nothing
// either. RFC 9309 §2.3.1.4 tells crawlers without a copy to stay away then; a server
// that blocks them would lose its place in search engines because it was down for a
// moment. A status from 400 to 499 means that the site has no robots.txt.
func (s *Sites) Learn(host string, a Answer, now time.Time) bool {
	key := HostKey(host)
	var file *File
	hash, fault := uint64(0), ""
	switch {
	case a.Status == 200:
		hash = s.hash(a.Body)
		if known := s.withHash(hash); known != nil {
			file = known
			break
		}
		var err error
		if file, err = Parse(bytes.Clone(a.Body), s.name); err != nil {
			fault = err.Error()
		}
	case a.Status >= 400 && a.Status < 500:
		hash = noFile
	case a.Status == 0:
		fault = "there was no answer"
	default:
		fault = fmt.Sprintf("the answer has status %d", a.Status)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.copy()
	old := next[key]
	if fault != "" {
		if old == nil {
			if !s.own[key] {
				return false // invented hosts are not worth a line
			}
			old = &site{}
		}
		faulty := *old
		faulty.fault, faulty.askedAt, faulty.down = fault, now, a.Status != 200
		next[key] = &faulty
		s.hosts.Store(&next)
		if old.fault != fault {
			s.report(key, faultText(key, fault, old), now)
		}
		return false
	}
	learned := &site{file: file, hash: hash, at: now, askedAt: now, size: len(a.Body)}
	if old != nil {
		learned.renewals = old.renewals
		if now.Sub(old.at) >= renewEvery {
			learned.renewals++
		}
	}
	delete(next, key)
	if !s.makeRoom(next, learned.size) {
		return false
	}
	next[key] = learned
	s.hosts.Store(&next)
	if old == nil || old.hash != hash || old.at.IsZero() {
		if text := newText(key, file, s.own[key]); text != "" {
			s.report(key, text, now)
		}
	}
	return true
}

// Compare compares an answer that a client got with what is known of the host. It reports
// whether the file is the known one, or none is known.
//
// The answer may be for this client alone. So it sets no rules: if it is another file,
// Wanted returns the host.
func (s *Sites) Compare(host string, a Answer, now time.Time) bool {
	key, hash := HostKey(host), noFile
	switch {
	case key == DefaultHost:
		return false
	case a.Status == 200 && check(a.Body) == nil:
		hash = s.hash(a.Body)
	case a.Status != 404 && a.Status != 410:
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var known *site
	if hosts := s.hosts.Load(); hosts != nil {
		known = (*hosts)[key]
	}
	switch {
	case known == nil:
		s.want(key, unknown, now)
		return true
	case known.hash != hash:
		if now.Sub(known.askedAt) >= askSoon {
			s.want(key, differs, now)
		}
		return known.at.IsZero()
	case now.Sub(known.at) >= renewEvery: // earlier, repetition does not make a host important
		next := s.copy()
		renewed := *known
		renewed.at = now
		renewed.renewals++
		next[key] = &renewed
		s.hosts.Store(&next)
	}
	return true
}

// noFile is the hash of a site without robots.txt.
const noFile uint64 = 1

func (s *Sites) hash(body []byte) uint64 {
	return maphash.Bytes(s.seed, body[:min(len(body), MaxBytes)])
}

// report writes a line about a host to the log. Anybody can invent hosts, so those that are
// not own get one line a minute in all.
func (s *Sites) report(key, text string, now time.Time) {
	if !s.own[key] {
		if now.Before(s.reportAt) {
			return
		}
		s.reportAt = now.Add(reportEvery)
	}
	s.log(text)
}

// withHash returns the file that was read from the same text; nil if there is none.
func (s *Sites) withHash(hash uint64) *File {
	if hosts := s.hosts.Load(); hosts != nil {
		for _, known := range *hosts {
			if known.hash == hash && known.file != nil {
				return known.file
			}
		}
	}
	return nil
}

// makeRoom deletes hosts until there is room for a file of this size. It reports
// whether there is.
func (s *Sites) makeRoom(hosts map[string]*site, size int) bool {
	total := size
	for _, h := range hosts {
		total += h.size
	}
	for len(hosts) >= mostSites || total > mostBytes {
		victim := ""
		var least *site
		for key, h := range hosts {
			if !s.own[key] && (least == nil || h.renewals < least.renewals ||
				h.renewals == least.renewals && h.at.Before(least.at)) {
				victim, least = key, h
			}
		}
		if least == nil {
			return false
		}
		total -= least.size
		delete(hosts, victim)
	}
	return true
}

// HasRoom reports whether answers for a host may be worth comparing now: its file is
// older than a minute, or not known.
func (s *Sites) HasRoom(host string, now time.Time) bool {
	if hosts := s.hosts.Load(); hosts != nil {
		if known := (*hosts)[HostKey(host)]; known != nil {
			return now.Sub(known.at) >= time.Minute
		}
	}
	return true
}

// Hosts returns how many hosts have a known answer.
func (s *Sites) Hosts() int {
	if hosts := s.hosts.Load(); hosts != nil {
		return len(*hosts)
	}
	return 0
}

func nameOf(key string) string {
	if key == DefaultHost {
		return "the site"
	}
	return key
}

func faultText(key, fault string, old *site) string {
	stays := "no rules of robots.txt hold for it"
	if old.file != nil {
		stays = "what was read before stays in force"
	}
	return fmt.Sprintf("warning: robots.txt of %s is not read: %s; %s", nameOf(key), fault, stays)
}

// newText describes a file that was read for the first time or has changed.
func newText(key string, f *File, own bool) string {
	if f == nil {
		if !own {
			return ""
		}
		return fmt.Sprintf("robots.txt: %s has none: nothing is disallowed", nameOf(key))
	}
	return fmt.Sprintf("robots.txt of %s: %s", nameOf(key), f.Summary())
}

// Summary describes the file in one line: its groups, rules, delays, statements and
// faults.
func (f *File) Summary() string {
	rules, delays := 0, 0
	for _, g := range f.groups {
		rules += g.Rules()
		if g.Delay > 0 {
			delays++
		}
	}
	var b strings.Builder
	b.WriteString(count(len(f.groups), "group") + ", " + count(rules, "rule"))
	if delays > 0 {
		b.WriteString(", " + count(delays, "crawl delay"))
	}
	if n := len(f.Statements); n > 0 {
		b.WriteString(", " + count(n, "statement about use"))
	}
	if len(f.Faults) > 0 {
		fmt.Fprintf(&b, "; %s: ", count(len(f.Faults), "fault"))
		for i, fault := range f.Faults {
			if i == shownFaults {
				b.WriteString(" …")
				break
			}
			if i > 0 {
				b.WriteString("; ")
			}
			fmt.Fprintf(&b, "line %d: %s", fault.Line, fault.Text)
		}
	}
	return b.String()
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	if rest, found := strings.CutPrefix(what, "statement"); found {
		return fmt.Sprintf("%d statements%s", n, rest)
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// HostKey returns a host in lower case, without a final dot and without port 80
// or 443. Another port stays: another site may answer there. A host of more than
// 255 bytes gives "".
func HostKey(host string) string {
	if len(host) > 255 {
		return ""
	}
	host = strings.TrimSuffix(strings.TrimSuffix(host, ":80"), ":443")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
