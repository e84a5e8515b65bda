package registrar_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fairshare"
	"fairshare/internal/registrar"
	"fairshare/registry"
)

// A fakeStore is a registry in memory that tests can make slow, or make fail or hang.
type fakeStore struct {
	mu      sync.Mutex
	clients map[fairshare.ClientID]registry.ClientRecord
	stories map[string]registry.Story
	bans    map[string]fairshare.BanRecord
	batches []registry.Batch // that were written, in order
	ends    []time.Time      // the time of each
	tries   int              // calls of Write
	prunes  int

	overrides []registry.OverrideRecord
	labels    []registry.Label
	changes   registry.Changes // returned by the next call only

	fault     error         // of Write and Prune
	readFault error         // of Changes and Overrides
	take      time.Duration // the duration of each Write
	hang      chan struct{} // until it is closed, Write hangs, even if its ctx is done
	morePrune int
}

func newFakeStore() *fakeStore {
	return &fakeStore{
		clients: map[fairshare.ClientID]registry.ClientRecord{}, stories: map[string]registry.Story{},
		bans: map[string]fairshare.BanRecord{},
	}
}

func banName(b *fairshare.BanRecord) string { return b.Client.String() + " " + b.Rule }

func (f *fakeStore) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeStore) Write(ctx context.Context, b registry.Batch) error {
	f.mu.Lock()
	f.tries++
	fault, take, hang := f.fault, f.take, f.hang
	f.mu.Unlock()
	if hang != nil {
		<-hang
	}
	if take > 0 {
		select {
		case <-time.After(take):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if fault != nil {
		return fault
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.batches, f.ends = append(f.batches, b), append(f.ends, time.Now())
	for _, d := range b.Clients {
		r, found := f.clients[d.Client]
		if !found || d.FirstSeen.Before(r.FirstSeen) {
			r.FirstSeen = d.FirstSeen
		}
		r.Client, r.LastSeen, r.UserAgent, r.Bot, r.BotState = d.Client, d.LastSeen, d.UserAgent, d.Bot, d.BotState
		r.Spent.Add(d.Spent)
		f.clients[d.Client] = r
	}
	for _, s := range b.Stories {
		f.stories[s.ID] = s
	}
	for _, ban := range b.Bans {
		f.bans[banName(&ban)] = ban
	}
	return nil
}

func (f *fakeStore) Story(_ context.Context, id string) ([]registry.Story, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s, found := f.stories[id]; found && f.fault == nil {
		return []registry.Story{s}, nil
	}
	return nil, f.fault
}

func (f *fakeStore) Changes(context.Context, registry.Version) (registry.Changes, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.readFault != nil {
		return registry.Changes{}, f.readFault
	}
	c := f.changes
	f.changes = registry.Changes{}
	return c, nil
}

func (f *fakeStore) Overrides(context.Context) ([]registry.OverrideRecord, []registry.Label, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.overrides, f.labels, f.readFault
}

func (f *fakeStore) Prune(context.Context, time.Time, int) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.prunes++
	if f.fault != nil {
		return false, f.fault
	}
	f.morePrune--
	return f.morePrune >= 0, nil
}

// A seen is a snapshot of a fakeStore.
type seen struct {
	tries, prunes, clients, stories, bans int
	batches                               []registry.Batch
	ends                                  []time.Time
}

func (f *fakeStore) seen() seen {
	f.mu.Lock()
	defer f.mu.Unlock()
	return seen{f.tries, f.prunes, len(f.clients), len(f.stories), len(f.bans), slices.Clone(f.batches),
		slices.Clone(f.ends)}
}

// client returns the record of an address.
func (f *fakeStore) client(addr string) registry.ClientRecord {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.clients[id(addr)]
}

func (f *fakeStore) story(id string) registry.Story {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stories[id]
}

func (f *fakeStore) ban(addr string) fairshare.BanRecord {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bans[addr+" rule"]
}

func (f *fakeStore) nBans() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.bans)
}

// A hinted is an error with a hint.
type hinted struct{ error }

func (hinted) Hint() string { return "make room" }

var errDisk = hinted{errors.New("disk on fire")}

// logged collects messages.
type logged struct {
	mu    sync.Mutex
	lines []string
}

func (l *logged) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
}

// holds checks that there are exactly as many lines as texts, and that each line
// contains its text.
func (l *logged) holds(t *testing.T, texts ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	ok := len(l.lines) == len(texts)
	for i := 0; ok && i < len(texts); i++ {
		ok = strings.Contains(l.lines[i], texts[i])
	}
	if !ok {
		t.Errorf("logged:\n%s\nwant:\n%s", strings.Join(l.lines, "\n"), strings.Join(texts, "\n"))
	}
}

func id(s string) fairshare.ClientID {
	id, err := fairshare.ParseClientID(s)
	if err != nil {
		panic(err)
	}
	return id
}

var policy fairshare.Policy

// A running registrar runs until its test stops it.
type running struct {
	*registrar.Registrar
	store *fakeStore
	log   *logged
	stop  func() error
}

// run starts a registrar in a synctest bubble.
func run(t *testing.T, store *fakeStore, o registrar.Options) *running {
	t.Helper()
	r := &running{store: store, log: &logged{}}
	o.Store, o.Log = store, r.log.add
	if o.Prefix == nil {
		o.Prefix = policy.Client
	}
	r.Registrar = registrar.New(o)
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	r.stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	return r
}

func (r *running) pass(addr string, n int) {
	for range n {
		r.Passed(registrar.Request{Addr: netip.MustParseAddr(addr), UserAgent: "ua", At: time.Now(),
			Took: time.Millisecond, Bytes: 10})
	}
}

func (r *running) refuse(addr, ref string) {
	r.Refused(registrar.Refusal{
		Request: registrar.Request{Addr: netip.MustParseAddr(addr), UserAgent: "ua", At: time.Now()},
		Story: registry.Story{ID: ref, Rule: "rapid", Action: fairshare.Refuse, Status: 429, Method: "GET",
			Host: "example.org", Path: "/"},
	})
}

func (r *running) ban(addr string) {
	r.Banned(fairshare.BanRecord{Client: id(addr), Rule: "rule", Kind: fairshare.ByAddr, Number: 1, Began: time.Now(),
		Until: time.Now().Add(time.Hour)})
}

// sleep sleeps in a synctest bubble until all that is due then has happened.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func addr(i int) string { return fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255) }
