package httpguard

import (
	"net/http"
	"net/netip"
	"time"

	"fairshare"
	"fairshare/browser"
	"fairshare/fleets"
	"fairshare/logins"
	"fairshare/robots"
	"fairshare/share"
	"fairshare/texts"
	"fairshare/visitor"
	"fairshare/waitingroom"
)

// Options change what a [Handler] does. The zero Options are right for a server
// that its clients reach directly. Many goroutines call the functions in
// Options at the same time.
type Options struct {
	// Client returns the client that sent a request. nil means the peer's
	// address: a header is never trusted by itself.
	Client func(r *http.Request) Client

	// Bot identifies a client as a bot. It must return at once. nil means that no
	// client is a bot.
	Bot func(addr netip.Addr, userAgent string) fairshare.Bot

	// SignedBot identifies the bot of a request that has a header Signature-Input, by its
	// signature. claimed is the result of Bot. It must return at once. nil means that
	// signatures prove nothing.
	SignedBot func(r *http.Request, addr netip.Addr, claimed fairshare.Bot) fairshare.Bot

	// CanSign reports whether a signature can prove a bot. Then refusals of clients that
	// claim to be it without proof ask for one (Accept-Signature, RFC 9421 §5). nil means
	// that none can.
	CanSign func(fairshare.Bot) bool

	// Owner returns who owns an address, for rules that match or count by the
	// number of an autonomous system; see package asn. It must return at once. nil
	// means that no owner is known.
	Owner func(addr netip.Addr) fairshare.Owner

	// Values returns what the program knows of a request, by name: "user" or
	// "tenant". Limits ByValue count by it. nil means that nothing is known.
	Values func(r *http.Request) map[string]string

	// Forms has the guard read forms before it judges a request, if a rule looks at their
	// fields: urlencoded and multipart bodies of at most 64 KiB. It reads for at most 20 s,
	// or as long as http.Server.ReadTimeout says, if that is set. The handler gets the body
	// unchanged; if it came too slowly, reading it fails. Longer bodies, and those that servers
	// may read in several ways, have unknown fields: see fairshare.Request.Form. Without
	// Forms those of all forms are unknown.
	Forms bool

	// Lookups returns what the DNS knows of an address, for rules that match
	// host names and lists. nil means that nothing is known.
	Lookups fairshare.Lookups

	// Override returns the operators' decision about a client, or about a peer that
	// named a client. It must return at once. nil means that there are none.
	Override func(addr netip.Addr, bot fairshare.Bot, now time.Time) fairshare.Override

	// Contact is shown to clients that are refused: an address, a URL or a
	// sentence. "" means none.
	Contact string

	// Refused is called for each refusal and block, also for those of a dry run,
	// before the request is answered. It must return quickly. The report is
	// valid during the call only.
	Refused func(*Report)

	// Passed is called for each request that was let through, after it has
	// ended. It must return quickly. The completion is valid during the call only.
	Passed func(*Completion)

	// Waited is called for each request that waited and then passed: for its turn, or until
	// other requests had ended. It must return quickly.
	Waited func(r *http.Request, wait time.Duration)

	// Answered is called once for each request when it has been answered, however it was:
	// for access logs. It must return quickly. The access is valid during the call only.
	Answered func(*Access)

	// Answer writes the answer to a request that is refused or blocked, in place
	// of the usual one. Cache-Control, Retry-After and the RateLimit fields are
	// set already. If Answer writes no status, the client gets report.Status.
	// Requests for /robots.txt get the usual answer. nil means the usual answer
	// for all. The report is valid during the call only.
	Answer func(w http.ResponseWriter, r *http.Request, report *Report)

	// Answers has answers for refusals by fairshare.OperatorBan, fairshare.BusyUpstream and
	// fairshare.AttackMode, in place of the usual ones. A status of 0 is the usual one. Rules of
	// the policy have their answer in Rule.Answer. The map must not be changed.
	Answers map[*fairshare.Rule]*fairshare.Answer

	// Texts has the texts of the usual answers in all languages. HTML is in the language that the
	// client prefers, text and JSON are in English. nil means the built-in texts.
	Texts *texts.Set

	// RateLimitFields adds RateLimit and RateLimit-Policy to the answers of
	// requests that pass too. Refusals always have them. It needs a limiter that
	// is a [fairshare.Peeker].
	RateLimitFields bool

	// Context has [From] find the request in its context. It costs one copy of
	// the http.Request, about 300 bytes. [Handler.Do] does it always.
	Context bool

	// ErrorStatus returns the status with which the server will answer an error
	// of the function that [Handler.Do] called. It is asked if nothing was
	// written before. nil, or a result of 0, means 500.
	ErrorStatus func(error) int

	// Visitors reads and signs the cookie by which a client keeps its standing when
	// its address changes or is shared. It is set on pages that no cache may store,
	// while the site is busy or the client is near a limit. Neither rules nor the
	// handler see it. nil means that clients are known by their address only.
	Visitors *visitor.Cookies

	// Members reads a cookie by which the site says that a client is logged in. nil means that
	// only the response header [VisitorField] says so.
	Members *visitor.Members

	// Secure reports whether a proxy in front has received the request by TLS. It is
	// called if the connection of the request does not use TLS. nil means false.
	Secure func(*http.Request) bool

	// Browser looks for signs that clients are browsers, for rules that match
	// them. The guards of several policies may share one. nil means that no client
	// is a browser. Requests that are refused count as of no browser, unless a rule
	// looks at browsers or Logins is set.
	Browser *browser.Watcher

	// Robots has the robots.txt of the site's hosts, for rules that match what it disallows and
	// for limits by its crawl delays. It learns by [Handler.AskRobots]. Answers that pass only show
	// which hosts to ask: see [robots.Sites.Wanted]. nil means that no robots.txt is known.
	Robots *robots.Sites

	// Logins finds attempts to log in that fail, for rules that match attempts and for
	// limits of failures. The guards of several policies may share one. It works
	// better with Browser and Visitors. nil means that no request is an attempt.
	Logins *logins.Watcher

	// Fleets finds clients at many addresses that behave as one program, for
	// limits that count them as one client, and for reports. The guards of several
	// policies may share one. nil means that no client belongs to a fleet.
	Fleets *fleets.Finder

	// Share gives out turns at the upstream while it is busy. nil means that no
	// request waits for a turn. A guard without [fairshare.Guard.UseBusy] gets
	// [share.Queue.IsBusy], for limits that hold only while the upstream is busy.
	Share *share.Queue

	// Shares are the queues of sites that have upstreams of their own, by the names of
	// the policy's Sites. Requests for other hosts use Share. nil means that all do. A guard
	// without [fairshare.Guard.UseBusyOf] gets the IsBusy of these queues.
	Shares map[string]*share.Queue

	// WaitingRoom makes the page for people whose browser gets no turn: status 503,
	// and it reloads itself. With Visitors they keep their place. It is sent in place
	// of an answer by Answer. In dry run nobody gets it. nil means that all requests
	// without a turn are refused in the same way.
	WaitingRoom *waitingroom.Room

	// RoomFirst reports whether a client without a visitor's cookie gets into the
	// waiting room first, although there may be room for it. It is let through when
	// it comes back with the cookie. It is asked for GET and HEAD, and if the client's
	// network still gets cookies: POST requests pass, and clients that get no cookie.
	// nil means no client. It needs WaitingRoom and Visitors.
	RoomFirst func(*fairshare.Request) bool

	// HandlerAwaits says that the handler itself calls AwaitTurn, just before it
	// sends the request to the upstream. Otherwise the turn is awaited before
	// the handler is called.
	HandlerAwaits bool

	// Meter measures the CPU time of the upstream. nil means that only the
	// handler reports it. A time that the handler reports replaces the measured
	// one.
	Meter Meter

	// ThreadCPU measures the CPU time of the handler's goroutine, which is locked
	// to its thread for the time, and of functions run by [MeasureCPU]. It makes
	// switching between goroutines more expensive, by some µs each. It works on
	// Linux. On other systems the CPU time counts as the time that the request took.
	ThreadCPU bool

	// HandlerReportsCPU says that the handler usually reports CPU time. Then a request
	// counts no CPU time until the handler reports some or the request ends. An
	// answer without an end, such as an event stream, counts the time until its
	// first byte.
	HandlerReportsCPU bool

	// Wait is the longest time for which a request waits if nothing but requests
	// in progress keeps it out. It passes once enough of these have settled, and
	// is refused otherwise. Requests of one client and limit wait in a line. 0
	// means DefaultWait; below 0 no request waits.
	Wait time.Duration

	// ReferenceKey is the secret key of the references that refused clients are
	// shown. With the same key they are the same after a restart. nil means a
	// random key.
	ReferenceKey []byte

	// Failed is called with each error of the guard's limiter, and the request
	// that was judged or settled, as received. The context of a request that is
	// settled may have ended.
	Failed func(r *http.Request, err error)

	// FailOpen lets requests through that the guard could not judge, because its
	// limiter failed. Otherwise they get 503, unless the whole policy is in dry
	// run.
	FailOpen bool

	// Unjudged is called for each request that the guard could not judge, as
	// received. passed says that it reaches the handler nevertheless; otherwise
	// the client gets 503.
	Unjudged func(r *http.Request, passed bool)

	// Reuse lets the server use the memory of refused requests again, and of those whose handler has called
	// NothingKept. It says that these functions, and the handlers around the Handler, keep only texts of a request
	// after they have returned. They keep neither the http.Request, nor its URL, Header or context, nor the
	// ResponseWriter, nor the one that the handler got. It has an effect if the ResponseWriter has a method Reuse(),
	// which the Handler then calls last.
	Reuse bool

	// Now is the clock. nil means that of [NewClock], which steps of the
	// system's clock do not reach.
	Now func() time.Time

	// Wall turns a time of Now into the time that clients are shown. nil means
	// that they are the same.
	Wall func(time.Time) time.Time
}

// DefaultWait is what a zero Options.Wait means.
const DefaultWait = 3 * time.Second

// A Client is the sender of a request.
type Client struct {
	Addr  netip.Addr    // unmapped, no zone; invalid when unknown
	Proxy bool          // Addr is a trusted proxy's own: it may stand for many clients
	Via   netip.Addr    // valid: Addr is provisional, as fairshare.Request.Via
	Bot   fairshare.Bot // as [Options.Bot] identified it; what Options.Client sets here is ignored
}

// peer returns the peer as the client, for servers that trust no proxy.
func peer(r *http.Request) Client {
	a, _ := netip.ParseAddrPort(r.RemoteAddr)
	return Client{Addr: a.Addr().Unmap().WithZone("")}
}
