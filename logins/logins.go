// Package logins finds attempts to log in, and tells whether they fail, without knowing
// the application. Start with [New]. Call [Watcher.Arrived] for each request and, for
// those that pass, the methods of the [Attempt] that it returns.
//
// Logins of the usual applications are known by their paths. Other paths are learned: a
// POST to one path that is answered with the form again, 401 or 403, for several
// clients that are not likely to be browsers. Basic and Bearer credentials that are
// answered with 401 fail, too.
//
// Each login counts the clients that failed and have not logged in since, in these
// classes:
//
//   - known for two weeks, for a day, or since today: the client has logged in before, by its address or by the
//     signed cookie of a visitor. A client that has opened a valid link to reset a password is known, too. Each of
//     them may have a few failures of its own, whatever others do.
//   - likely: it behaves like a browser, or has standing.
//   - unknown clients: all others.
//
// Each class has a budget of its own, so that a class cannot use up that of another
// one. It grows with the number of clients that log in. While a class has
// used its budget, further clients of the class exceed it: [fairshare.Request.Excess].
// What a client makes up changes its class only to likely, whose budget is small. docs/guessing.md
// lists what an attacker with an account can do.
//
// The same is done for forms that unknown clients may send: comments and posts. There
// each client that sends the form counts.
package logins

import (
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"fairshare"
)

// Options of a Watcher. The zero Options are usable.
type Options struct {
	// Client returns a client's prefix, as Policy.Client does; nil: as a zero Policy.
	Client func(netip.Addr) netip.Prefix
}

// A Watcher watches attempts to log in. It is safe for concurrent use.
//
// Its memory is bounded: 4 MiB for clients, allocated at the first attempt, and at
// most 1024 paths. It stores keyed hashes of clients and credentials.
type Watcher struct {
	client func(netip.Addr) netip.Prefix
	closed atomic.Bool // some form has refused unknown clients recently: GET requests are looked at
	wanted [16]atomic.Uint64

	mu          sync.Mutex
	secret      [2]uint64
	forms       map[uint64]*form
	established map[uint64]struct{} // hosts, with the paths of known forms, at which a client logged in
	protected   map[uint64]struct{} // areas that answered 401: see areaOf
	clients     []entry             // nil before the first attempt
	newPlaces   quota               // of places that are new in established
	grants      quota               // of clients that a reset link made known
	links       [64]link            // the latest reset links that made clients known
	nextLink    int                 // of links, which is replaced next
	latest      int64               // Unix seconds
	agents      [16]agent           // of the attacks that go on
	spare       *Attempt            // for the next request, see Reuse
	lookedAt    int64               // when it was last looked whether all attacks have ended
}

// New returns a Watcher that has learned nothing.
func New(opts Options) *Watcher {
	w := &Watcher{client: opts.Client, secret: [2]uint64{rand.Uint64(), rand.Uint64()},
		forms: map[uint64]*form{}, established: map[uint64]struct{}{},
		protected: map[uint64]struct{}{}}
	if w.client == nil {
		w.client = new(fairshare.Policy).Client
	}
	return w
}

// Standing tells whether a client has standing; a [fairshare.Guard] does.
type Standing interface {
	HasStanding(*fairshare.Request) bool
}

// An Attempt is a request whose answer tells something. Call Passed if the request
// passes, and then Answered once.
type Attempt struct {
	watcher   *Watcher
	form      *form
	question  question
	class     class
	likely    bool
	counted   bool // the client was counted before: it holds no place
	holds     bool
	inFlight  bool      // it is counted in the entry of its client
	client    clientKey // of the address
	visitor   clientKey // of the visitor; zero without one
	subject   clientKey // which of the two is counted
	placeHash uint64    // hash of host and path
	hostHash  uint64    // of the host, for Basic credentials
	path      string    // as judged
	referer   string    // as sent
	query     string    // as sent
	cookies   string    // as sent
	host      string    // without a port, in lower case
	link      uint32    // keyed hash of a reset link; 0: none
	userAgent string    // as sent; known if posted
	cred      uint16    // keyed hash of the credentials; 0 without any
	result    Result
	knownAt   uint16 // after a success: where alone the client is known; 0: everywhere
	isBearer  bool
	posted    bool // by a form, without credentials in the header
	proves    bool // the answer to its call proves that the password is right
	variant   bool // as known.variant
	unsure    bool // any path may look like this: its query names a login, or servers read it in several ways
	overrides bool // a header overrides the method
}

// A question says what the answer to a request tells.
type question uint8

const (
	attempt   question = iota // whether an attempt succeeds
	pageShown                 // the length of a page that may be a form
	resetLink                 // whether a link to reset a password is valid
	softReset                 // the same, without certainty
)

// Arrived sets Attempt, Excess and Logins of a request. Browser, Visitor and Override
// must be set before. It returns nil if the answer to the request tells nothing.
// guard may be nil: then no client has standing.
//
// A GET request without credentials costs a few nanoseconds, and allocates nothing.
func (w *Watcher) Arrived(req *fairshare.Request, guard Standing) *Attempt {
	return w.ArrivedAs(req, guard, &Target{})
}

// ArrivedAs is Arrived for a request whose target is known already.
func (w *Watcher) ArrivedAs(req *fairshare.Request, guard Standing, target *Target) *Attempt {
	req.Attempt, req.Excess, req.Logins = fairshare.NoAttempt, false, w
	if !req.Addr.IsValid() || req.Proxy {
		return nil
	}
	cred := credentials(req)
	if cred != "" && !(req.Method == "POST" && w.isForm(req)) { // a header does not make a form something else
		return w.arrivedWithCredentials(req, guard, cred)
	}
	switch req.Method {
	case "POST":
		return w.arrivedPost(req, guard, target)
	case "GET":
		if w.closed.Load() {
			return w.arrivedDuringAttack(req, guard, target)
		}
		if w.wants(req.Path) {
			return w.arrivedPage(req, target)
		}
	}
	return nil
}

// LooksAt reports whether ArrivedAs would look at the target of a request that arrived now.
func (w *Watcher) LooksAt(req *fairshare.Request) bool {
	return req.Method == "POST" || req.Method == "GET" && (w.closed.Load() || w.wants(req.Path))
}

// wants reports whether a path probably got a POST request.
func (w *Watcher) wants(path string) bool {
	bit := filterBit(path)
	return w.wanted[bit>>6].Load()>>(bit&63)&1 != 0
}

// isForm reports whether a POST request is for a form that is known or learned.
func (w *Watcher) isForm(req *fairshare.Request) bool {
	var buf [maxPath]byte
	path, as := recognize(req, buf[:0])
	if as.style != candidate {
		return as.style != ignored
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, key := w.keysOf(path, req.Host, as)
	f := w.forms[key]
	return f != nil && f.style == learned
}

// HasLoggedIn implements [fairshare.Logins].
func (w *Watcher) HasLoggedIn(req *fairshare.Request) bool {
	if !req.Addr.IsValid() || req.Proxy {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.clients == nil {
		return false
	}
	now := minutes(max(req.Time.Unix(), w.latest))
	for _, k := range [...]clientKey{w.keyOfVisitor(&req.Visitor), w.keyOf(req)} {
		e := w.find(k)
		if e != nil && e.succeeded(now) && (e.loginPlace == 0 || e.isKnownAt(w.placeOfRequest(req), now)) {
			return true
		}
	}
	return false
}

// placeOfRequest returns what Attempt.placeBits returns for an attempt with a request.
func (w *Watcher) placeOfRequest(req *fairshare.Request) uint16 {
	var buf [maxPath]byte
	path, as := recognize(req, buf[:0])
	return placeOf(w.keysOf(path, req.Host, as))
}

// Passed says that the request was let through.
func (a *Attempt) Passed() {
	if a.question != attempt || a.form == nil || a.counted {
		return
	}
	a.watcher.mu.Lock()
	defer a.watcher.mu.Unlock()
	if a.hasOwn() {
		if e := a.watcher.find(a.subject); e != nil && e.inFlight < 255 {
			e.inFlight++
			a.inFlight = true
		}
	}
	a.holds = true
	a.form.inFlight[a.class]++
}

// An Answer is the site's answer to an attempt.
type Answer struct {
	Time   time.Time
	Status int   // 0 if there was none
	Bytes  int64 // of the body

	// Encoded says that the body is compressed: its length is compared only with such ones.
	Encoded bool

	// Live says that the headers are known. A log does not hold them.
	Live      bool
	Location  string
	SetCookie []string

	// Body is the beginning of the request's body, as sent: at most [MaxBody] bytes. BodyCut says that
	// there may be more, and BodyType is its Content-Type.
	Body, BodyType string
	BodyCut        bool

	// Calls has the faults of an answer of XML-RPC; nil if not all of it was seen.
	Calls *Faults
}

// A Result says what an answer tells.
type Result uint8

const (
	Unknown   Result = iota
	Failed           // the site turned the attempt down
	Succeeded        // the site let the client in
)

// Answered learns from the answer. Only the first call counts; later ones return its
// result.
func (a *Attempt) Answered(answer *Answer) Result {
	w := a.watcher
	if w == nil {
		return a.result
	}
	a.watcher = nil
	w.mu.Lock()
	defer w.mu.Unlock()
	w.latest = max(w.latest, answer.Time.Unix())
	now := w.latest
	if a.holds {
		a.form.inFlight[a.class]--
	}
	if a.inFlight {
		if e := w.find(a.subject); e != nil && e.inFlight > 0 {
			e.inFlight--
		}
	}
	switch a.question {
	case pageShown:
		if answer.Status == 200 && a.form != nil && answer.Bytes >= minPage {
			a.form.page[pageKind(answer)] = answer.Bytes
		}
		return Unknown
	case resetLink:
		if answer.Status != 200 {
			return Unknown
		}
		e := w.put(a.client, now)
		_, real := w.established[a.placeHash]
		switch {
		case real && minutes(now) < e.grant:
			e.grant = minutes(now) + resetFor
		case !w.admits(a.link): // a fleet may share the cookie of one link
		case real && w.grants.take(now, mostGrants, grantsDaily):
			e.grant = minutes(now) + resetFor
		default: // if nobody has logged in there, the site may answer every path with a page
			e.soft = max(e.soft, minutes(now)+resetFor)
		}
		return Unknown
	case softReset:
		if answer.Status == 200 || answer.Status == 302 || answer.Status == 303 {
			e := w.put(a.client, now)
			e.soft = max(e.soft, minutes(now)+resetFor)
		}
		return Unknown
	}
	a.result = w.judge(a, answer, now)
	return a.result
}

// Reuse says that an attempt is not used any more: a later one may have its memory.
func (w *Watcher) Reuse(a *Attempt) {
	w.mu.Lock()
	w.spare = a
	w.mu.Unlock()
}

func minutes(seconds int64) uint32 { return uint32(max(seconds, 0) / 60) }

// arrivedPost looks at a POST request.
func (w *Watcher) arrivedPost(req *fairshare.Request, guard Standing, target *Target) *Attempt {
	var buf [maxPath]byte
	path, as := target.of(req, buf[:0])
	if as.style == ignored {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.clock(req.Time)
	place, key := w.keysOf(path, req.Host, as)
	f := w.formFor(key, as, path, now)
	a := w.spare
	if w.spare = nil; a == nil {
		a = new(Attempt)
	}
	*a = Attempt{watcher: w, form: f, placeHash: place, likely: req.Browser == fairshare.BrowserLikely, path: req.Path,
		variant: as.variant, unsure: as.byQuery || req.OddPath, query: req.Query, host: plainHost(req.Host),
		userAgent: req.UserAgent, posted: true}
	if req.Header != nil {
		if referers := req.Header.Values("Referer"); len(referers) > 0 {
			a.referer = referers[0]
		}
		a.cookies = strings.Join(req.Header.Values("Cookie"), ";")
		a.overrides = sendsOtherMethod(req.Header)
	}
	w.identify(a, req)
	if f.style == candidate || f.style == learned && a.likely {
		a.counted = true // it holds no place
		return a
	}
	req.Attempt = f.kind
	w.classify(a, req, guard, now)
	req.Excess = w.exceeds(a, now)
	return a
}

// arrivedWithCredentials looks at a request with an Authorization header. Of the
// credentials only the scheme and a keyed hash are used.
func (w *Watcher) arrivedWithCredentials(req *fairshare.Request, guard Standing, cred string) *Attempt {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.clock(req.Time)
	a := &Attempt{watcher: w, isBearer: !isBasic(cred), likely: req.Browser == fairshare.BrowserLikely}
	a.cred = uint16(max(w.hashString(cred)>>48, 1))
	w.identify(a, req)
	req.Attempt = fairshare.CredentialsAttempt
	if a.isBearer { // tokens of many clients end together: the path is not judged
		a.counted = true
		return a
	}
	a.placeHash = w.areaOf(req)
	as := known{style: basic, kind: fairshare.CredentialsAttempt}
	key, name := w.hashString("basic"), "(basic)"
	host := plainHost(req.Host)
	a.hostHash = key ^ fold(w.hashString(host), w.secret[0]|1)
	if _, ok := w.established[a.hostHash]; ok {
		key, name = a.hostHash, "(basic) "+host[:min(len(host), maxPath)]
	}
	a.form = w.formFor(key, as, []byte(name), now)
	w.classify(a, req, guard, now)
	req.Excess = w.exceeds(a, now)
	return a
}

// arrivedPage looks at a GET request for a path that got a POST request.
func (w *Watcher) arrivedPage(req *fairshare.Request, target *Target) *Attempt {
	var buf [maxPath]byte
	path, as := target.of(req, buf[:0])
	w.mu.Lock()
	defer w.mu.Unlock()
	_, key := w.keysOf(path, req.Host, as)
	f := w.forms[key]
	if f == nil || req.Query != "" { // some pages repeat what the query holds
		return nil
	}
	return &Attempt{watcher: w, question: pageShown, form: f}
}

// arrivedDuringAttack looks at a GET request while a form is under attack. An unknown client
// whose attempt was refused does not get the form again. One with the user agent of the attack, and
// without the headers of a browser, gets it when it comes a second time. Links to reset a password are looked at.
func (w *Watcher) arrivedDuringAttack(req *fairshare.Request, guard Standing, target *Target) *Attempt {
	var buf [maxPath]byte
	path, as := target.of(req, buf[:0])
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.clock(req.Time)
	switch reset := resetOf(req, path); reset {
	case resetLink, softReset:
		a := &Attempt{watcher: w, question: reset}
		if reset == resetLink {
			form := as
			form.variant = false
			a.placeHash, _ = w.keysOf(path, req.Host, form)
			a.link = w.linkOf(req)
		}
		w.identify(a, req)
		return a
	}
	if as.style == ignored {
		return nil
	}
	place, key := w.keysOf(path, req.Host, as)
	f := w.forms[key]
	if f == nil {
		return nil
	}
	page := &Attempt{watcher: w, question: pageShown, form: f}
	if req.Query != "" {
		page = nil // some pages repeat what the query holds
	}
	if as.variant || f.kind == fairshare.NoAttempt || f.style == rpc || f.style == basic {
		return page
	}
	a := &Attempt{watcher: w, form: f, placeHash: place, likely: req.Browser == fairshare.BrowserLikely}
	w.identify(a, req)
	e := w.find(a.subject)
	again := f.closedAt != 0 && now-f.closedAt <= quietAfter && e != nil && e.refused != 0 &&
		minutes(now) <= e.refused+countedFor
	if !again && (f.kind != fairshare.LoginAttempt || sendsLanguage(req) || !w.isOfFleet(w.agentOf(req.UserAgent))) {
		return page
	}
	w.classify(a, req, guard, now)
	if a.class != unknown {
		return page
	}
	if again {
		req.Excess = w.exceeds(a, now)
	} else {
		req.Excess = w.mustComeAgain(a, now)
	}
	if req.Excess {
		return nil
	}
	return page
}

// clock returns the time of a request in Unix seconds. It never runs backwards. The
// lock is held.
func (w *Watcher) clock(at time.Time) int64 {
	w.latest = max(w.latest, at.Unix())
	if w.latest-w.lookedAt >= 60 && w.closed.Load() {
		w.lookedAt = w.latest
		open := true
		for _, f := range w.forms {
			open = open && (f.closedAt == 0 || w.latest-f.closedAt > quietAfter)
		}
		if open {
			w.closed.Store(false)
			w.agents = [len(w.agents)]agent{}
		}
	}
	return w.latest
}

// WantsBody reports whether the body of an attempt tells something about its answer: [Answer.Body].
func (a *Attempt) WantsBody() bool {
	return a.question == attempt && a.form != nil && a.form.kind == fairshare.LoginAttempt
}
