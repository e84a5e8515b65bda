package acmecerts

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"unicode"
)

const (
	maxAnswer  = 1 << 20 // of the CA
	maxProblem = 400     // bytes of a problem in the log
)

// A transport sends the requests of one host to the CA, until ctx ends. It
// remembers the last problem: autocert does not return why the CA refused a name,
// and nothing of failed renewals.
type transport struct {
	base http.RoundTripper
	ctx  context.Context

	mu          sync.Mutex
	problem     string
	unreachable bool
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	defer cancel() // the answer has been read
	defer context.AfterFunc(t.ctx, cancel)()
	resp, err := t.base.RoundTrip(req.WithContext(ctx))
	if err == nil {
		var body []byte
		body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		resp.Body.Close()
		resp.Body = io.NopCloser(bytes.NewReader(body))
		if problem := problemOf(resp.StatusCode, body); problem != "" {
			t.note(problem, false)
		}
	}
	if err != nil {
		t.note("the CA at "+req.URL.Host+" does not answer: "+clean(err.Error()), true)
		return nil, err
	}
	return resp, nil
}

func (t *transport) note(problem string, unreachable bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.problem, t.unreachable = problem, unreachable
}

// takeProblem returns the last problem, and forgets it.
func (t *transport) takeProblem() (problem string, unreachable bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	problem, unreachable = t.problem, t.unreachable
	t.problem, t.unreachable = "", false
	return problem, unreachable
}

// problemOf returns the problem that an answer of the CA contains: a document of
// RFC 7807, or an authorization with a failed challenge.
func problemOf(status int, body []byte) string {
	type problem struct{ Type, Detail string }
	var doc struct {
		problem
		Challenges []struct{ Error *problem }
	}
	if json.Unmarshal(body, &doc) != nil {
		if status >= 400 {
			return "the CA answered " + http.StatusText(status)
		}
		return ""
	}
	if status >= 400 {
		if strings.HasSuffix(doc.Type, ":badNonce") { // part of the protocol: sent again
			return ""
		}
		return "the CA answered: " + clean(cmp.Or(doc.Detail, http.StatusText(status)))
	}
	for _, c := range doc.Challenges {
		if c.Error != nil {
			return "the CA could not check the name: " + clean(c.Error.Detail)
		}
	}
	return ""
}

// clean makes a text of another machine fit for one line of the log.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	if len(s) > maxProblem {
		s = strings.ToValidUTF8(s[:maxProblem], "") + "…"
	}
	return s
}
