package registrar

import (
	"context"
	"hash/maphash"
	"time"

	"fairshare"
	"fairshare/registry"
)

// A Refusal is a request that was refused or blocked, or would have been without a
// dry run; or several of one client by one rule.
type Refusal struct {
	Request // Took, CPU, Bytes and Errors are ignored

	// Story is recorded. Refused fills in Client, Addr, Bot, BotState, UserAgent,
	// First, Last and Count. Without an ID, the refusal is only counted.
	Story registry.Story
}

// Bounds of the texts of a story, in bytes.
const (
	maxMethod = 32
	maxHost   = 256
	maxPath   = 512
	maxRobots = 512
)

// A story is a Story whose texts are stored one after the other in a buffer that is
// reused.
type story struct {
	registry.Story
	recalled bool   // the story in the registry was added
	texts    []byte // method, host, path and user agent
	ends     [4]int // of these, in texts
}

// Refused counts refusals or blocks, and begins or continues their story. It does not
// wait for the disk, and is safe for concurrent use.
func (g *Registrar) Refused(r Refusal) {
	k, known := g.key(r.Addr, r.Via, &r.Bot)
	if !known {
		return
	}
	if r.First.IsZero() {
		r.First = r.At
	}
	r.N = max(r.N, 1)
	var spent registry.Spent
	switch {
	case r.Story.DryRun:
		spent.DryRun = r.N
	case r.Story.Action == fairshare.Block:
		spent = registry.Spent{Requests: r.N, Blocked: r.N}
	default:
		spent = registry.Spent{Requests: r.N, Refused: r.N}
	}
	g.spend(&k, &r.Request, &spent, false)
	if r.Story.ID == "" {
		return
	}
	k.rule = r.Story.Rule
	k.hash += maphash.String(g.seed, k.rule) * 0x9E3779B97F4A7C15
	s := g.stories.lock(k.hash)
	e, isNew := g.stories.find(s, &k, false, r.N)
	news := isNew || e != nil && r.Story.Ban == fairshare.BanStarted
	if e != nil {
		e.record.add(&r, isNew)
		if s.touch(e); news && e.state != taken {
			s.move(e, urgent)
		}
	}
	s.mu.Unlock()
	if news && !g.newStories.Swap(true) {
		g.wake()
	}
}

// add adds refusals to a story. It changes r.
func (s *story) add(r *Refusal, isNew bool) {
	first, last, count, latest := s.First, s.Last, s.Count+r.N, &r.Story
	latest.Robots = text([]byte(truncate(latest.Robots, maxRobots)))
	if latest.Ban == fairshare.BanStarted {
		latest.BanBegan = r.At
		latest.BanMethod = text([]byte(truncate(latest.Method, maxMethod)))
		latest.BanPath = text([]byte(truncate(latest.Path, maxPath)))
	}
	if isNew || r.First.Before(first) {
		first = r.First
	}
	if isNew || !r.At.Before(last) {
		keepEarlier(latest, &s.Story)
		s.Story, last = *latest, r.At
		s.Addr, s.Bot, s.BotState = r.Addr.Unmap(), r.Bot.Name, r.Bot.State
		s.texts = s.texts[:0]
		for i, part := range [...]string{
			truncate(r.Story.Method, maxMethod), truncate(r.Story.Host, maxHost), truncate(r.Story.Path, maxPath),
			truncate(r.UserAgent, maxAgent),
		} {
			s.texts = append(s.texts, part...)
			s.ends[i] = len(s.texts)
		}
		s.Method, s.Host, s.Path, s.UserAgent = "", "", "", ""
	} else if latest.Ban == fairshare.BanStarted { // recorded after a later request
		keepEarlier(&s.Story, latest)
	}
	s.First, s.Last, s.Count = first, last, count
}

// takeStories takes at most n stories of a list for writing.
func (g *Registrar) takeStories(b *batch, from entryState, n int) {
	b.stories = g.stories.take(b.stories, from, n, func(e *entry[story]) {
		s := &e.record
		row := s.Story
		row.Client = e.key.id
		begin := 0
		for i, to := range [...]*string{&row.Method, &row.Host, &row.Path, &row.UserAgent} {
			*to = text(s.texts[begin:s.ends[i]])
			begin = s.ends[i]
		}
		if !s.recalled {
			b.notRecalled = append(b.notRecalled, len(b.Stories))
		}
		b.Stories = append(b.Stories, row)
	})
}

// A recaller is a Store that can read stories. Since a written story replaces the
// recorded one, a story from before a restart is continued only in such a Store.
type recaller interface {
	Story(ctx context.Context, id string) ([]registry.Story, error)
}

// recall reads the recorded stories for those of a batch that were not recalled yet,
// in order; a story is zero if none is recorded.
func (g *Registrar) recall(ctx context.Context, b *batch) (known []registry.Story, err error) {
	from, ok := g.store.(recaller)
	if !ok {
		return make([]registry.Story, len(b.notRecalled)), nil
	}
	for _, i := range b.notRecalled {
		var same registry.Story
		stories, err := from.Story(ctx, b.Stories[i].ID)
		if err != nil {
			return nil, err
		}
		for _, s := range stories {
			if s.Client == b.Stories[i].Client && s.Rule == b.Stories[i].Rule {
				same = s
			}
		}
		known = append(known, same)
	}
	return known, nil
}

// addRecalled adds the stories that recall has returned to those in memory.
func (g *Registrar) addRecalled(b *batch, known []registry.Story) {
	for i := range known {
		e := b.stories[b.notRecalled[i]]
		s := g.stories.lock(e.key.hash)
		e.record.Story = continueStory(known[i], e.record.Story)
		e.record.recalled = true
		s.mu.Unlock()
	}
}

// continueStory returns the recorded story continued by a later part of it.
func continueStory(before, s registry.Story) registry.Story {
	keepEarlier(&s, &before)
	s.Count += before.Count
	if before.Count > 0 && before.First.Before(s.First) {
		s.First = before.First
	}
	return s
}

// keepEarlier gives s the counters of an earlier refusal if s is from a ban in force,
// which has none. It also keeps the line of robots.txt, and the request that started
// the latest ban.
func keepEarlier(s, before *registry.Story) {
	if s.Ban == fairshare.BanInForce && s.By == "" {
		s.By, s.Resource, s.Used, s.Allowed, s.Window = before.By, before.Resource, before.Used, before.Allowed,
			before.Window
	}
	if s.Ban == fairshare.BanInForce {
		s.Robots = before.Robots
	}
	if before.BanBegan.After(s.BanBegan) {
		s.BanBegan, s.BanMethod, s.BanPath = before.BanBegan, before.BanMethod, before.BanPath
	}
}

// storyDelay is how long a new story waits for others, to be written together.
const storyDelay = 100 * time.Millisecond
