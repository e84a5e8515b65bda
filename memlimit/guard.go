package memlimit

import (
	"errors"
	"fmt"

	"fairshare"
	"fairshare/membans"
)

// NewGuard returns a guard for a policy that keeps its counters and bans in
// memory: New, [membans.New] and [fairshare.NewGuard] in one call. The policy
// must not change afterwards.
func NewGuard(policy *fairshare.Policy, opts Options) (*fairshare.Guard, error) {
	if policy == nil {
		return nil, errors.New("the policy is nil")
	}
	if err := policy.Check(); err != nil {
		return nil, err
	}
	limiter, err := New(policy.Limits(), opts)
	if err != nil {
		return nil, err
	}
	return fairshare.NewGuard(policy, limiter, membans.New(0))
}

// MadeFor returns an error unless the Limiter was made for these limits, in
// this order. [fairshare.NewGuard] calls it.
func (l *Limiter) MadeFor(limits []fairshare.Limit) error {
	if len(limits) != len(l.limits) {
		return fmt.Errorf("the limiter was made for %d limits, and the policy has %d", len(l.limits), len(limits))
	}
	for i := range limits {
		own, want := &l.limits[i], &limits[i]
		if own.identity != identity(want) || own.allowed != uint64(want.Allowed()) {
			return fmt.Errorf("limit %d of the limiter is %q, and that of the policy is %q", i+1, own.name, want.Name)
		}
	}
	return nil
}
