package serve

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"fairshare/httpguard"
	"fairshare/internal/cli"
	"fairshare/internal/prose"
	"fairshare/internal/setup"
	"fairshare/policyfile"
)

const (
	defaultAuthListen = "127.0.0.1:9180"
	// authHeaderBytes is for what the server in front adds to the largest header that it accepts.
	authHeaderBytes = 32 << 10
)

// useForAuth prepares a policy file for the questions of another server. Its faults are written
// to w.
func (f *Flags) useForAuth(file *policyfile.File, w io.Writer) error {
	if err := file.CheckForwardAuth(f.SettleFrom != ""); err != nil {
		return setup.PrintFaults(w, err)
	}
	if file.IgnoreUnnamed && len(file.TrustedProxies) == 0 {
		return cli.Hint(errors.New("trusted_proxies is empty, so no server may ask"),
			"remove it to trust servers on this machine, or name the address of your server")
	}
	if len(file.TrustedProxies) == 0 {
		file.TrustedProxies = []string{"loopback", "unix"}
	}
	file.Share, file.ProxyProtocol = nil, false
	file.UpstreamCPU, file.UpstreamCost = policyfile.UpstreamCPU{}, policyfile.UpstreamCost{}
	return nil
}

// forwardAuth returns the handler of questions.
func (s *server) forwardAuth() http.Handler {
	return httpguard.ForwardAuth(s.guard, httpguard.ForwardAuthOptions{
		Trusts:       func(peer string) bool { return s.runtime.Load().Clients.TrustsPeer(peer) },
		Settlements:  s.settler.requests(),
		ClientHeader: func() string { return http.CanonicalHeaderKey(s.runtime.Load().Clients.Header()) },
		Wrong: func(err error) {
			if more, print := s.wrongQuestions.add(time.Now()); print {
				s.log.Printf("error: %v%s", err, more)
			}
		},
	})
}

// wrongEvery is how often an error in the configuration of the server in front is written.
const wrongEvery = 10 * time.Second

// wrongQuestions bounds the messages about questions that cannot be judged.
type wrongQuestions struct {
	mu      sync.Mutex
	printed time.Time
	omitted int
}

// add returns whether to write a message now, and what to add to it.
func (q *wrongQuestions) add(now time.Time) (more string, print bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if now.Sub(q.printed) < wrongEvery {
		q.omitted++
		return "", false
	}
	if q.omitted > 0 {
		more = fmt.Sprintf(" (and %s before it)", prose.Plural(q.omitted, "other"))
	}
	q.printed, q.omitted = now, 0
	return more, true
}

// introduceAuth writes the messages at the start that serve does not have.
func (s *server) introduceAuth(print func(string, ...any)) {
	rt := s.runtime.Load()
	print("%s answers for another server, %s; docs/forward-auth.md has its configuration", s.address(), rt.mode())
	logged, what := s.settler != nil, "errors, failed logins, time, bytes or requests in progress"
	if logged {
		print("settle-from: %s", s.settler.tail)
		what = "failed logins, requests in progress or a busy site"
	}
	if n := rt.File.IdleInForwardAuth(logged); n > 0 {
		print("answers: fairshare auth does not see the site's answers, so %s that count %s refuse nothing; "+
			"fairshare serve enforces them", ruleCount(n), what)
	}
	if len(rt.upstreams()) == 0 {
		print("robots.txt: not read; upstream: in the policy file says where the site is")
	}
}
