package logins

import (
	"bytes"
	"math"
	mathbits "math/bits"
	"strings"

	"fairshare"
)

// A class says how much is known of a client. Each class has a budget of its own.
type class uint8

const (
	veteran class = iota // it logged in first two weeks ago or more
	trusted              // it logged in first a day ago or more
	young                // it has logged in, or opened a valid link to reset a password
	likely               // it behaves like a browser, or has standing
	unknown              // nothing is known of it
	classes
)

// A form is a path that gets logins or comments.
type form struct {
	key   uint64
	name  string // of its path
	kind  fairshare.Attempt
	style style
	both  bool // as known.both

	level    [classes]float64 // clients that failed and have not logged in since
	inFlight [classes]int32
	at       int64            // of level, in Unix seconds
	recently [classes]float64 // clients that logged in; decays in minutes
	daily    [classes]float64 // the same, decays in a day
	usual    [classes]float64 // comments in a day
	today    [classes]float64 // comments since dayAt
	dayAt    int64            // in Unix seconds
	usedAt   int64            // in Unix seconds

	closedAt    int64 // when it last refused unknown clients; 0: never
	closedSince int64 // when that began; 0: it did not refuse any recently
	excess      int64 // attempts that exceeded a budget since closedSince

	page       [2]int64 // length of the form, and of the compressed form
	lengths    [8]length
	denied     int    // attempts answered with 401 or 403
	bounced    int    // attempts answered with the form again
	passed     int    // attempts answered otherwise
	moved      int    // attempts answered with 302 or 303
	clientBits uint64 // of the clients that failed: a bit of the hash of each

	fields   [8]field       // that name a page after a success
	doubtful [classes]quota // redirects that may be failures
}

// A length counts answers of about one length.
type length struct {
	bytes      int64
	n          int
	clientBits uint64
}

// Bounds of the budgets. A budget holds so many clients, and regains so many in a day. Of known clients at logins it
// holds the failures beyond what each of them may have of its own.
var budgets = map[fairshare.Attempt][classes]struct{ most, daily, bySuccess float64 }{
	fairshare.LoginAttempt:       {{40, 144, 0.3}, {20, 72, 0.3}, {10, 36, 0.3}, {4, 12, 0.3}, {3, 2, 0.15}},
	fairshare.CredentialsAttempt: {{40, 144, 0.3}, {20, 72, 0.3}, {10, 36, 0.3}, {4, 12, 0.3}, {3, 2, 0.15}},
	fairshare.CommentAttempt:     {{1000, 10_000, 1}, {1000, 10_000, 1}, {1000, 10_000, 1}, {80, 300, 1}, {3, 12, 1}},
}

const (
	day        = 24 * 60 * 60 // seconds
	quietAfter = 6 * 60 * 60  // seconds after the last excess when an attack has ended
	recentFor  = 600.0        // seconds in which recently decays to 1/e
	slack      = 16           // attempts in progress that hold no place: many people may log in at once
	allowance  = 6            // failures of a client that was counted, while the budget is used up
	perSuccess = 0.2          // places that a client regains for others by logging in

	newPlacesDaily = 8  // places that get a budget of their own in a day
	mostGrants     = 8  // clients that reset links make known at one time
	grantsDaily    = 48 // how many they make known in a day
	linkClients    = 2  // clients that one link makes known: where the mail is read, and where the person logs in

	// Failures that a known client may have, whatever others do. A client with an own account can make many
	// addresses known.
	ownYoung   = 3  // in a day, if it logged in first less than a day ago
	ownDaily   = 6  // in a day; a veteran twice as many
	ownWeekly  = 20 // in a week; a veteran twice as many
	mostShared = 24 // beyond these, in a day, of the budget of its class

	newVisitors = 24 // visitors that become known in a day by logging in at one address

	maxForms       = 1024
	maxEstablished = 512
	minRPC         = 600     // bytes: a shorter answer is a fault
	minPage        = 400     // bytes of a page that may be a form
	maxToken       = 8 << 10 // bytes of an answer of an API to a login
	minPlainPage   = 1000    // the same, if only its length tells
	learnClients   = 5       // clients that must fail before a path is learned
	learnFailures  = 6
)

var noClients [classes]float64

// advance lets time pass.
func (f *form) advance(now int64) {
	if f.at == 0 {
		f.at, f.dayAt = now, now
	}
	f.usedAt = now
	dt := float64(now - f.at)
	if dt <= 0 {
		return
	}
	f.at = now
	for c := range f.level {
		f.level[c] = max(0, f.level[c]-f.rate(class(c))*dt/day)
	}
	if f.recently != noClients || f.daily != noClients {
		recently, daily := math.Exp(-dt/recentFor), math.Exp(-dt/day)
		for c := range f.daily {
			f.recently[c] *= recently
			f.daily[c] *= daily
		}
	}
	for ; now-f.dayAt >= day; f.dayAt += day {
		for c := range f.usual { // it at most doubles in a week, whatever comes
			f.usual[c] += (min(f.today[c], 2*f.usual[c]+3) - f.usual[c]) / 7
			f.today[c] = 0
		}
		if now-f.dayAt > 60*day {
			f.dayAt = now - now%day
		}
	}
	if f.closedSince != 0 && now-f.closedAt > quietAfter {
		f.closedSince, f.excess = 0, 0
	}
}

// rate returns how many clients of a class may fail in a day.
func (f *form) rate(c class) float64 {
	b := budgets[f.kind][c]
	if f.kind == fairshare.CommentAttempt {
		return b.daily + 2*f.usual[c]
	}
	return b.daily + b.bySuccess*f.daily[c]
}

// most returns how many may have failed at one time.
func (f *form) most(c class) float64 {
	b := budgets[f.kind][c]
	if f.kind == fairshare.CommentAttempt {
		return b.most + f.usual[c]/4
	}
	return b.most + b.bySuccess*(f.daily[c]/8+f.recently[c])
}

// isOver reports whether a class has used its budget.
func (f *form) isOver(c class) bool {
	held := max(float64(f.inFlight[c])-slack-f.recently[c], 0)
	return f.level[c]+held > f.most(c)-1
}

// exceeds reports whether the class of an attempt's client has used its budget.
func (w *Watcher) exceeds(a *Attempt, now int64) bool {
	f := a.form
	f.advance(now)
	over := f.isOver(a.class)
	e := w.find(a.subject)
	switch {
	case e == nil:
	case a.hasOwn():
		failed, hasMore := e.ownFailures(a.class, minutes(now))
		if hasMore {
			return false
		}
		over = over || failed >= ownDailyOf(a.class)+mostShared
	case a.counted:
		over = over && e.fails >= allowance
	}
	if !over {
		return false
	}
	f.excess++
	f.closedAt = now
	if f.closedSince == 0 {
		f.closedSince = now
	}
	w.noteAgent(a)
	w.closed.Store(true)
	w.put(a.subject, now).refused = minutes(now)
	return true
}

// hasOwn reports whether the client of an attempt may have failures whatever others do.
func (a *Attempt) hasOwn() bool { return a.class <= young && a.form.kind != fairshare.CommentAttempt }

func ownDailyOf(c class) int {
	switch c {
	case veteran:
		return 2 * ownDaily
	case young:
		return ownYoung
	}
	return ownDaily
}

// ownFailures returns how many failures a known client has had in a day, and whether it may have more whatever others
// do. Attempts in progress count as failures.
func (e *entry) ownFailures(c class, now uint32) (failed int, hasMore bool) {
	weekly := int(e.inFlight)
	failed = weekly
	if e.counted != 0 && now < e.counted+countedFor {
		failed += int(e.fails)
	}
	if e.week == weekOf(now) {
		weekly += int(e.weekly)
	}
	most := ownWeekly
	if c == veteran {
		most *= 2
	}
	return failed, failed < ownDailyOf(c) && weekly < most
}

// weekOf returns the number of a week since 1970.
func weekOf(now uint32) uint16 { return uint16(now / (7 * 24 * 60)) }

// judge learns from the answer to an attempt.
func (w *Watcher) judge(a *Attempt, answer *Answer, now int64) Result {
	if a.isBearer {
		return w.judgeCredentials(a, answer, now)
	}
	f := a.form
	f.advance(now)
	if f.style == candidate {
		w.learn(a, answer)
		return Unknown
	}
	if f.style == plain && (answer.Status == 302 || answer.Status == 303) {
		f.moved = min(f.moved+1, 1<<20)
	}
	if f.style == plain && answer.Status >= 400 && answer.Status < 500 {
		f.denied = min(f.denied+1, 1<<20)
		f.clientBits |= 1 << (a.client.hash >> 58)
	}
	result := w.resultOf(a, answer)
	proved := f.style == rpc || f.style == wordpress && answer.Live
	if result == Succeeded && !proved && a.overridesMethod(answer) {
		result = Unknown
	}
	if f.style == learned && a.likely && result == Failed {
		return Unknown
	}
	if f.style == basic {
		result = w.judgeCredentials(a, answer, now)
	}
	switch {
	case result == Succeeded:
		w.succeed(a, !proved && (answer.Status < 300 || a.unsure), now)
	case f.kind == fairshare.CommentAttempt:
		if answer.Status != 0 && answer.Status < 500 {
			if w.count(a, 1, now) {
				f.today[a.class]++
			}
			if e := w.find(a.subject); e != nil && e.wrote == 0 && result != Failed {
				e.wrote = minutes(now)
			}
		}
	case result == Unknown && answer.Status == 200 && answer.Bytes >= minPage && f.style != rpc:
		w.learnFields(a, answer) // it was not redirected
	case result == Failed:
		if w.closed.Load() {
			w.noteAgent(a)
		}
		w.learnFields(a, answer)
		n := 1
		if answer.Calls != nil {
			n = max(n, answer.Calls.Denied)
		}
		w.count(a, n, now)
	}
	return result
}

// judgeCredentials judges an answer to Basic or Bearer credentials. A client that
// repeats what failed does not guess. A path without protection answers every client: so a success
// counts only in an area that answers 401 to others, and for little.
func (w *Watcher) judgeCredentials(a *Attempt, answer *Answer, now int64) Result {
	switch {
	case answer.Status == 401:
		e := w.put(a.client, now)
		if len(w.protected) < maxEstablished {
			w.protected[a.placeHash] = struct{}{}
		}
		again := e.cred == a.cred
		if e.cred = a.cred; !again {
			return Failed
		}
	case answer.Status >= 200 && answer.Status < 400 && !a.isBearer:
		if _, ok := w.protected[a.placeHash]; !ok {
			return Unknown // it may answer so without credentials
		}
		w.establish(a.hostHash, now)
		e := w.put(a.client, now)
		if minutes(now) >= e.soft {
			a.form.daily[a.class]++
			a.form.recently[a.class]++
		}
		e.soft = minutes(now) + softFor
	}
	return Unknown
}

// isCounted reports whether a client holds a place in the budget of a form. One that has logged in
// before holds one in all: with several it could lock out the others, at one form after the other.
func (e *entry) isCounted(c class, f *form, now uint32) bool {
	return e.counted != 0 && now < e.counted+countedFor && (c <= young) == (e.class <= young) &&
		(c <= young || e.form == uint16(f.key>>48))
}

// count counts n failures of a client. It returns false if the client was counted before on this day. A known client
// holds a place for each failure beyond its own, another one holds one place.
func (w *Watcher) count(a *Attempt, n int, seconds int64) bool {
	f, now := a.form, minutes(seconds)
	e := w.put(a.subject, seconds)
	isNew := !e.isCounted(a.class, f, now)
	if isNew {
		e.counted, e.form, e.fails, e.class = max(now, 1), uint16(f.key>>48), 0, a.class
	}
	before := int(e.fails)
	e.fails = uint16(min(before+n, 1<<16-1))
	switch {
	case a.hasOwn():
		own := ownDailyOf(a.class)
		f.level[a.class] += float64(max(before+n, own) - max(before, own))
		if week := weekOf(now); e.week != week {
			e.week, e.weekly = week, 0
		}
		e.weekly = uint16(min(int(e.weekly)+n, 1<<16-1))
	case isNew:
		f.level[a.class]++
	}
	return isNew
}

// succeed records that a client has logged in. A weak success makes it known at this place alone: some other path
// may answer first 404 and then 200, or redirect each request to another page and set a cookie.
func (w *Watcher) succeed(a *Attempt, weak bool, now int64) {
	f, at := a.form, max(minutes(now), 1)
	if weak {
		a.knownAt = a.placeBits()
	} else {
		w.forgetAgent(w.agentOf(a.userAgent))
	}
	isNew := true
	for _, k := range []clientKey{a.client, a.visitor} {
		if k.hash == 0 {
			continue
		}
		if k == a.visitor && !w.admitsVisitor(a.client, k, now) {
			continue
		}
		e := w.putSuccess(k, now)
		// Once in a day: otherwise an attacker with an own account would forget its failures by logging in.
		forgives := e.last == 0 || at >= e.last+countedFor
		if e.succeeded(at) && at < e.last+12*60 {
			isNew = false
		}
		e.logIn(a.knownAt, at)
		if e.counted != 0 && forgives && (!weak || e.form == uint16(f.key>>48)) {
			for _, g := range w.forms {
				if e.class > young && e.form == uint16(g.key>>48) && at < e.counted+countedFor {
					g.level[e.class] = max(0, g.level[e.class]-1)
					break
				}
			}
			e.counted, e.fails = 0, 0
		}
	}
	if isNew {
		f.recently[a.class]++
		f.daily[a.class]++
		f.level[a.class] = max(0, f.level[a.class]-perSuccess)
	}
	w.establish(a.placeHash, now)
}

// establish gives a place a budget of its own, from the next attempt on. A client with an account can
// make up as many hosts as it likes, so there are only a few new places in a day.
func (w *Watcher) establish(place uint64, now int64) {
	if _, ok := w.established[place]; ok || place == 0 || len(w.established) >= maxEstablished {
		return
	}
	if w.newPlaces.take(now, newPlacesDaily, newPlacesDaily) {
		w.established[place] = struct{}{}
	}
}

// A quota says how much of something was used recently.
type quota struct {
	used float64
	at   int64 // Unix seconds
}

// take uses one, if less than most are used. So many become free again in a day.
func (q *quota) take(now int64, most, daily float64) bool {
	q.used, q.at = max(0, q.used-daily*float64(now-q.at)/day), now
	if q.used+1 > most {
		return false
	}
	q.used++
	return true
}

// RememberVisitor records that the client of an attempt that succeeded got a visitor's
// cookie with the answer.
func (w *Watcher) RememberVisitor(a *Attempt, v *fairshare.Visitor) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.keyOfVisitor(v)
	if k.hash == 0 || !w.admitsVisitor(a.client, k, w.latest) {
		return
	}
	w.putSuccess(k, w.latest).logIn(a.knownAt, max(minutes(w.latest), 1))
}

// admitsVisitor reports whether a visitor may become known because it logged in at an address. Each visitor may have
// failures of its own, and one account is enough for any number of cookies.
func (w *Watcher) admitsVisitor(client, v clientKey, seconds int64) bool {
	now := minutes(seconds)
	if e := w.find(v); e != nil && e.succeeded(now) {
		return true
	}
	e := w.putSuccess(client, seconds)
	if today := uint16(now / (24 * 60)); e.visitorsOn != today {
		e.visitorsOn, e.visitors = today, 0
	}
	if e.visitors >= newVisitors {
		return false
	}
	e.visitors++
	return true
}

// resultOf tells whether an attempt failed.
func (w *Watcher) resultOf(a *Attempt, answer *Answer) Result {
	f, status := a.form, answer.Status
	switch {
	case f.style == wordpress && hasLoginCookie(answer): // the login of a window may answer with 200
		return Succeeded
	case status == 0 || status >= 500:
		return Unknown
	case f.kind == fairshare.CommentAttempt:
		if status >= 400 {
			return Failed
		}
		return Unknown
	case status >= 400, status >= 300 && status != 302 && status != 303:
		return Failed
	case f.style == rpc:
		return f.resultOfCalls(a, answer)
	case status >= 300:
		return w.redirected(a, answer)
	case f.style == redirects || f.style == wordpress:
		return Failed
	case f.isFormAgain(answer), f.style == learned && f.isCommon(answer.Bytes, 0):
		return Failed
	case f.style == plain && f.moved > 0 && answer.Bytes >= minPlainPage && f.isCommon(answer.Bytes, 0):
		return Failed // somebody was redirected there, so a success is
	case f.style == learned && f.denied >= 3, f.style == plain && f.isShort(answer) && f.deniesByStatus():
		return Succeeded
	case f.style == plain && f.isShort(answer) && !a.overridesMethod(answer):
		if e, now := w.put(a.client, w.latest), max(minutes(w.latest), 1); !e.succeeded(now) {
			e.entered, e.loginPlace = now, a.placeBits()
		}
	}
	return Unknown
}

// deniesByStatus reports whether a login answers failed attempts with 4xx, and nobody was redirected there: then
// 200 is a success. Most APIs do so.
func (f *form) deniesByStatus() bool {
	return f.denied >= 3 && mathbits.OnesCount64(f.clientBits) >= 2 && f.moved == 0
}

// isShort reports whether an answer is much shorter than the page of the form, if there is one.
func (f *form) isShort(answer *Answer) bool {
	page := max(f.page[0], f.page[1])
	return answer.Status == 200 && answer.Bytes < maxToken && (page == 0 || answer.Bytes < page/4)
}

// resultOfCalls judges an answer of XML-RPC. Where its faults are not known, short answers and those of a
// common length are failures.
func (f *form) resultOfCalls(a *Attempt, answer *Answer) Result {
	failed, calls := false, answer.Calls
	if calls == nil {
		failed = answer.Bytes < minRPC || !a.variant && f.isCommon(answer.Bytes, 0)
	} else {
		failed = calls.Denied > 0
	}
	switch {
	case answer.Status != 200:
	case failed:
		return Failed
	case calls != nil && !calls.Any && a.proves && calls.isAnswer() && a.query == "" && !a.unsure:
		return Succeeded
	}
	return Unknown
}

// redirected judges a redirect: back to the form is a failure. Anywhere else it is a success, unless the client may
// have named the page.
func (w *Watcher) redirected(a *Attempt, answer *Answer) Result {
	f := a.form
	switch {
	case answer.Live:
	case f.both:
		return Unknown
	default:
		return Succeeded
	}
	var buf, own [maxPath]byte
	target, from := canonical(buf[:0], targetOf(a, answer.Location)), canonical(own[:0], a.path)
	back := len(target) == 0 || bytes.Equal(target, from) || isLoginPath(target)
	switch {
	case back && f.style == redirects: // Joomla: its answer is the same for both
		return Unknown
	case back:
		return Failed
	case f.style == wordpress: // action=postpass redirects without a login
		return Unknown
	}
	if a.referer != "" {
		var sent [maxPath]byte
		// Some applications redirect a failed attempt to the page before it, which the client makes up.
		if bytes.Equal(target, canonical(sent[:0], pathOf(a.referer))) {
			return Unknown
		}
	}
	switch w.proofOf(a, answer, target) {
	case refuted:
		return Failed
	case doubtful:
		if b := unproven[a.class]; !f.doubtful[a.class].take(w.latest, b.most, b.daily) {
			return Failed
		}
		w.forgive(a)
		return Unknown
	}
	if len(answer.SetCookie) == 0 {
		return Unknown
	}
	return Succeeded
}

// forgive gives the place of a client back whose attempt may have succeeded.
func (w *Watcher) forgive(a *Attempt) {
	e := w.find(a.subject)
	if e != nil && e.class > young && e.isCounted(a.class, a.form, minutes(w.latest)) {
		a.form.level[e.class] = max(0, a.form.level[e.class]-1)
		e.counted, e.fails = 0, 0
	}
}

// pathOf returns the path of a URL, or of a reference that begins with a path.
func pathOf(url string) string {
	if i := strings.Index(url, "://"); i >= 0 {
		url = url[i+3:]
		if i = strings.IndexByte(url, '/'); i < 0 {
			return "/"
		}
		url = url[i:]
	}
	url, _, _ = strings.Cut(url, "?")
	url, _, _ = strings.Cut(url, "#")
	return url
}

// hasLoginCookie reports whether WordPress sets the cookie of a login.
func hasLoginCookie(answer *Answer) bool {
	for _, line := range answer.SetCookie {
		if strings.HasPrefix(line, "wordpress_logged_in") &&
			!strings.Contains(line, "=%20;") && !strings.Contains(line, "=;") {
			return true
		}
	}
	return false
}

// isFormAgain reports whether an answer is about as long as the form.
func (f *form) isFormAgain(answer *Answer) bool {
	page, n := f.page[pageKind(answer)], answer.Bytes
	return page >= minPage && n >= page-page/8 && n <= page+page/4+512
}

func pageKind(answer *Answer) int {
	if answer.Encoded {
		return 1
	}
	return 0
}

// isCommon notes an answer's length, and reports whether several answers had it.
func (f *form) isCommon(n int64, clientBits uint64) bool {
	least := &f.lengths[0]
	for i := range f.lengths {
		l := &f.lengths[i]
		if l.n > 0 && n >= l.bytes-l.bytes/64-16 && n <= l.bytes+l.bytes/64+16 {
			l.n = min(l.n+1, 1<<20)
			l.clientBits |= clientBits
			return l.n > 3
		}
		if l.n < least.n {
			least = l
		}
	}
	*least = length{n, 1, clientBits}
	return false
}

// learn learns whether a path is a login, from an answer to a POST request.
func (w *Watcher) learn(a *Attempt, answer *Answer) {
	f := a.form
	bit := uint64(1) << (a.client.hash >> 58)
	switch status := answer.Status; {
	case status == 0 || status >= 500 || a.likely && status != 302 && status != 303:
		return
	case status == 401 || status == 403:
		f.denied++
		f.clientBits |= bit
	case status == 302 || status == 303:
		f.moved++
	case status == 200 && f.isFormAgain(answer):
		f.bounced++
		f.clientBits |= bit
	case status == 200 && f.isCommon(answer.Bytes, bit):
		f.passed++
	default:
		f.passed++
	}
	failed, clients := f.denied+f.bounced, mathbits.OnesCount64(f.clientBits)
	if f.moved > 0 && failed < learnFailures { // answers of one length, where others are redirected
		for _, l := range f.lengths {
			if l.n >= learnFailures && l.bytes >= minPage && l.n > failed {
				failed, clients = l.n, mathbits.OnesCount64(l.clientBits)
			}
		}
	}
	if failed >= learnFailures && clients >= learnClients && failed >= f.passed-failed {
		f.style, f.kind = learned, fairshare.LoginAttempt
	}
}

// placeBits returns the first bits of the hash of an attempt's host and path; never 0.
func (a *Attempt) placeBits() uint16 {
	if a.form == nil {
		return placeOf(a.placeHash, 0)
	}
	return placeOf(a.placeHash, a.form.key)
}

func placeOf(place, key uint64) uint16 {
	if place == 0 {
		place = key
	}
	return uint16(max(place>>48, 1))
}

// keysOf returns a hash of host and path, and the key of the form there. Known forms
// that no client has logged in to share one budget for each name, so that a client gains
// nothing by making up hosts and folders.
func (w *Watcher) keysOf(path []byte, host string, as known) (place, key uint64) {
	var buf [maxPath + 16]byte
	b := append(buf[:0], path...)
	if as.variant {
		b = append(b, "?"...)
	}
	own := w.hash(b)
	if as.style == candidate {
		return 0, own
	}
	place = own ^ fold(w.hashString(plainHost(host)), w.secret[0]|1)
	if _, ok := w.established[place]; ok {
		return place, place
	}
	b = append(append(buf[:0], '='), as.name...)
	if as.variant {
		b = append(b, '?')
	}
	return place, w.hash(b)
}

// plainHost returns a host in lower case, without its port and a final dot.
func plainHost(host string) string {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		host = host[:i]
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// areaOf returns a hash of the host and the first folder of a request.
func (w *Watcher) areaOf(req *fairshare.Request) uint64 {
	var buf [maxPath]byte
	path := canonical(buf[:0], req.Path)
	if len(path) > 0 {
		if i := bytes.IndexByte(path[1:], '/'); i >= 0 {
			path = path[:1+i]
		}
	}
	return w.hash(path) ^ fold(w.hashString(plainHost(req.Host)), w.secret[0]|1)
}

// formFor returns the form of a key, which it may create.
func (w *Watcher) formFor(key uint64, as known, path []byte, now int64) *form {
	f := w.forms[key]
	if f == nil {
		if len(w.forms) >= maxForms {
			w.dropForm()
		}
		f = &form{key: key, name: string(path), kind: as.kind, style: as.style}
		w.forms[key] = f
		if as.style == candidate || as.style == plain {
			bit := filterBit(string(path))
			w.wanted[bit>>6].Or(1 << (bit & 63))
		}
	}
	f.both = as.both
	f.advance(now)
	return f
}

// dropForm removes the form that was used least recently, of some; candidates first.
func (w *Watcher) dropForm() {
	var oldest *form
	n := 0
	for _, f := range w.forms {
		if oldest == nil || (f.style == candidate) != (oldest.style == candidate) && f.style == candidate ||
			(f.style == candidate) == (oldest.style == candidate) && f.usedAt < oldest.usedAt {
			oldest = f
		}
		if n++; n >= 32 {
			break
		}
	}
	delete(w.forms, oldest.key)
}

// filterBit returns the bit of a path in Watcher.wanted. It ignores case and the final slash.
func filterBit(path string) uint {
	n := len(path)
	for n > 1 && path[n-1] == '/' {
		n--
	}
	if n == 0 {
		return 0
	}
	return (uint(n)*37 + uint(path[n-1]|0x20)*7 + uint(path[n/2]|0x20)*131) & 1023
}

// IsProved reports whether the cookies of an answer prove that an attempt succeeded,
// whatever its status is.
func (a *Attempt) IsProved(answer *Answer) bool {
	w := a.watcher
	if w == nil || a.question != attempt || a.form == nil {
		return false
	}
	w.mu.Lock() // the style of a form may be learned meanwhile
	defer w.mu.Unlock()
	return a.form.style == wordpress && hasLoginCookie(answer)
}
