package fairshare

import (
	"sync/atomic"
	"time"
	"unsafe"
)

// A decision holds the data of one request between Decide and Settle. Later
// requests reuse it; gen distinguishes them.
type decision struct {
	guard   *Guard
	gen     atomic.Uint64
	req     *Request // during Decide only
	now     time.Time
	takes   []Take
	tallies []Tally
	peeked  []Tally      // the tallies of Peek
	settled []settlement // of each take
	matched []int32      // rules whose match held

	site       int                     // of the request, in Policy.Sites; −1: none
	set        *ruleSet                // of the site
	candidates []uint64                // of walkIndex
	hold       []uint64                // the rules of walkIndex that hold, for group
	group      *takeGroup              // the takes, until fill gathers them; nil if it has
	groupKeys  [MaxPreparedKeys][]byte // the keys of group, if it is prepared
	names      KeyNames                // of prepared takes
	holds      bool                    // the prepared takes of group have passed
	released   ResourceSet             // what is settled of these
	charges    []Charge
	taken      bool // the enforced takes were charged
	wallTime   bool // the request had no time: now is of the system clock
	tried      bool // the dry takes were charged
	probe      bool // of Usage and Banned: nothing is counted
	count      struct {
		charge [1]Charge
		take   [1]Take
		tally  [1]Tally

		refusal Refusal
	} // of countRefusal
	ban BanQuery // of findBan; in here, so that a call of Bans.Find allocates nothing

	page      Page // of the request
	pageKnown bool // page is filled in

	keys       []byte // memory of the keys
	addr       cutAddr
	isCut      bool   // addr is filled in
	addrKey    []byte // the key of a plain client by address; nil until it is known
	known      uint64 // the numbers of limitUse.key whose keys are in keyOf
	keyOf      [manyKeys][]byte
	buf        []byte // of fold
	agentLower []byte // the folded user agent
	folded     bool   // agentLower is filled in
	cookie     cookieState
	referer    refererSet // kinds of its Referer fields; 0 until known

	aged       bool // the client has standing by age
	client     clientName
	hashes     struct{ page, query uint64 } // of the request for limits with Distinct; 0 until known
	shown      uint64                       // of these, the places whose paths the request's path fits
	shows      uint64                       // places in guard.seen that an answer 2xx shows to the client
	shownKnown bool                         // shown is filled in
	crowd      int                          // the rule whose bans limit newcomers of the client's network, or −1

	dryBlock *compiledRule // the rule of DryRunFinding, if it is a block; else nil

	paths     []string // readings of an odd path
	complete  bool     // these are all
	canonical string   // the one that limits by path count under
	value     []byte   // a decoded value of the query

	kind      Kind // of the request
	kindKnown bool // kind is filled in
	counts    bool // a limit that counts pages was gathered
	covered   []coveredRequest

	agent, query knownText
}

// A settlement says which rule a take is for, and what of it is settled so far.
type settlement struct {
	charged int64  // while the request was in progress
	mark    uint64 // is set when the take is final and not refunded; 0 means none, see countedTable
	rule    int32  // index in guard.rules
	eased   bool   // the take holds less because the request has been in progress for long
	final   bool   // nothing is left to settle
}

type cookieState uint8

const (
	cookieUnknown cookieState = iota
	cookieNone                // none was sent
	cookieInvalid             // servers may see one in what was sent
	cookieValid
)

func (d *decision) reset(req *Request, now time.Time) {
	d.req, d.now = req, now
	d.takes, d.tallies, d.settled = d.takes[:0], d.tallies[:0], d.settled[:0]
	d.matched, d.charges = d.matched[:0], d.charges[:0]
	d.taken, d.tried, d.probe, d.shows = false, false, false, 0
	d.group, d.holds, d.released = nil, false, 0
	d.hashes.page, d.hashes.query, d.dryBlock = 0, 0, nil
	d.keys, d.known, d.isCut, d.addrKey, d.shownKnown = d.keys[:0], 0, false, nil, false
	d.folded, d.pageKnown, d.cookie, d.referer = false, false, cookieUnknown, 0
	d.agent.hashed, d.agent.looked, d.query.hashed, d.query.looked = false, false, false, false
	d.covered, d.counts, d.kindKnown = d.covered[:0], false, false
	d.paths, d.canonical = nil, ""
	d.setSite()
}

// mostKept is the most memory of a buffer, in bytes, that a decision keeps until it is settled: the
// client chooses how long the texts of its request are.
const mostKept = 1 << 10

// forgetTexts drops the request, and long texts that were computed of it.
func (d *decision) forgetTexts() {
	d.req, d.paths, d.canonical = nil, nil, ""
	if cap(d.buf) > mostKept {
		d.buf = nil
	}
	if cap(d.agentLower) > mostKept {
		d.agentLower = nil
	}
	if cap(d.value) > mostKept {
		d.value = nil
	}
}

// readings returns those of the request's path, which is odd.
func (d *decision) readings() (paths []string, complete bool) {
	if d.paths == nil {
		d.paths, d.complete = d.req.Readings()
	}
	return d.paths, d.complete
}

// fold returns s in lower case. The text is good until the next call.
func (d *decision) fold(s string) string {
	for i := 0; i < len(s); i++ {
		if s[i] >= 'A' && s[i] <= 'Z' {
			d.buf = appendLower(d.buf[:0], s)
			return unsafe.String(unsafe.SliceData(d.buf), len(d.buf))
		}
	}
	return s
}

func (d *decision) foldedUserAgent() string {
	if !d.folded {
		d.agentLower, d.folded = appendLower(d.agentLower[:0], d.req.UserAgent), true
	}
	return unsafe.String(unsafe.SliceData(d.agentLower), len(d.agentLower))
}

func (d *decision) cookies() cookieState {
	if d.cookie == cookieUnknown {
		switch {
		case hasPair(d.req.Header):
			d.cookie = cookieValid
		case sentCookie(d.req.Header):
			d.cookie = cookieInvalid
		default:
			d.cookie = cookieNone
		}
	}
	return d.cookie
}
