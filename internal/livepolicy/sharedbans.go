package livepolicy

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"fairshare"
	"fairshare/internal/network"
	"fairshare/internal/storebans"
	"fairshare/registry"
)

// sharedBans exchanges bans with the other members of the group through its store.
type sharedBans struct {
	bans atomic.Pointer[storebans.Bans] // nil: no store, or not started yet
	stop func()                         // waits too; nil: not started
}

// keptAhead is how many batches of bans of other members may wait to be written to the disk. Reading
// from the store then waits.
const keptAhead = 64

// startSharing shares the bans of this program with the members of its group until stopSharing.
func (p *Policy) startSharing() {
	rt := p.Current()
	if rt.Group == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	keep := make(chan heard, keptAhead)
	pass := func(h heard) {
		select {
		case keep <- h:
		case <-ctx.Done(): // the store has it
		}
	}
	b := storebans.New(storebans.Options{
		Store: p.group, Name: rt.File.Store.Name, Now: p.Now, Log: p.options.Log,
		InForce: func(yield func(fairshare.BanRecord)) { p.bansInForce(yield) },
		Restore: func(bans []fairshare.BanRecord) {
			for _, ban := range bans {
				p.bans.Restore(ban)
			}
			p.exportChanged()
			pass(heard{bans: bans})
		},
		Lift: func(l storebans.Lift) {
			p.endBans(l.Client, l.At)
			pass(heard{lift: &l})
		},
		Lifts: p.liftsUntilNow(),
	})
	var running, keeping sync.WaitGroup
	running.Go(func() { b.Run(ctx) })
	writing, giveUp := context.WithCancel(context.Background())
	keeping.Go(func() {
		for h := range keep {
			p.keepHeard(writing, h)
		}
	})
	p.shared.bans.Store(b)
	p.shared.stop = func() {
		cancel()
		running.Wait()
		close(keep)
		defer time.AfterFunc(leaveTime, giveUp).Stop()
		keeping.Wait()
		giveUp()
	}
}

// stopSharing ends what startSharing began, and waits for it.
func (p *Policy) stopSharing() {
	if p.shared.stop != nil {
		p.shared.stop()
		p.shared.stop = nil
	}
}

// banned is called for each ban that begins here. It does not block.
func (p *Policy) banned(ban fairshare.BanRecord) {
	if shared := p.shared.bans.Load(); shared != nil {
		shared.Made(ban)
	}
	p.exportChanged()
}

// bansInForce calls yield with each enforced ban in force. yield must not block.
func (p *Policy) bansInForce(yield func(fairshare.BanRecord)) {
	policy := &p.Current().File.Policy
	bits4, bits6 := network.ClientBits(policy.IPv4Prefix, policy.IPv6Prefix)
	p.bans.InForce(p.Now(), bits4, bits6, yield)
}

// shareLift reports to the other members that an operator has lifted bans, or has had a client forgotten. Call it
// before the bans are lifted here.
func (p *Policy) shareLift(l storebans.Lift) {
	shared := p.shared.bans.Load()
	if shared == nil {
		return
	}
	shared.Lifted(l, func() (ended []fairshare.BanRecord) {
		p.bansInForce(func(ban fairshare.BanRecord) {
			key, ok := fairshare.NewBanKey(ban.Kind, ban.Client)
			if ok && !ban.Began.After(l.At) && key.Within(l.Client) {
				ended = append(ended, ban)
			}
		})
		return ended
	})
}

// liftsUntilNow returns the lifts that the registry has recorded.
func (p *Policy) liftsUntilNow() (all []storebans.Lift) {
	if p.state.store == nil {
		return nil
	}
	clock := p.options.Clock
	lifted, err := p.state.store.own().Lifted(p.ending, clock.Wall(p.Now()).Add(-registry.ChangesStay))
	if err != nil {
		p.options.Log(fmt.Sprintf("warning: group: could not read which bans were lifted: %v; "+
			"one that another member still has may return", err))
	}
	for _, l := range lifted {
		all = append(all, storebans.Lift{Client: l.Client, At: clock.FromWall(l.At), Forget: l.Forget,
			Stored: l.Stored})
	}
	return all
}

// A heard has bans of another member, or a lift.
type heard struct {
	bans []fairshare.BanRecord
	lift *storebans.Lift
}

const keepTime = 10 * time.Second

// keepHeard writes bans or a lift of another member to this server's own registry, so that they are known
// after a restart. The registry is followed: a client that was forgotten is forgotten here, too.
func (p *Policy) keepHeard(ctx context.Context, h heard) {
	clock := p.options.Clock
	if p.state.store == nil {
		if h.lift != nil && h.lift.Forget {
			p.forget(h.lift.Client, h.lift.At, h.lift.Stored)
		}
		return
	}
	ctx, cancel := context.WithTimeout(ctx, keepTime)
	defer cancel()
	s := p.state.store.own()
	own, err := s.writing(ctx)
	if err == nil && h.lift != nil {
		err = s.follow(ctx, own, own.Repeat(ctx, registry.LiftedClient{Client: h.lift.Client,
			At: clock.Wall(h.lift.At), Forget: h.lift.Forget, Stored: h.lift.Stored}))
	}
	if err == nil && len(h.bans) > 0 {
		for i := range h.bans {
			ban := &h.bans[i]
			ban.Began, ban.Until, ban.Since = clock.Wall(ban.Began), clock.Wall(ban.Until), clock.Wall(ban.Since)
		}
		err = s.follow(ctx, own, own.Write(ctx, registry.Batch{At: clock.Wall(p.Now()), Bans: h.bans}))
	}
	if err != nil && !p.keepFailed.Swap(true) {
		p.options.Log(fmt.Sprintf("warning: group: bans and lifts of other members are not stored here: %v; "+
			"they are in force, and come from the store again after a restart", err))
	} else if err == nil {
		p.keepFailed.Store(false)
	}
}
