package proxy

import (
	"net/http"
	"sync/atomic"
)

// silentAnswers is how many answers have to tell nothing before that is said:
// some, as files and errors, never do.
const silentAnswers = 100

// A silence counts answers that do not tell what the upstream was to tell. It
// ends with the first that does, or when it is said.
type silence struct{ answers atomic.Int32 }

// breaks counts one more answer, and returns true when it is time to say that
// none tells. HTTP/2 may tell behind an answer without a word before it, and is
// passed over.
func (s *silence) breaks(resp *http.Response, header string, told func(lines []string) bool) bool {
	if s.answers.Load() >= silentAnswers || resp.ProtoMajor > 1 {
		return false
	}
	if _, announced := resp.Trailer[header]; announced || told(resp.Header[header]) {
		s.answers.Store(silentAnswers)
		return false
	}
	return s.answers.Add(1) == silentAnswers
}

// noteSilence says once when the upstream does not tell what the policy waits
// for. Before told, which takes it out.
func (s *setup) noteSilence(resp *http.Response) {
	if s.Timing != "" && s.untimed.breaks(resp, timingHeader, func(lines []string) bool {
		_, ok := timing(lines, s.Timing)
		return ok
	}) {
		s.Log.Printf("warning: of %d answers of the upstream none told CPU time, as Server-Timing: %s;dur=12.5: requests are charged the time they take; hint: curl -i %s://%s shows what it sends",
			silentAnswers, s.Timing, s.scheme, s.Upstream.Host)
	}
	if s.CostHeader != "" && s.uncosted.breaks(resp, s.CostHeader, func(lines []string) bool {
		_, ok := cost(lines, s.MaxCost)
		return ok
	}) {
		s.Log.Printf("warning: of %d answers of the upstream none told a cost, as %s: 3: each request is charged 1; hint: curl -i %s://%s shows what it sends",
			silentAnswers, s.CostHeader, s.scheme, s.Upstream.Host)
	}
}
