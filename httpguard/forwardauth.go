package httpguard

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"fairshare"
)

// ForwardAuthOptions change what [ForwardAuth] does. Many goroutines call the functions
// at the same time.
type ForwardAuthOptions struct {
	// Trusts reports whether a peer may describe requests; remoteAddr is that of the
	// http.Request. nil means Unix sockets and loopback addresses.
	Trusts func(remoteAddr string) bool

	// ClientHeader returns the canonical name of the header with the client's address, which
	// every request needs. nil means X-Forwarded-For. It has to be the header that the
	// Handler's Options.Client reads.
	ClientHeader func() string

	// Wrong is called for each request that is answered 400, because the server in front is not
	// configured as it should be. It must return quickly.
	Wrong func(err error)

	// Settlements, if set, keeps requests that pass until the answers are known from the log of the server
	// in front. nil settles them at once.
	Settlements *Settlements
}

// ForwardAuth returns a handler that judges requests for another server: nginx with
// auth_request, forward_auth of Caddy, ForwardAuth of Traefik. It uses the guard of h, which
// counts these requests like its own. The path of the question is the name of the server:
// /nginx, /ingress-nginx, /caddy or /traefik. docs/forward-auth.md describes the headers that each server sends.
//
// The answer to a request that may pass is 204. Caddy and Traefik get the
// answer to a refused request, and pass it on. nginx cannot do that: it gets 403 and a header
// Fairshare-Answer. It sends that header to /nginx/refused and gets the answer there, once.
//
// Nobody waits: [Options.Wait] and [Options.Share] have no effect. The site's answers are not
// known without [ForwardAuthOptions.Settlements]. They count as status 200 with neither a size nor a
// duration, so limits of such things refuse nothing. Slots of concurrent limits are free again
// at once.
func ForwardAuth(h *Handler, opts ForwardAuthOptions) http.Handler {
	if opts.Trusts == nil {
		opts.Trusts = isLocalPeer
	}
	if opts.ClientHeader == nil {
		opts.ClientHeader = func() string { return "X-Forwarded-For" }
	}
	return &forwardAuth{guard: h, options: opts}
}

// isLocalPeer reports whether a peer is on this machine.
func isLocalPeer(remoteAddr string) bool {
	if remoteAddr == "" || remoteAddr == "@" {
		return true // a Unix socket
	}
	peer, err := netip.ParseAddrPort(remoteAddr)
	return err == nil && peer.Addr().Unmap().IsLoopback()
}

type forwardAuth struct {
	guard   *Handler
	options ForwardAuthOptions
	answers keptAnswers
}

// A contract says how a server describes requests, and how it gets the answer.
type contract struct {
	method, target, host string // canonical names of headers; host "": the Host of the question
	absolute             bool   // target is a URL with the host
	collects             bool   // the server collects the answers to refused requests
}

var (
	originalContract  = &contract{method: "X-Original-Method", target: "X-Original-Uri", collects: true}
	ingressContract   = &contract{method: "X-Original-Method", target: "X-Original-Url", absolute: true, collects: true}
	forwardedContract = &contract{method: "X-Forwarded-Method", target: "X-Forwarded-Uri", host: "X-Forwarded-Host"}

	contracts = map[string]*contract{
		"/nginx": originalContract, "/ingress-nginx": ingressContract,
		"/caddy": forwardedContract, "/traefik": forwardedContract,
	}
)

const (
	refusedPath = "/nginx/refused"
	answerField = "Fairshare-Answer"
)

// ServeHTTP answers one question.
func (a *forwardAuth) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !a.options.Trusts(r.RemoteAddr) {
		a.wrong(w, fmt.Errorf("a question came from %s, which is not a trusted proxy: "+
			"name it in trusted_proxies if it is your server", r.RemoteAddr))
		return
	}
	if r.URL.Path == refusedPath {
		a.sendKept(w, r)
		return
	}
	c := contracts[r.URL.Path]
	if c == nil {
		a.wrong(w, fmt.Errorf("a question came to the path %.40q: "+
			"it has to be /nginx, /ingress-nginx, /caddy or /traefik", r.URL.Path))
		return
	}
	reference := r.Header[referenceField]
	judged, err := c.describe(r, a.options.ClientHeader())
	if err != nil {
		a.wrong(w, fmt.Errorf("%s: %w", r.URL.Path, err))
		return
	}
	answer := &authAnswer{ResponseWriter: w, settlements: a.options.Settlements}
	if c.collects {
		if len(reference) == 1 && answer.settlements.isWaiting(reference[0]) {
			// nginx asks again after an internal redirect of a request that has passed.
			w.Header()[referenceField] = reference
			w.WriteHeader(http.StatusNoContent)
			return
		}
		answer.refusal = &keptAnswer{header: make(http.Header, 8)}
	}
	a.guard.current.Load().serve(answer, judged, nil)
	if !answer.written { // net/http would answer 200, and the request would pass
		answer.WriteHeader(http.StatusServiceUnavailable)
	}
	if answer.refusal != nil && answer.refusal.status != 0 {
		header := w.Header()
		header["Cache-Control"] = noStore
		header[answerField] = []string{a.answers.add(answer.refusal)}
		w.WriteHeader(http.StatusForbidden)
	}
}

// wrong answers a question that cannot be judged. The client must not pass: a client that can
// make its request look wrong would be judged by no rule.
func (a *forwardAuth) wrong(w http.ResponseWriter, err error) {
	if a.options.Wrong != nil {
		a.options.Wrong(err)
	}
	header := w.Header()
	header["Cache-Control"] = noStore
	header["Content-Type"] = []string{textType}
	w.WriteHeader(http.StatusBadRequest)
	fmt.Fprintf(w, "fairshare cannot judge this request: %v\n", err)
}

// describe returns the request that a question describes.
func (c *contract) describe(r *http.Request, clientHeader string) (*http.Request, error) {
	method, err := single(r.Header, c.method)
	if err != nil {
		return nil, err
	}
	if len(method) > 64 || strings.ContainsFunc(method, func(c rune) bool {
		return c <= ' ' || c >= 0x7f || strings.ContainsRune(`()<>@,;:\"/[]?={}`, c)
	}) {
		return nil, fmt.Errorf("%s is not a method: %.64q", c.method, method)
	}
	target, err := single(r.Header, c.target)
	if err != nil {
		return nil, err
	}
	if strings.ContainsFunc(target, func(c rune) bool { return c <= ' ' || c == 0x7f }) {
		return nil, fmt.Errorf("%s has a space or a control character", c.target)
	}
	host := r.Host
	switch {
	case c.absolute:
		_, rest, found := strings.Cut(target, "://")
		slash := strings.IndexByte(rest, '/')
		if !found || slash < 1 {
			return nil, fmt.Errorf("%s is not a URL with a host and a path", c.target)
		}
		host, target = rest[:slash], rest[slash:]
	case c.host != "":
		if host, err = single(r.Header, c.host); err != nil {
			return nil, err
		}
	}
	if len(r.Header[clientHeader]) == 0 {
		return nil, missing(clientHeader)
	}
	judged := r.WithContext(r.Context())
	judged.Method, judged.Host, judged.RequestURI = method, host, target
	judged.Body, judged.ContentLength, judged.TransferEncoding = http.NoBody, 0, nil
	if judged.URL, err = url.ParseRequestURI(target); err != nil {
		judged.URL = &url.URL{Path: target} // an odd path; the rules use the target
	}
	for _, name := range describing {
		if name != clientHeader {
			delete(judged.Header, name)
		}
	}
	return judged, nil
}

// describing are the headers that no rule sees. The client's own headers of these names do not
// come from the client any more.
var describing = [...]string{"X-Original-Method", "X-Original-Uri", "X-Original-Url", "X-Forwarded-Method",
	"X-Forwarded-Uri", answerField, referenceField}

// referenceField is the header by which a line of a log finds the request that it is about.
const referenceField = "Fairshare-Reference"

// single returns the value of a header that has to be there once.
func single(header http.Header, name string) (string, error) {
	switch values := header[name]; {
	case len(values) == 0 || len(values) == 1 && values[0] == "":
		return "", missing(name)
	case len(values) > 1:
		return "", fmt.Errorf("the header %s came %d times: the server in front has to replace the client's own, "+
			"see docs/forward-auth.md", name, len(values))
	default:
		return values[0], nil
	}
}

func missing(name string) error {
	return fmt.Errorf("the header %s is missing: the server in front has to set it, see docs/forward-auth.md", name)
}

// An authAnswer is where the guard writes the answer to a question.
type authAnswer struct {
	http.ResponseWriter
	refusal *keptAnswer // nil: the server in front passes the answer on
	written bool        // a status was written

	settlements *Settlements // nil: requests are settled at once
}

// Header implements [http.ResponseWriter].
func (a *authAnswer) Header() http.Header {
	if a.refusal != nil {
		return a.refusal.header
	}
	return a.ResponseWriter.Header()
}

// WriteHeader implements [http.ResponseWriter], for refusals. A status of 2xx would let the
// request pass.
func (a *authAnswer) WriteHeader(status int) {
	if status < 200 || a.written {
		return
	}
	a.written = true
	switch {
	case a.refusal != nil:
		a.refusal.status = status
	case status < 300:
		a.ResponseWriter.WriteHeader(http.StatusTooManyRequests)
	default:
		a.ResponseWriter.WriteHeader(status)
	}
}

// Write implements [io.Writer].
func (a *authAnswer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	if a.refusal == nil {
		return a.ResponseWriter.Write(p)
	}
	a.refusal.body = append(a.refusal.body, p...)
	return len(p), nil
}

// authorize answers a question about a request that may pass, and settles the request at once or
// when the answer is known. An attempt to log in is not noted: it would hold a place until its result
// is known.
func (g *generation) authorize(r *http.Request, vis *visit, v *fairshare.Verdict) {
	g.reportDryRun(vis, v)
	passed := &passedRequest{gen: g, verdict: *v, completion: Completion{
		Client: Client{Addr: vis.req.Addr, Proxy: vis.req.Proxy, Via: vis.req.Via, Bot: vis.req.Bot},
		HTTP:   r, Time: vis.req.Time, Method: vis.req.Method, Host: vis.req.Host, Path: vis.req.Path,
		UserAgent: vis.req.UserAgent, Owner: vis.req.Owner, Fleet: vis.req.Fleet,
	}}
	if s := vis.auth.settlements; s != nil {
		vis.auth.ResponseWriter.Header()[referenceField] = []string{s.add(passed)}
	} else {
		passed.settle(fairshare.Outcome{Status: http.StatusOK})
	}
	vis.auth.written = true
	vis.auth.ResponseWriter.WriteHeader(http.StatusNoContent)
	g.reportAnswered(vis, v, func(a *Access) { a.Status = http.StatusNoContent })
	g.release(vis)
}

// A keptAnswer is the answer to a refused request, until nginx collects it.
type keptAnswer struct {
	status int // 0: none was written
	header http.Header
	body   []byte
}

// Bounds of the answers that are kept. A collected answer is removed.
const (
	mostKept      = 8192
	mostKeptBytes = 16 << 20 // of bodies
)

// keptAnswers are the latest answers that were not collected. The zero value is empty.
type keptAnswers struct {
	mu      sync.Mutex
	answers map[string]*keptAnswer
	order   []string // of all that were kept, the oldest first; some are collected
	bytes   int
}

// add keeps an answer and returns what it is collected with. This begins with the status and
// the Retry-After, so that a lost answer still has these.
func (k *keptAnswers) add(answer *keptAnswer) (token string) {
	var random [16]byte
	rand.Read(random[:]) // it never fails
	retry := answer.header["Retry-After"]
	if len(retry) == 0 {
		retry = []string{""}
	}
	token = fmt.Sprintf("%d-%s-%s", answer.status, retry[0], hex.EncodeToString(random[:]))
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.answers == nil {
		k.answers = make(map[string]*keptAnswer)
	}
	for len(k.order) > 0 && (len(k.order) >= mostKept || k.bytes+len(answer.body) > mostKeptBytes) {
		k.remove(k.order[0])
		k.order = k.order[1:]
	}
	k.answers[token], k.order, k.bytes = answer, append(k.order, token), k.bytes+len(answer.body)
	return token
}

// collect removes and returns an answer; nil if there is none.
func (k *keptAnswers) collect(token string) *keptAnswer {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.remove(token)
}

func (k *keptAnswers) remove(token string) *keptAnswer {
	answer := k.answers[token]
	if answer != nil {
		delete(k.answers, token)
		k.bytes -= len(answer.body)
	}
	return answer
}

// sendKept sends an answer that nginx collects for its client.
func (a *forwardAuth) sendKept(w http.ResponseWriter, r *http.Request) {
	token, err := single(r.Header, answerField)
	if err != nil {
		a.wrong(w, fmt.Errorf("%s: %w", refusedPath, err))
		return
	}
	if answer := a.answers.collect(token); answer != nil {
		header := w.Header()
		for name, values := range answer.header {
			header[name] = values
		}
		w.WriteHeader(answer.status)
		w.Write(answer.body)
		return
	}
	status, retryAfter, err := parseToken(token)
	if err != nil {
		a.wrong(w, fmt.Errorf("%s: %w", refusedPath, err))
		return
	}
	header := w.Header()
	header["Cache-Control"], header["Content-Type"] = noStore, []string{textType}
	if retryAfter != "" {
		header["Retry-After"] = []string{retryAfter}
	}
	w.WriteHeader(status)
	fmt.Fprintf(w, "%d %s\n", status, http.StatusText(status))
}

// parseToken returns what a token says about an answer that was not kept.
func parseToken(token string) (status int, retryAfter string, err error) {
	first, rest, _ := strings.Cut(token, "-")
	retryAfter, _, found := strings.Cut(rest, "-")
	status, err = strconv.Atoi(first)
	if err != nil || !found || status < 200 || status > 599 ||
		strings.ContainsFunc(retryAfter, func(c rune) bool { return c < '0' || c > '9' }) {
		return 0, "", errors.New(answerField + " is not what fairshare has sent")
	}
	return status, retryAfter, nil
}
