package httpguard

import (
	"io"
	"net/http"
	"sync"
	"time"

	"fairshare"
	"fairshare/logins"
	"fairshare/visitor"
)

// noteLogin tells the answer to an attempt to log in as soon as its header is known, if
// its length says nothing. A client that has logged in gets a visitor's cookie: it stays
// known when its address changes, or when others guess from the same address.
func (x *Exchange) noteLogin(status int, header http.Header) {
	if x.login == nil || status < 300 && len(header["Set-Cookie"]) == 0 {
		return
	}
	answer := logins.Answer{Time: x.gen.Now(), Status: status, Live: true, SetCookie: header["Set-Cookie"]}
	x.login.describe(&answer, x.completion.HTTP)
	if to := header["Location"]; len(to) > 0 {
		answer.Location = to[0]
	}
	if status < 300 && !x.login.IsProved(&answer) {
		return // the length tells
	}
	if x.login.Answered(&answer) != logins.Succeeded || x.completion.HTTP.Method != http.MethodPost ||
		x.gen.Visitors == nil || x.gen.guard.Policy().DryRun {
		return
	}
	now := x.gen.Now()
	found := x.gen.Visitors.Read(x.visitorCookie, now, x.gen.wall(now))
	if found.ID != 0 {
		return
	}
	req := fairshare.Request{Addr: x.completion.Addr, Via: x.completion.Via, Proxy: x.completion.Proxy,
		Owner: x.completion.Owner}
	if signed, ok := x.gen.signVisitor(header, x.secure, &req, fairshare.Visitor{}, visitor.Change{}); ok {
		x.gen.Logins.RememberVisitor(x.login.Attempt, &signed)
	}
}

// endLogin tells the rest of the answer to an attempt to log in, and reports whether it
// failed.
func (x *Exchange) endLogin(now time.Time) bool {
	if x.login == nil {
		return false
	}
	encoded := len(x.response.Header()["Content-Encoding"]) > 0
	answer := logins.Answer{Time: now, Status: x.response.outcome(), Bytes: x.response.bytes.Load(), Encoded: encoded,
		Live: true}
	x.login.describe(&answer, x.completion.HTTP)
	if tap := x.response.tap; tap != nil && tap.faults != nil && !encoded {
		answer.Calls = tap.faults
	}
	return x.login.Answered(&answer) == logins.Failed
}

// watchLogin watches the body of an attempt to log in, and the answer if it tells more than its
// status. It returns the request to pass on.
func (x *Exchange) watchLogin(r *http.Request) *http.Request {
	if x.login.IsRPC() {
		x.response.tap = &tap{faults: new(logins.Faults)}
		r = r.WithContext(r.Context()) // a shallow copy
		r.Header = r.Header.Clone()
		r.Header.Del("Accept-Encoding") // a compressed answer tells nothing
		return r
	}
	if x.login.WantsBody() && r.Body != nil && r.Body != http.NoBody {
		r = r.WithContext(r.Context())
		x.login.body = &loginBody{ReadCloser: r.Body}
		r.Body = x.login.body
	}
	return r
}

// A watchedLogin is an attempt, and the beginning of the body that it sent.
type watchedLogin struct {
	*logins.Attempt
	body *loginBody // nil if there is none, or if it tells nothing
}

// A loginBody is a request's body of which the beginning is kept. It may be read by another goroutine
// than its owner.
type loginBody struct {
	io.ReadCloser

	mu    sync.Mutex
	begun []byte // at most logins.MaxBody
	whole bool   // nothing follows
}

// Read implements [io.Reader].
func (b *loginBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	kept := min(n, logins.MaxBody-len(b.begun))
	b.begun = append(b.begun, p[:kept]...)
	b.whole = err == io.EOF && kept == n && (b.whole || len(b.begun) < logins.MaxBody)
	return n, err
}

// describe sets the body of an answer's request.
func (l *watchedLogin) describe(answer *logins.Answer, r *http.Request) {
	b := l.body
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	answer.Body, answer.BodyCut = string(b.begun), !b.whole && int64(len(b.begun)) != r.ContentLength
	if types := r.Header["Content-Type"]; len(types) > 0 {
		answer.BodyType = types[0]
	}
}

// serveCalls judges an XML-RPC request by the number of calls in its body, too.
func (g *generation) serveCalls(w http.ResponseWriter, r *http.Request,
	next func(http.ResponseWriter, *http.Request) error) error {
	body := &formBody{ReadCloser: r.Body, budget: &g.formBytes}
	defer body.drop()
	whole := body.read(w, r)
	calls := &calls{body.begun, whole}
	r.Body = body
	form := fairshare.Form{}
	if g.testsForms {
		if kind, boundary := kindOfForm(r.Method, r.Header); kind != noForm {
			form.Encoded, form.Unknown = "", true
			if whole && kind != unclearForm {
				fields, ok := formFields(kind, boundary, body.begun)
				form = fairshare.Form{Encoded: fields, Unknown: !ok}
			}
		}
	}
	return g.judge(w, r, form, calls, next)
}

// calls are the beginning of the body of an XML-RPC request.
type calls struct {
	begun []byte
	whole bool
}

// hasCalls reports whether a request is for XML-RPC and has a body.
func (g *generation) hasCalls(w http.ResponseWriter, r *http.Request) bool {
	if g.Logins == nil || r.Method != http.MethodPost || r.ContentLength == 0 || r.Body == nil ||
		r.Body == http.NoBody {
		return false
	}
	if _, elsewhere := w.(*authAnswer); elsewhere {
		return false // the server in front has the body
	}
	req, target := fairshare.Request{Method: r.Method}, r.RequestURI
	if target == "" { // made inside this process
		target = r.URL.RequestURI()
	}
	req.SetTarget(target)
	return logins.TakesCalls(&req)
}
