package botauth

import (
	"context"
	"crypto/ed25519"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"
)

// How long a signature may be used, in seconds. Bots sign each request when they send it.
const (
	maxAge       = 600    // since created, whatever expires says
	maxAhead     = 60     // of created and expires: the clocks of the two may differ
	maxLifetime  = 86_400 // from created to expires
	replayWindow = maxAge + maxAhead
)

// A State is the result of a verification.
type State uint8

const (
	Unsigned State = iota // the request has no signature of a trusted agent
	Unproven              // it has one that proves nothing, neither for nor against the client
	Pending               // the agent's keys are being fetched for the first time
	Verified              // the signature is valid
	Forged                // the signature is wrong, or of a key that the agent does not have
)

// A Result is the result of a verification, and its reason.
type Result struct {
	State  State
	Agent  string // the trusted agent that the request names; "" if State is Unsigned
	Reason string // a sentence without a full stop
}

// An Agent is a trusted signer of requests.
type Agent struct {
	Host string // as NormalAgent returns it

	// Keys are the agent's keys. nil means that they are fetched from
	// https://Host/.well-known/http-message-signatures-directory when a request
	// with a signature of the agent comes.
	Keys []Key
}

// Options are the settings of a Verifier.
type Options struct {
	Agents []Agent

	// Host reports whether a host (with its port, if a request has one) is the site's.
	// A signature for another site proves nothing here: that site may have passed it on.
	// nil means that no host is known, and then no signature is valid.
	Host func(host string) bool

	// Start is when the program began to remember used signatures. Signatures that
	// were created before prove nothing. Zero means that it always has.
	Start time.Time

	// Previous is the Verifier that this one replaces; nil if there is none. Fetched
	// keys and the memory of used signatures are taken over.
	Previous *Verifier

	Log       func(string)      // gets a line when fetching keys begins to fail, and when it works again; may be nil
	UserAgent string            // of requests for keys; "" means fairshare
	Transport http.RoundTripper // nil means one that connects to public addresses only
}

// A Verifier verifies signatures of the agents that it trusts. It is safe for
// concurrent use. It fetches keys only while Run is active.
type Verifier struct {
	agents  map[string]*agent
	host    func(string) bool
	start   int64
	replays *replays
	budget  *budget
	fetcher fetcher
}

// An agent is the state of one trusted agent.
type agent struct {
	host  string
	fixed bool // the keys are not fetched
	keys  atomic.Pointer[keySet]

	queued atomic.Bool  // it waits to be fetched, or is being fetched
	due    atomic.Int64 // Unix seconds; no fetch before
	failed atomic.Int32 // failures in a row
}

// NewVerifier returns a Verifier.
func NewVerifier(o Options) *Verifier {
	v := &Verifier{agents: map[string]*agent{}, host: o.Host, replays: newReplays(), budget: newBudget(),
		fetcher: newFetcher(o)}
	if !o.Start.IsZero() {
		v.start = o.Start.Unix()
	}
	if o.Previous != nil {
		v.replays, v.budget, v.start = o.Previous.replays, o.Previous.budget, o.Previous.start
	}
	for _, given := range o.Agents {
		a := &agent{host: given.Host, fixed: given.Keys != nil}
		if a.fixed {
			a.keys.Store(newKeySet(given.Keys, 0))
		} else if o.Previous != nil {
			if old := o.Previous.agents[given.Host]; old != nil && !old.fixed {
				a.keys.Store(old.keys.Load())
				a.due.Store(old.due.Load())
				a.failed.Store(old.failed.Load())
			}
		}
		v.agents[given.Host] = a
	}
	return v
}

func (v *Verifier) trusts(agent string) bool { return v.agents[agent] != nil }

// Verify verifies the signature of a request from an address. It never waits: keys that
// it needs are fetched in the background. A request without Signature-Input costs one
// look at the header.
//
// Every valid result uses the signature up: one with a nonce is valid once. One without
// a nonce is valid again only for the address that used it first.
func (v *Verifier) Verify(r *Request, addr netip.Addr, now time.Time) Result {
	return v.verify(r, addr, now.Unix(), true)
}

// Explain does the same as Verify, but it waits for the keys until ctx ends, and does
// not use the signature up.
func (v *Verifier) Explain(ctx context.Context, r *Request, addr netip.Addr, now time.Time) Result {
	if sig, _, err := parse(r, v.trusts, always); err == nil {
		if a := v.agents[sig.agent]; a.keys.Load() == nil {
			v.fetcher.fetch(ctx, a)
		}
	}
	return v.verify(r, addr, now.Unix(), false)
}

func always() bool { return true }

func (v *Verifier) verify(r *Request, addr netip.Addr, now int64, use bool) Result {
	fail := func(checked bool) {
		if use {
			v.budget.fail(addr, checked, now)
		}
	}
	sig, name, err := parse(r, v.trusts, func() bool { return !use || v.budget.allows(addr, now) })
	switch {
	case err != nil && name == "":
		return Result{Unsigned, "", err.Error()}
	case err != nil:
		if err != errBudget {
			fail(false)
		}
		return Result{Unproven, name, err.Error()}
	}
	a := v.agents[name]
	if reason := v.outdated(sig, now); reason != "" {
		fail(false)
		return Result{Unproven, name, reason}
	}
	if v.host == nil {
		return Result{Unproven, name,
			"a signature counts only for hosts of the site, and the policy does not name them (hosts)"}
	}
	if !v.host(r.Host) {
		return Result{Unproven, name,
			"its host is none of the site's (hosts), so its signature may be one for another site"}
	}
	set := a.keys.Load()
	if !a.fixed && (set == nil || now-set.at > keysFresh) {
		v.fetcher.want(a, now)
	}
	if set == nil || !a.fixed && now-set.at > keysUsable {
		if a.failed.Load() > 0 || set != nil {
			return Result{Unproven, name, "the keys of its agent cannot be fetched"}
		}
		return Result{Pending, name, "the keys of its agent are not known yet"}
	}
	key := set.keys[sig.keyID]
	switch {
	case key == nil && !a.fixed && now-set.at > keysRecent:
		v.fetcher.want(a, now)
		return Result{Unproven, name, "its agent may have a newer key than those known here"}
	case key == nil:
		fail(false)
		return Result{Forged, name, "its key is none of its agent's"}
	case key.NotBefore > now+maxAhead || key.Expires != 0 && key.Expires <= now:
		return Result{Unproven, name, "its key is not valid at this time"}
	}
	id, user := v.replays.id(sig, addr)
	if v.replays.look(id, user, now) == replayed {
		fail(false)
		return Result{Unproven, name, reasonReplayed}
	}
	valid, err := sig.check(r, key.Public)
	switch {
	case err != nil:
		fail(false)
		return Result{Unproven, name, err.Error()}
	case !valid:
		fail(true)
		return Result{Forged, name, "its signature is wrong: it is not one of its agent for this request"}
	}
	if use {
		v.budget.valid(addr, now)
		switch v.replays.take(sig, id, user, now) {
		case replayed:
			return Result{Unproven, name, reasonReplayed}
		case noRoom:
			return Result{Unproven, name, "its agent sends more signatures than can be remembered"}
		}
	}
	return Result{Verified, name, "its signature is valid"}
}

const reasonReplayed = "its signature was used before"

// outdated says why a signature is too old or too new; "" if it is neither.
func (v *Verifier) outdated(s *signature, now int64) string {
	switch {
	case s.expires <= s.created || s.created < 0:
		return "its signature expires before it was created"
	case s.expires-s.created > maxLifetime:
		return "its signature is for more than a day"
	case s.created > now+maxAhead:
		return "its signature was created in the future; compare the clocks"
	case s.expires <= now:
		return "its signature has expired"
	case now-s.created > maxAge:
		return "its signature was created more than 10 minutes ago"
	case s.created < v.start:
		return "its signature was created before this program was started, so it may have been used before"
	}
	return ""
}

// check reports whether a signature is valid. An error means that it cannot be checked.
func (s *signature) check(r *Request, public ed25519.PublicKey) (bool, error) {
	scheme := r.Scheme
	if scheme == "" {
		scheme = "https"
	}
	base, err := s.base(r, scheme)
	if err != nil {
		return false, err
	}
	if ed25519.Verify(public, []byte(base), s.value) {
		return true, nil
	}
	if !s.usesScheme(r) {
		return false, nil
	}
	// A proxy in front may not say which scheme the client used. Both prove the same.
	other := "https"
	if scheme == "https" {
		other = "http"
	}
	if base, err = s.base(r, other); err != nil {
		return false, err
	}
	return ed25519.Verify(public, []byte(base), s.value), nil
}
