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

// answersQuestions reports whether another server asks about its requests.
func (f *Flags) answersQuestions() bool { return f.Auth || f.AuthListen != "" }

// checkAuthFlags returns an error for flags that do not fit together.
func (f *Flags) checkAuthFlags() error {
	if f.AuthListen != "" {
		if err := checkListen(f.AuthListen); err != nil {
			return wrongFlag("--auth", err, listenHint)
		}
	}
	if f.SettleFrom != "" && !f.answersQuestions() {
		return wrongFlag("--settle-from", errors.New("there is no --auth"),
			"--auth 127.0.0.1:9180 gives the server that writes this log an address for its questions")
	}
	return nil
}

// useForAuth prepares a policy file for the questions of another server. Its faults are written
// to w.
func (f *Flags) useForAuth(file *policyfile.File, w io.Writer) error {
	if err := file.CheckForwardAuth(f.SettleFrom != "", !f.Auth); err != nil {
		return setup.PrintFaults(w, err)
	}
	if file.IgnoreUnnamed && len(file.TrustedProxies) == 0 {
		return cli.Hint(errors.New("trusted_proxies is empty, so no server may ask"),
			"remove it to trust servers on this machine, or name the address of your server")
	}
	if len(file.TrustedProxies) == 0 {
		file.TrustedProxies = []string{"loopback", "unix"}
	}
	if f.Auth {
		file.Share, file.ProxyProtocol, file.ListenHTTP = nil, false, ""
		file.UpstreamCPU, file.UpstreamCost = policyfile.UpstreamCPU{}, policyfile.UpstreamCost{}
	}
	return nil
}

// openAuth listens for questions, if --auth has an address.
func (s *server) openAuth(rt *runtime) error {
	if s.options.AuthListen == "" {
		return nil
	}
	listener, err := listenOn(s.options.AuthListen, "--auth")
	if err != nil {
		return err
	}
	if err := checkItself(listener.Addr(), rt); err != nil {
		listener.Close()
		return err
	}
	s.auth = s.newSideServer("--auth", listener, rt, s.forwardAuth(), authHeaderBytes)
	return nil
}

// forwardAuth returns the handler of questions.
func (s *server) forwardAuth() http.Handler {
	return s.traced(httpguard.ForwardAuth(s.guard, httpguard.ForwardAuthOptions{
		Trusts:       func(peer string) bool { return s.runtime.Load().Clients.TrustsPeer(peer) },
		Settlements:  s.settler.requests(),
		ClientHeader: func() string { return http.CanonicalHeaderKey(s.runtime.Load().Clients.Header()) },
		Wrong: func(err error) {
			if more, print := s.wrongQuestions.add(time.Now()); print {
				s.log.Printf("error: %v%s", err, more)
			}
		},
	}))
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

// introduceAuth writes the messages at the start that are about questions of another server.
func (s *server) introduceAuth(print func(string, ...any)) {
	rt := s.runtime.Load()
	if s.auth != nil {
		print("auth: %s answers for another server, which names the client in %s; docs/forward-auth.md has its "+
			"configuration", addressText(s.auth.inbound.Addr(), false), rt.Clients.Header())
	}
	logged, what := s.settler != nil, "errors, failed logins, time, bytes or requests in progress"
	if logged {
		print("settle-from: %s", s.settler.tail)
		what = "failed logins, requests in progress or a busy site"
	}
	n := rt.File.IdleInForwardAuth(logged)
	switch {
	case n == 0:
	case s.options.Auth:
		print("answers: fairshare auth does not see the site's answers, so %s that count %s refuse nothing; "+
			"fairshare serve enforces them", ruleCount(n), what)
	default:
		print("answers: the site's answers to requests that another server asks about are not seen here, so %s that "+
			"count %s refuse nothing for them", ruleCount(n), what)
	}
	if len(rt.upstreams()) == 0 {
		print("robots.txt: not read; upstream: in the policy file says where the site is")
	}
}
