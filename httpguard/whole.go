package httpguard

import "net/http"

// A WholeAnswer is an answer of the upstream of which all is known.
type WholeAnswer struct {
	Status  int      // at least 200
	Fields  []byte   // the lines of its head, with the length of the body, without Connection and VisitorField
	Dated   bool     // Fields has a Date
	Kind    string   // the first Content-Type; "" without one
	Cookies []string // the values of Set-Cookie
	Body    []byte
}

// AwaitsWhole reports whether [AnswerWhole] takes most answers to the request that w answers.
func AwaitsWhole(w http.ResponseWriter) bool {
	res := responseOf(w)
	if res == nil || !res.alone || res.status.Load() != 0 || res.own || res.hijacked || res.head || res.tap != nil {
		return false
	}
	x := res.x
	if _, ok := res.w.(answerWriter); !ok || x.login != nil || len(res.w.Header()) > 0 {
		return false
	}
	x.awaitsWhole = x.gen.Visitors == nil || x.gen.guard.Policy().DryRun || !isNavigation(x.completion.HTTP)
	return x.awaitsWhole
}

// AnswerWhole writes the upstream's answer, as WriteHeader and Write would, at less cost. The upstream's part of the
// request ends when the handler returns, which it does at once. It calls AnswerWhole in its own goroutine, and writes
// nothing else. AwaitsWhole must have returned true. If AnswerWhole returns false, it has done nothing.
func AnswerWhole(w http.ResponseWriter, a *WholeAnswer) bool {
	res := responseOf(w)
	if res == nil || !res.x.awaitsWhole || res.status.Load() != 0 || res.own || isEventStream(a.Kind) ||
		!res.w.(answerWriter).WriteAnswer(a.Status, a.Fields, a.Body, a.Dated) {
		return false
	}
	res.status.Store(int32(a.Status))
	res.bytes.Store(int64(len(a.Body)))
	x := res.x
	x.isWhole, x.kind = true, a.Kind
	x.noteSigns(a.Status, a.Kind, a.Cookies)
	return true
}
