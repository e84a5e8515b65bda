package registrar

import (
	"context"
	"fmt"
	"time"

	"fairshare"
	"fairshare/registry"
)

const (
	pollEvery = 250 * time.Millisecond
	pollPause = 10 // times the duration of a poll: reading many overrides takes long
	pollLate  = 700 * time.Millisecond

	reportEvery = time.Minute
)

// follow applies operators' changes until ctx is done.
func (g *Registrar) follow(ctx context.Context) {
	pause := pollEvery
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		begin := time.Now()
		err := g.poll(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			pause = min(max(pollEvery, pollPause*time.Since(begin)), pollLate)
			if g.following.succeeded() {
				g.log("the registry can be read again: new decisions of operators take effect")
			}
		default:
			var news bool
			if pause, news = g.following.failed(err); news {
				g.log(fmt.Sprintf(
					"the registry cannot be read: %s; the last known decisions of operators stay in force, and reading is retried",
					withHint(err)))
			}
		}
	}
}

// poll applies the changes since the last call. After an error, the next call
// applies all of them again.
func (g *Registrar) poll(ctx context.Context) error {
	hangs := func() {
		if _, news := g.following.failed(errHangs); news {
			g.log(fmt.Sprintf(
				"the registry cannot be read: %v; the last known decisions of operators stay in force", errHangs))
		}
	}
	since := g.version
	changes, err := call(ctx.Done(), hangs, func(ctx context.Context) (registry.Changes, error) {
		return g.store.Changes(ctx, since)
	})
	if err != nil {
		return err
	}
	// First, so that a client whose ban an operator has deleted is not refused for what
	// it did before, and banned for that.
	for i := range changes.Lifted {
		l := &changes.Lifted[i]
		at := g.fromWall(l.At)
		if l.Forget { // before the queue is cleared: from then on no such ban begins
			g.onForget(l.Client, at, l.Stored)
		} else {
			g.onLift(l.Client, at)
		}
		g.bans.lift(func(id fairshare.ClientID) bool { return within(id, l.Client) }, at)
		if l.Forget {
			g.forget(l.Client)
		}
	}
	if changes.Overrides {
		_, err := call(ctx.Done(), hangs, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, g.changed(ctx)
		})
		if err != nil {
			return err
		}
		current, err := call(ctx.Done(), hangs, func(ctx context.Context) (*Overrides, error) {
			overrides, labels, err := g.store.Overrides(ctx)
			return NewOverrides(overrides, labels), err
		})
		if err != nil {
			return err
		}
		g.current.Store(current)
	}
	g.version = changes.Version
	if changes.Overrides || len(changes.Lifted) > 0 {
		g.applied()
	}
	return nil
}

// forget drops the unwritten counts and stories of the clients within id.
func (g *Registrar) forget(id fairshare.ClientID) {
	which := func(other fairshare.ClientID) bool { return within(other, id) }
	g.clients.forget(which)
	g.stories.forget(which)
}

// within reports whether id is wide itself or a prefix within it.
func within(id, wide fairshare.ClientID) bool {
	if wide.Bot != "" || id.Bot != "" {
		return id == wide
	}
	return wide.Prefix.IsValid() && wide.Prefix.Bits() <= id.Prefix.Bits() && wide.Prefix.Contains(id.Prefix.Addr())
}

// reportDropped logs once a minute how much was dropped to stay within the bounds.
func (g *Registrar) reportDropped(ctx context.Context) {
	ticker := time.NewTicker(reportEvery)
	defer ticker.Stop()
	var reported Stats
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		s := g.Stats()
		n, m := s.DroppedRequests-reported.DroppedRequests, s.DroppedRefusals-reported.DroppedRefusals
		if n+m > 0 {
			g.log(fmt.Sprintf(
				"too many new clients at once for the registry: %d requests and the stories of %d refusals were not recorded; they were judged as usual",
				n, m))
		}
		if n := s.DroppedBans - reported.DroppedBans; n > 0 {
			g.log(fmt.Sprintf("too many bans at once for the registry: %d bans will be lost at a restart", n))
		}
		reported = s
	}
}
