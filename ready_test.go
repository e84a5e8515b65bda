package fairshare_test

import (
	"errors"
	"testing"

	"fairshare"
	"fairshare/memlimit"
)

func TestNewGuardReturnsTheErrorOfReady(t *testing.T) {
	missing := errors.New("the list is not loaded")
	policy := &fairshare.Policy{Ready: func() error { return missing }}
	limiter, err := memlimit.New(nil, memlimit.Options{Memory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if guard, err := fairshare.NewGuard(policy, limiter, nil); guard != nil || !errors.Is(err, missing) {
		t.Errorf("got %v, %v, want the error of Ready", guard, err)
	}
	missing = nil
	if _, err := fairshare.NewGuard(policy, limiter, nil); err != nil {
		t.Error(err)
	}
}
