package proxy

import (
	"net/http"
	"sync/atomic"
)

// silentAnswers is how many answers without a report cause a warning: some answers,
// such as files and errors, never have one.
const silentAnswers = 100

// A silence counts answers without an expected report. It ends with the first
// report, or with the warning.
type silence struct{ answers atomic.Int32 }

// count counts one more answer, and returns true once when a warning is due. It
// ignores answers of HTTP/2, which can have trailers without announcing them.
func (s *silence) count(resp *http.Response, header string, reports func(lines []string) bool) bool {
	if s.answers.Load() >= silentAnswers || resp.ProtoMajor > 1 {
		return false
	}
	if _, announced := resp.Trailer[header]; announced || reports(resp.Header[header]) {
		s.answers.Store(silentAnswers)
		return false
	}
	return s.answers.Add(1) == silentAnswers
}

// noteSilence logs once that the upstream does not report what the policy expects.
// It must be called before readCosts, which removes reports.
func (s *setup) noteSilence(up *upstream, resp *http.Response) {
	if s.Timing != "" && s.untimed.count(resp, timingHeader, func(lines []string) bool {
		_, ok := timing(lines, s.Timing)
		return ok
	}) {
		s.Log.Printf(
			"warning: none of %d answers of the upstream reported CPU time, such as Server-Timing: %s;dur=12.5: requests are charged the time they take; hint: curl -i %s://%s shows its headers",
			silentAnswers, s.Timing, up.scheme, up.url.Host)
	}
	if s.CostHeader != "" && s.uncosted.count(resp, s.CostHeader, func(lines []string) bool {
		_, ok := cost(lines, s.MaxCost)
		return ok
	}) {
		s.Log.Printf(
			"warning: none of %d answers of the upstream reported a cost, such as %s: 3: each request is charged 1; hint: curl -i %s://%s shows its headers",
			silentAnswers, s.CostHeader, up.scheme, up.url.Host)
	}
}
