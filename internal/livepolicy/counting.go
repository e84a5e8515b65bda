package livepolicy

import (
	"context"
	"time"

	"fairshare"
	"fairshare/internal/setup"
	"fairshare/memlimit"
	"fairshare/redislimit"
)

// openLimiter opens the counters of a runtime, in this program's memory or together with those of the
// group that the policy file names. It takes over those of the previous runtime, which may be nil.
func (rt *Runtime) openLimiter(ctx context.Context, p *Policy, previous *Runtime) (_ fairshare.Limiter, err error) {
	limits := rt.File.Policy.Limits()
	switch {
	case previous != nil && previous.Group != nil:
		rt.Group, err = previous.Group.With(limits, setup.PolicyDigest(&rt.File.Policy))
	case previous != nil:
		rt.Limiter, err = previous.Limiter.With(limits)
	case rt.File.Store != nil:
		if p.group, err = setup.OpenStore(rt.File); err != nil {
			return nil, err
		}
		p.inGroup = rt.File.Store
		opts := setup.GroupOptions(rt.File, p.group, func(e redislimit.Event) { p.options.Log("group: " + e.Text) })
		opts.Now = p.options.Clock.Now
		rt.Group, err = redislimit.Open(ctx, limits, opts)
	default:
		rt.Limiter, err = memlimit.New(limits, memlimit.Options{Memory: rt.File.Memory})
	}
	if err != nil {
		return nil, err
	}
	if previous != nil && !p.inGroup.Equal(rt.File.Store) {
		p.options.Log("warning: store: the change of the policy file takes effect at the next start")
	}
	if rt.Group == nil {
		return rt.Limiter, nil
	}
	rt.Limiter = rt.Group.Local()
	return rt.Group, nil
}

// leaveTime bounds how long the end of a program waits to report to the store what is pending.
const leaveTime = 2 * time.Second

// leaveGroup reports what is pending, and gives back the slots of requests in progress. group may be nil.
func (p *Policy) leaveGroup(group *redislimit.Limiter) {
	if group != nil {
		ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
		defer cancel()
		if err := group.Close(ctx); err != nil {
			p.options.Log("warning: group: " + err.Error())
		}
	}
	if p.group != nil {
		p.group.Close()
	}
}
