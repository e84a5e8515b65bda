package livepolicy

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"fairshare"
	"fairshare/internal/prose"
	"fairshare/registry"
)

// An attackMode is what operators have set with "fairshare attack", in the time of
// the guard. It is safe for concurrent use.
type attackMode struct {
	mode atomic.Pointer[registry.AttackMode] // nil: off
}

// isOn reports whether the mode is on. now is called only if it was set, so that it
// costs nothing otherwise.
func (a *attackMode) isOn(now func() time.Time) bool {
	mode := a.mode.Load()
	return mode != nil && now().Before(mode.Until)
}

// setAttack puts what operators have decided in force. Times are of the system's
// clock. Each change is logged.
func (p *Policy) setAttack(next registry.AttackMode) {
	clock := p.options.Clock
	old := p.attack.mode.Load()
	now := p.Now()
	since, until := clock.FromWall(next.Since), clock.FromWall(next.Until)
	if next.Until.IsZero() || !until.After(now) {
		p.attack.mode.Store(nil)
		if old != nil && now.Before(old.Until) {
			p.options.Log("attack mode: off, " + byOperator(next.By, next.Reason))
		}
		return
	}
	if ahead := since.Sub(now); ahead > 0 { // the clock was ahead: the mode keeps its length
		since, until = now, until.Add(-ahead)
	}
	next.Since, next.Until = since, until
	p.attack.mode.Store(&next)
	if !p.started.Load() { // the start lines say it
		return
	}
	if old == nil || !old.Until.Equal(until) || old.By != next.By || old.Reason != next.Reason {
		p.attackEnded.Store(false)
		p.options.Log("attack mode: " + p.attackLine(&next) + "; newcomers wait first, limits with when: busy hold")
	}
}

// byOperator returns who decided, and why.
func byOperator(by, reason string) string {
	text := "by " + by
	if by == "" {
		text = "by an operator"
	}
	if reason != "" {
		text += ": " + reason
	}
	return text
}

// attackLine describes a mode that is on.
func (p *Policy) attackLine(mode *registry.AttackMode) string {
	since, until := p.Wall(mode.Since), p.Wall(mode.Until)
	return fmt.Sprintf("on since %s until %s (%s left), %s", prose.Moment(since), prose.Moment(until),
		prose.ShortDuration(mode.Until.Sub(p.Now())), byOperator(mode.By, mode.Reason))
}

// Attack describes the attack mode while it is on; otherwise it returns "".
func (p *Policy) Attack() string {
	if mode := p.attack.mode.Load(); mode != nil && p.Now().Before(mode.Until) {
		return p.attackLine(mode)
	}
	return ""
}

// attackReport returns a line while the attack mode is on, and one after it has
// ended by itself.
func (p *Policy) attackReport() string {
	mode := p.attack.mode.Load()
	switch {
	case mode == nil:
	case p.Now().Before(mode.Until):
		return "attack mode: " + p.attackLine(mode)
	case !p.attackEnded.Swap(true):
		return "attack mode: off, its time is over"
	}
	return ""
}

// waitsFirst reports whether a request gets the waiting room first because of the
// attack mode: nothing proves that its client is a person who reads the site or a
// verified bot. Proxies do not wait: they ask whether the server works, and take the
// site down if it does not. Nor do robots.txt, without which crawlers stay away for
// long, and challenges of certificate authorities.
func (p *Policy) waitsFirst(rt *Runtime, req *fairshare.Request) bool {
	if !p.attack.isOn(p.Now) {
		return false
	}
	override := req.Override
	if req.Via.IsValid() { // an override does not apply to an address that only its peer names
		override = fairshare.Override{}
	}
	switch {
	case req.Visitor.ID != 0, req.Proxy && !req.Via.IsValid():
		return false
	case req.Path == "/robots.txt", isChallenge(req.Path), rt.Guard.IsExempt(req):
		return false
	case req.Bot.State == fairshare.Verified && !req.Bot.UserTriggered:
		return false
	case len(override.Labels) > 0 || override.Action == fairshare.Allow:
		return false
	}
	return !rt.Guard.HasStanding(req)
}

// isChallenge reports whether a certificate authority asks for a path (RFC 8555 §8.3).
func isChallenge(path string) bool {
	token, ok := strings.CutPrefix(path, "/.well-known/acme-challenge/")
	return ok && token != "" && !strings.ContainsAny(token, "/.;%\\")
}

// readAttack reads the mode at the start.
func (p *Policy) readAttack(ctx context.Context, s *State) error {
	mode, err := s.store.AttackMode(ctx)
	if err == nil {
		p.setAttack(mode)
	}
	return err
}
