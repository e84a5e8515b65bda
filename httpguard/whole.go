package httpguard

import "net/http"

// A WholeAnswer is an answer of the upstream of which all is in memory. [AnswerWhole] keeps none of it.
type WholeAnswer struct {
	Status      int      // 200 to 999, except those without a body, such as 204 and 304
	Fields      []byte   // the lines of its head, with the length of the body, without Connection and VisitorField
	Dated       bool     // Fields has a Date
	ContentType string   // the first one in Fields; "" without one
	SetCookie   []string // all values in Fields
	Body        []byte
}

// AwaitsWhole reports whether [AnswerWhole] takes most short answers to the request that w answers. It is false if the
// server takes none, if an answer must be looked at field by field, and after the answer has begun. Only the handler's
// own goroutine may call it.
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

// AnswerWhole writes the upstream's answer, as WriteHeader and Write would, at less cost. AwaitsWhole must have
// returned true. If AnswerWhole returns false, it has done nothing: the answer is one without an end, or longer than
// the server takes, which are some 13 KiB with the head in the lane of serve. The handler calls it in its own
// goroutine, writes nothing else, and returns at once: the upstream's part of the request ends only then.
func AnswerWhole(w http.ResponseWriter, a *WholeAnswer) bool {
	res := responseOf(w)
	if res == nil || !res.x.awaitsWhole || res.status.Load() != 0 || res.own || isEventStream(a.ContentType) ||
		!res.w.(answerWriter).WriteAnswer(a.Status, a.Fields, a.Body, a.Dated) {
		return false
	}
	res.status.Store(int32(a.Status))
	res.bytes.Store(int64(len(a.Body)))
	x := res.x
	x.isWhole, x.contentType = true, a.ContentType
	x.noteSigns(a.Status, a.ContentType, a.SetCookie)
	return true
}
