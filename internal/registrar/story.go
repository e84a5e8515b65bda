package registrar

import (
	"context"
	"hash/maphash"
	"time"

	"fairshare"
	"fairshare/sqlregistry"
)

// A Refusal is a request that was refused or blocked, or would have been but
// for a dry run.
type Refusal struct {
	Passage // Took, CPU, Bytes and Status are not looked at

	// Story is what is to be remembered of it. Client, Addr, Bot, BotState,
	// UserAgent, First, Last and Count are filled in. Without an ID it is
	// counted only.
	Story fairshare.Story
}

// Bounds of the texts of a story, in bytes.
const (
	maxMethod = 32
	maxHost   = 256
	maxPath   = 512
)

// A story is a Story whose texts stand one behind the other in memory that is
// used again.
type story struct {
	fairshare.Story
	recalled bool // what the registry knew of it is in there
	texts    []byte
	ends     [4]int
}

// Refused counts a refusal or block, and begins or continues its story. It is
// quick, and safe for concurrent use.
func (g *Registrar) Refused(r Refusal) {
	k, known := g.key(r.Addr, r.Via, &r.Bot)
	if !known {
		return
	}
	var spent fairshare.Spent
	switch {
	case r.Story.DryRun:
		spent.DryRun = 1
	case r.Story.Action == fairshare.Block:
		spent = fairshare.Spent{Requests: 1, Blocked: 1}
	default:
		spent = fairshare.Spent{Requests: 1, Refused: 1}
	}
	g.spend(&k, &r.Passage, &spent, false)
	if r.Story.ID == "" {
		return
	}
	k.rule = r.Story.Rule
	k.hash += maphash.String(g.seed, k.rule) * 0x9E3779B97F4A7C15
	s := g.stories.lock(k.hash)
	e, isNew := g.stories.find(s, &k, false)
	news := isNew || e != nil && r.Story.Ban == fairshare.BanStarted
	if e != nil {
		e.record.add(&r, isNew)
		if s.touch(e); news && e.where != taken {
			s.move(e, urgent)
		}
	}
	s.mu.Unlock()
	if news && !g.storyWaits.Swap(true) {
		g.wake()
	}
}

// add adds a refusal.
func (s *story) add(r *Refusal, isNew bool) {
	first, last, count, latest := s.First, s.Last, s.Count+1, r.Story
	if latest.Ban == fairshare.BanStarted {
		latest.BanBegan = r.At
		latest.BanMethod = text([]byte(cut(r.Story.Method, maxMethod)))
		latest.BanPath = text([]byte(cut(r.Story.Path, maxPath)))
	}
	if isNew || r.At.Before(first) {
		first = r.At
	}
	if isNew || !r.At.Before(last) {
		s.Story, last = after(latest, &s.Story), r.At
		s.Addr, s.Bot, s.BotState = r.Addr.Unmap(), r.Bot.Name, r.Bot.State
		s.texts = s.texts[:0]
		for i, part := range [...]string{
			cut(r.Story.Method, maxMethod), cut(r.Story.Host, maxHost), cut(r.Story.Path, maxPath),
			cut(r.UserAgent, maxAgent),
		} {
			s.texts = append(s.texts, part...)
			s.ends[i] = len(s.texts)
		}
		s.Method, s.Host, s.Path, s.UserAgent = "", "", "", ""
	} else if latest.Ban == fairshare.BanStarted { // recorded after a later request
		s.Story = after(s.Story, &latest)
	}
	s.First, s.Last, s.Count = first, last, count
}

// takeStories takes at most n stories to be written.
func (g *Registrar) takeStories(b *batch, from where, n int) {
	b.stories = g.stories.take(b.stories, from, n, func(e *entry[story]) {
		s := &e.record
		told := s.Story
		told.Client = e.key.id
		begin := 0
		for i, to := range [...]*string{&told.Method, &told.Host, &told.Path, &told.UserAgent} {
			*to = text(s.texts[begin:s.ends[i]])
			begin = s.ends[i]
		}
		if !s.recalled {
			b.unknown = append(b.unknown, len(b.Stories))
		}
		b.Stories = append(b.Stories, told)
	})
}

// A recaller is a Store that tells what it knows of a story. A story is
// written in place of what was known of it: one that was begun in an earlier
// life of the server goes on only in such a Store.
type recaller interface {
	Story(ctx context.Context, id string) ([]fairshare.Story, error)
}

var _ recaller = (*sqlregistry.Registry)(nil)

// recall returns what is known of the stories of a batch that are unknown.
func (g *Registrar) recall(ctx context.Context, b *batch) (known []fairshare.Story, err error) {
	from, ok := g.store.(recaller)
	if !ok {
		return make([]fairshare.Story, len(b.unknown)), nil
	}
	for _, i := range b.unknown {
		var same fairshare.Story
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

// goOn adds what is known of the stories of a batch that were unknown.
func (g *Registrar) goOn(b *batch, known []fairshare.Story) {
	for i := range known {
		e := b.stories[b.unknown[i]]
		s := g.stories.lock(e.key.hash)
		e.record.Story = following(known[i], e.record.Story)
		e.record.recalled = true
		s.mu.Unlock()
	}
}

// following returns a story that goes on with what was known before.
func following(before, s fairshare.Story) fairshare.Story {
	s = after(s, &before)
	s.Count += before.Count
	if before.Count > 0 && before.First.Before(s.First) {
		s.First = before.First
	}
	return s
}

// after returns s with what was counted before, if s tells nothing of that: a
// ban in force counts nothing. It also keeps the request that started the
// latest ban.
func after(s fairshare.Story, before *fairshare.Story) fairshare.Story {
	if s.Ban == fairshare.BanInForce && s.By == "" {
		s.By, s.Resource, s.Used, s.Allowed, s.Window = before.By, before.Resource, before.Used, before.Allowed,
			before.Window
	}
	if before.BanBegan.After(s.BanBegan) {
		s.BanBegan, s.BanMethod, s.BanPath = before.BanBegan, before.BanMethod, before.BanPath
	}
	return s
}

// storyDelay is how long a new story waits for others to be written with it.
const storyDelay = 100 * time.Millisecond
