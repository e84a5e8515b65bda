package logins

import (
	"bytes"
	"regexp"

	"fairshare"
)

// mostCalls is how many calls one XML-RPC request of an unknown client may hold. Applications ask what the site can do
// before they log in, and that is one call.
const mostCalls = 5

// TakesCalls reports whether a request is for XML-RPC, of which one request may hold many calls
// (system.multicall). Then [Attempt.Called] wants the beginning of its body.
func TakesCalls(req *fairshare.Request) bool {
	if req.Method != "POST" {
		return false
	}
	var buf [maxPath]byte
	_, as := recognize(req, buf[:0])
	return as.style == rpc
}

// callWithPassword matches a call that WordPress answers without a fault only if its user name and password are right.
var callWithPassword = regexp.MustCompile(
	`^\s*(<\?xml[^<>]*\?>\s*)?<methodCall>\s*<methodName>\s*(wp|metaWeblog|blogger)\.[A-Za-z]+\s*</methodName>`)

// Called notes the body of an XML-RPC request before it is judged; whole is false if more of it may follow. A request
// with many calls is in excess unless the client has logged in before.
func (a *Attempt) Called(req *fairshare.Request, body []byte, whole bool) {
	if !a.IsRPC() {
		return
	}
	a.proves = whole && bytes.Count(body, []byte("<methodName")) == 1 && callWithPassword.Match(body)
	if a.variant || a.class <= young {
		return
	}
	// Each call is a struct, and XML has one spelling of its name. What is not ASCII may be another encoding.
	if !whole || bytes.Count(body, []byte("<struct")) > mostCalls || bytes.IndexByte(body, 0) >= 0 {
		req.Excess = true
	}
}

// IsRPC reports whether an attempt is an XML-RPC request. Its answer should not be compressed, and [Faults] counts
// the failures in it.
func (a *Attempt) IsRPC() bool {
	return a != nil && a.question == attempt && a.form != nil && a.form.style == rpc
}

// Faults counts the calls of an XML-RPC answer that failed because of wrong credentials. The zero Faults are ready.
type Faults struct {
	Denied int  // so many calls
	Any    bool // some call failed, for whatever reason

	scan   faultScan
	begun  [128]byte // of the answer
	length int       // of begun
}

// A faultScan looks for the next code of a fault.
type faultScan struct {
	matched int // bytes of faultName
	rest    int // bytes in which the code has to come
	inTag   bool
	hasCode bool
	code    int
	sign    int
}

const faultName = "faultCode"

// answerOfRPC matches the beginning of an XML-RPC answer.
var answerOfRPC = regexp.MustCompile(`^\s*(<\?xml[^<>]*\?>\s*)?<methodResponse\b`)

// isAnswer reports whether an answer is one of XML-RPC. xmlrpc.php?rsd, for example, is not.
func (f *Faults) isAnswer() bool { return answerOfRPC.Match(f.begun[:f.length]) }

// Add counts in the next part of an answer.
func (f *Faults) Add(p []byte) {
	f.length += copy(f.begun[f.length:], p)
	for len(p) > 0 {
		if f.scan.rest == 0 && f.scan.matched == 0 {
			i := bytes.IndexByte(p, faultName[0])
			if i < 0 {
				return
			}
			p = p[i:]
		}
		f.next(p[0])
		p = p[1:]
	}
}

func (f *Faults) next(c byte) {
	s := &f.scan
	if s.rest == 0 {
		switch {
		case c == faultName[s.matched]:
			if s.matched++; s.matched == len(faultName) {
				f.Any, *s = true, faultScan{rest: 128, sign: 1}
			}
		case c == faultName[0]:
			s.matched = 1
		default:
			s.matched = 0
		}
		return
	}
	s.rest--
	isDigit := !s.inTag && c >= '0' && c <= '9'
	switch {
	case isDigit:
		s.hasCode, s.code = true, min(s.code*10+int(c-'0'), 1<<20)
	case s.hasCode:
		if isDenied(s.code * s.sign) {
			f.Denied++
		}
		*s = faultScan{}
	case c == '<':
		s.inTag = true
	case c == '>':
		s.inTag = false
	case c == '-' && !s.inTag:
		s.sign = -1
	}
}

// isDenied reports whether a fault may mean wrong credentials: not one of pingbacks, of the protocol, or one that
// WordPress answers to clients that are logged in.
func isDenied(code int) bool {
	switch code {
	case 0, 16, 17, 32, 33, 48, 49, 50, 400, 401, 404, 500:
		return false
	}
	return code > -32000
}
