package httpguard

import (
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"fairshare"
)

const (
	formAhead  = 64 << 10         // bytes of a form that are read before the request is judged
	formFree   = 4 << 10          // of these, not counted in formBudget
	formBudget = 64 << 20         // bytes of the forms of all requests together
	formWait   = 20 * time.Second // for the client to send the form
)

// serveForm judges a request by the fields of its body, too.
func (g *generation) serveForm(w http.ResponseWriter, r *http.Request,
	next func(http.ResponseWriter, *http.Request) error) error {
	_, elsewhere := w.(*authAnswer) // the server in front has the body
	if !elsewhere && (r.ContentLength == 0 || r.Body == nil || r.Body == http.NoBody) {
		return g.judge(w, r, fairshare.Form{}, nil, next)
	}
	kind, boundary := kindOfForm(r.Method, r.Header)
	switch {
	case kind == noForm:
		return g.judge(w, r, fairshare.Form{}, nil, next)
	case kind == unclearForm || elsewhere || !g.Forms || r.ContentLength > formAhead:
		return g.judge(w, r, fairshare.Form{Unknown: true}, nil, next)
	}
	body := &formBody{ReadCloser: r.Body, budget: &g.formBytes}
	defer body.drop()
	whole := body.read(w, r)
	r.Body = body
	var form fairshare.Form
	if whole {
		form.Encoded, whole = formFields(kind, boundary, body.begun)
	}
	if !whole {
		form = fairshare.Form{Unknown: true}
	}
	return g.judge(w, r, form, nil, next)
}

// A formBody is the body of a request whose beginning has been read. It may be read by
// another goroutine than its owner.
type formBody struct {
	io.ReadCloser // the rest
	budget        *atomic.Int64

	mu      sync.Mutex
	begun   []byte // the beginning that is not read again yet
	err     error  // what follows begun; nil: the rest
	counted bool   // in budget
}

// read reads the beginning, and reports whether that is the complete body. A client that is
// too slow is cut off, as http.Server.ReadTimeout does: then its body ends with an error. If
// the server has such a timeout, that is the one that counts.
func (b *formBody) read(w http.ResponseWriter, r *http.Request) (whole bool) {
	server, _ := r.Context().Value(http.ServerContextKey).(*http.Server)
	if server == nil || server.ReadTimeout <= 0 {
		client := http.NewResponseController(w)
		if client.SetReadDeadline(time.Now().Add(formWait)) == nil {
			defer func() {
				if b.err == nil || b.err == io.EOF { // otherwise nobody reads on
					client.SetReadDeadline(time.Time{})
				}
			}()
		}
	}
	space := make([]byte, formFree)
	if n := r.ContentLength; n > 0 && n < formFree {
		space = space[:n+1] // room for the end
	}
	n := 0
	for b.err == nil {
		if n == len(space) {
			if n > formAhead || !b.take() {
				break
			}
			space = append(make([]byte, 0, formAhead+1), space...)[:formAhead+1]
		}
		var more int
		more, b.err = b.ReadCloser.Read(space[n:])
		n += more
	}
	b.begun = space[:n]
	return b.err == io.EOF && n <= formAhead
}

// take counts the memory of a long form, or reports that there is none.
func (b *formBody) take() bool {
	if b.budget.Add(formAhead) > formBudget {
		b.budget.Add(-formAhead)
		return false
	}
	b.counted = true
	return true
}

// drop gives the memory back.
func (b *formBody) drop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.begun = nil; b.counted {
		b.counted = false
		b.budget.Add(-formAhead)
	}
}

// Read reads the beginning again, and then the rest.
func (b *formBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	if n := copy(p, b.begun); n > 0 || len(p) == 0 {
		defer b.mu.Unlock()
		b.begun = b.begun[n:]
		if len(b.begun) > 0 {
			return n, nil
		}
		return n, b.err
	}
	b.mu.Unlock()
	b.drop()
	if b.err != nil {
		return 0, b.err
	}
	return b.ReadCloser.Read(p)
}
