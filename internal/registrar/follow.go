package registrar

import (
	"context"
	"fmt"
	"time"

	"fairshare"
	"fairshare/sqlregistry"
)

const (
	pollEvery = 250 * time.Millisecond
	pollRest  = 10 // times as long as a poll took: many words take long to sort
	pollLate  = 700 * time.Millisecond
	tellEvery = time.Minute
)

// follow follows what operators say until ctx is done.
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
			pause = min(max(pollEvery, pollRest*time.Since(begin)), pollLate)
			if g.following.worked() {
				g.log("the registry can be read again: what operators say is followed")
			}
		default:
			var news bool
			if pause, news = g.following.failed(err); news {
				g.log(fmt.Sprintf(
					"the registry cannot be read: %s; what operators said before holds, and it is tried again",
					withHint(err)))
			}
		}
	}
}

// poll takes over what has changed. It is done again as a whole when it fails.
func (g *Registrar) poll(ctx context.Context) error {
	hangs := func() {
		if _, news := g.following.failed(errHangs); news {
			g.log(fmt.Sprintf("the registry cannot be read: %v; what operators said before holds", errHangs))
		}
	}
	since := g.version
	changes, err := call(ctx.Done(), hangs, func(ctx context.Context) (sqlregistry.Changes, error) {
		return g.store.Changes(ctx, since)
	})
	if err != nil {
		return err
	}
	if changes.Overrides {
		words, err := call(ctx.Done(), hangs, func(ctx context.Context) (*Overrides, error) {
			said, labels, err := g.store.Overrides(ctx)
			return NewOverrides(said, labels), err
		})
		if err != nil {
			return err
		}
		g.words.Store(words)
	}
	for i := range changes.Lifted {
		l := &changes.Lifted[i]
		at := g.fromWall(l.At)
		if l.Forget { // first: then no such ban begins any more
			g.undo(l.Client, at, l.At)
		} else {
			g.lift(l.Client, at)
		}
		g.bans.lift(func(id fairshare.ClientID) bool { return within(id, l.Client) }, at)
		if l.Forget {
			g.forget(l.Client)
		}
	}
	g.version = changes.Version
	return nil
}

// forget drops what is counted of the clients within id.
func (g *Registrar) forget(id fairshare.ClientID) {
	which := func(other fairshare.ClientID) bool { return within(other, id) }
	g.clients.forget(which)
	g.stories.forget(which)
}

// within reports whether id is wide, or one of the addresses of wide.
func within(id, wide fairshare.ClientID) bool {
	if wide.Bot != "" || id.Bot != "" {
		return id == wide
	}
	return wide.Prefix.IsValid() && wide.Prefix.Bits() <= id.Prefix.Bits() && wide.Prefix.Contains(id.Prefix.Addr())
}

// tellLeftOut says once a minute what found no place in memory.
func (g *Registrar) tellLeftOut(ctx context.Context) {
	ticker := time.NewTicker(tellEvery)
	defer ticker.Stop()
	var told Stats
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		s := g.Stats()
		if n, m := s.LeftOut-told.LeftOut, s.LeftOutStories-told.LeftOutStories; n+m > 0 {
			g.log(fmt.Sprintf(
				"the registry has no place for so many new clients at once: of %d requests and the stories of %d refusals there is no record; they were judged as ever", n, m))
		}
		if n := s.LostBans - told.LostBans; n > 0 {
			g.log(fmt.Sprintf("the registry has no place for so many bans at once: %d will be forgotten at a restart",
				n))
		}
		told = s
	}
}
