package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/internal/lockfile"
	"fairshare/internal/registrar"
	"fairshare/memlimit"
	"fairshare/policyfile"
	"fairshare/sqlregistry"
)

// Files in the state folder.
const (
	countersFile = "counters"
	lockFile     = "serve.lock" // held by the serve whose counters are kept
)

// How long what is remembered may take, where serve waits for it.
const (
	saveEvery   = time.Minute
	openTime    = time.Minute     // at start: a million bans take some seconds
	settingTime = time.Second     // to tell commands what the policy says
	overlapTime = 3 * time.Second // for a serve that is about to end
	heardIn     = 5 * time.Second // after which counters have what operators said before
)

// A memory is what outlives serve: the registry of clients, bans and
// operators' words, and a snapshot of the counters. The zero memory remembers
// nothing.
type memory struct {
	dir       string // "": nothing is kept
	registrar *registrar.Registrar
	store     *lateStore
	key       []byte   // of references; nil: a random one
	said      []string // how it was found
	log       func(string)
	readOnly  bool // the folder cannot be written, at the start
	untold    bool // commands do not know yet what tellCommands tells; serve's

	mu     sync.Mutex     // of what follows
	lock   *lockfile.Lock // nil: another serve keeps its counters in dir
	handed bool           // the counters are the successor's
	failed bool           // the last snapshot did
}

// memoryTerms say what is remembered, and where.
type memoryTerms struct {
	dir      string // "": nowhere
	named    bool   // dir was chosen by somebody
	registry bool   // there is to be one
	file     *policyfile.File
	bans     *fairshare.Bans
	client   func(netip.Addr) netip.Prefix // of the policy that holds
	lift     func(fairshare.ClientID, time.Time)
	now      func() time.Time
	log      func(string)
}

// openMemory finds what an earlier serve has left. Bans are restored; what is
// wrong with a folder that nobody chose is said, and nothing remembered.
func openMemory(ctx context.Context, t memoryTerms) (*memory, error) {
	m := &memory{log: t.log}
	if t.dir == "" {
		m.said = append(m.said, "$HOME is not set; --state DIR names a folder")
		return m, nil
	}
	m.dir = t.dir
	err := os.MkdirAll(t.dir, 0o700)
	if err == nil {
		err = m.takeLock(ctx, t.log)
	}
	switch {
	case err == nil:
	case m.there() && brokenDisk(err):
		t.log(fmt.Sprintf("warning: state folder: %v: what is there is read, and nothing new remembered until it can be written", err))
		m.readOnly = true
	case t.named:
		return nil, &hintError{fmt.Errorf("state folder: %w", err), "name a folder that can be written: --state DIR"}
	default:
		t.log(fmt.Sprintf("warning: nothing is remembered over a restart: %v; --state DIR names another folder", err))
		m.dir = ""
		return m, nil
	}
	if !t.registry {
		m.said = append(m.said, "no registry (bans end with it, operators are not heard)")
		return m, nil
	}
	if err := m.openRegistry(ctx, &t); err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

// there reports whether the state folder is.
func (m *memory) there() bool {
	info, err := os.Stat(m.dir)
	return err == nil && info.IsDir()
}

// brokenDisk reports whether it is the disk that keeps a file from being made,
// and not what somebody has set.
func brokenDisk(err error) bool {
	return errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EIO)
}

// takeLock makes this the serve whose counters are kept in the folder, unless
// another is. One that is about to end gets some time.
func (m *memory) takeLock(ctx context.Context, log func(string)) (err error) {
	ctx, cancel := context.WithTimeout(ctx, overlapTime)
	defer cancel()
	for {
		m.lock, err = lockfile.Take(filepath.Join(m.dir, lockFile))
		if !errors.Is(err, lockfile.ErrHeld) {
			return err
		}
		select {
		case <-ctx.Done():
			log(fmt.Sprintf("warning: another fairshare serve keeps its counters in %s: those of this one begin anew; --state DIR gives it a folder of its own", m.dir))
			return nil
		case <-time.After(overlapTime / 60):
		}
	}
}

// openRegistry opens the registry and restores the bans in it.
func (m *memory) openRegistry(ctx context.Context, t *memoryTerms) (err error) {
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	path := filepath.Join(m.dir, registryName)
	opts := sqlregistry.Options{Clients: t.file.Registry.Clients, Stories: t.file.Registry.Stories, Age: t.file.Registry.Age, Log: t.log}
	m.store, err = openLate(ctx, path, opts, t.log)
	if err != nil {
		return registryError(err)
	}
	if m.key, err = m.store.ReferenceKey(ctx); err != nil {
		return registryError(err)
	}
	m.registrar = registrar.New(registrar.Options{
		Store: m.store, Prefix: t.client, Now: t.now, Log: t.log,
		Lift: t.lift,
	})
	if err := m.registrar.Start(ctx); err != nil {
		return registryError(err)
	}
	bans, now := 0, t.now()
	banning := map[string]bool{}
	for i := range t.file.Policy.Rules {
		banning[t.file.Policy.Rules[i].Name] = t.file.Policy.Rules[i].Ban != nil
	}
	for ban, err := range m.store.Bans(ctx, now, true) {
		if err != nil {
			return registryError(err)
		}
		if ahead := ban.Began.Sub(now); ahead > 0 { // a clock was: none is longer than it was when it began
			ban.Began, ban.Until, ban.Since = now, ban.Until.Add(-ahead), ban.Since.Add(-ahead)
		}
		t.bans.Restore(ban)
		if ban.Until.After(now) && !ban.DryRun && banning[ban.Rule] {
			bans++
		}
	}
	t.bans.Observe(m.registrar.Banned)
	words, _, err := m.store.Words(ctx)
	if err != nil {
		return registryError(err)
	}
	allowed := 0
	for i := range words {
		switch word := &words[i]; {
		case !word.Until.IsZero() && !word.Until.After(now):
		case word.Action == fairshare.Allow:
			allowed++
		default:
			bans++
		}
	}
	if bans > 0 {
		m.said = append(m.said, counted(bans, "ban", "bans")+" in force")
	}
	if allowed > 0 {
		m.said = append(m.said, counted(allowed, "word", "words")+" of allow")
	}
	return nil
}

// registryError adds what to do about a registry that cannot be used.
func registryError(err error) error {
	var fault *sqlregistry.Error
	if errors.As(err, &fault) && fault.Hint() != "" {
		return &hintError{err, fault.Hint()}
	}
	return err
}

// recall takes up the counters that an earlier serve has left, less the
// refusals of those whom operators have let in since.
func (m *memory) recall(ctx context.Context, limiter *memlimit.Limiter, guard *fairshare.Guard, now time.Time) {
	if m.dir == "" || m.lock == nil && !m.readOnly {
		return
	}
	path := filepath.Join(m.dir, countersFile)
	loaded, err := limiter.LoadFile(path, now)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return
	case err != nil:
		aside := ""
		if errors.Is(err, memlimit.ErrUnusable) {
			aside = ", and the file could not be set aside"
			if to, err := memlimit.SetAside(path); err == nil {
				aside = ", and the file is " + to + " now"
			}
		}
		m.log(fmt.Sprintf("warning: counters: %v; all begin anew%s", err, aside))
		return
	}
	said := fmt.Sprintf("counters of %v ago", max(0, now.Sub(loaded.At)).Round(time.Second))
	if len(loaded.Fresh) > 0 {
		said += ", but anew of " + firstFew(loaded.Fresh)
	}
	m.said = append(m.said, said)
	if m.store == nil {
		return
	}
	lifted, err := m.store.Lifted(ctx, loaded.At.Add(-heardIn))
	for _, l := range lifted {
		err = errors.Join(err, guard.Forgive(ctx, l.Client, now))
	}
	if err != nil {
		m.log(fmt.Sprintf("warning: refusals of those who are banned no more count on: %v", err))
	}
}

// save writes a snapshot of the counters. What goes wrong is said once.
func (m *memory) save(limiter *memlimit.Limiter, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dir == "" || m.handed {
		return
	}
	if m.lock == nil {
		lock, err := lockfile.Take(filepath.Join(m.dir, lockFile))
		if err != nil {
			return // the other serve is still there
		}
		m.lock = lock
	}
	path := filepath.Join(m.dir, countersFile)
	err := limiter.SaveFile(path, now)
	switch {
	case err != nil && !m.failed:
		m.log(fmt.Sprintf("warning: the counters could not be written: %v; a restart would forget what was counted since; it is tried again every minute", err))
	case err == nil && m.failed:
		m.log("the counters are written again")
	}
	m.failed = err != nil
}

// run keeps the registry and a snapshot of the counters up to date until ctx
// ends, and then writes the last.
func (m *memory) run(ctx context.Context, counters func() (*memlimit.Limiter, time.Time)) {
	var all sync.WaitGroup
	defer all.Wait()
	if m.registrar != nil {
		all.Go(func() {
			if err := m.registrar.Run(ctx); err != nil {
				m.log(fmt.Sprintf("warning: the registry: %v", err))
			}
		})
	}
	every := time.NewTicker(saveEvery)
	defer every.Stop()
	for {
		select {
		case <-every.C:
			m.save(counters())
		case <-ctx.Done():
			m.save(counters())
			return
		}
	}
}

// handOver writes the counters for the last time, and lets a successor have
// them.
func (m *memory) handOver(limiter *memlimit.Limiter, now time.Time) {
	m.save(limiter, now)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.handed = true
	m.lock.Release()
	m.lock = nil
}

// where tells where all this is, and what was found there.
func (m *memory) where() string {
	return strings.Join(append([]string{cmp.Or(m.dir, "none")}, m.said...), ", ")
}

// tellCommands writes what operators' commands have to know of a site. What
// goes wrong is said once; call it again then.
func (m *memory) tellCommands(ctx context.Context, st *site) {
	if m.registrar == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, settingTime)
	defer cancel()
	var names []string
	for b := range st.who.table.Bots {
		names = append(names, b.Name)
	}
	err := m.store.SetSettings(ctx, sqlregistry.Settings{
		Policy: st.file.Name, Contact: st.file.Contact, TrustedProxies: st.clients.Trusted(),
		IPv4Prefix: cmp.Or(st.file.Policy.IPv4Prefix, 32), IPv6Prefix: cmp.Or(st.file.Policy.IPv6Prefix, 64), Bots: names,
		DryRun: st.file.Policy.DryRun,
	})
	if err != nil && !m.untold {
		m.log(fmt.Sprintf("warning: commands as fairshare ban do not know of this policy's trusted proxies: %v; it is tried again every minute", err))
	}
	m.untold = err != nil
}

// word is what operators have said of a client; nil when nothing is known.
func (m *memory) word() func(netip.Addr, fairshare.Bot, time.Time) fairshare.Word {
	if m.registrar == nil {
		return nil
	}
	return m.registrar.Word
}

// passed is who hears of requests that were let through; nil for nobody.
func (m *memory) passed() func(*httpguard.Passage) {
	if m.registrar == nil {
		return nil
	}
	return func(p *httpguard.Passage) {
		m.registrar.Passed(registrar.Passage{
			Addr: p.Addr, Bot: p.Bot, UserAgent: p.UserAgent, At: p.Time,
			Took: p.Took, CPU: p.CPU, Bytes: p.Bytes, Status: p.Status,
		})
	}
}

// refused notes a refusal; path is what may be kept of it. The answer to
// whoever is banned waits until the ban outlives the process.
func (m *memory) refused(r *httpguard.Report, path string) {
	if m.registrar == nil {
		return
	}
	req, f := r.Request, &r.Finding
	story := fairshare.Story{
		ID: r.ID, Action: f.Action, Ban: f.Ban, DryRun: r.DryRun, Status: r.Status,
		Method: req.Method, Host: req.Host, Path: path,
	}
	if f.Action == fairshare.Refuse {
		story.Until = req.Time.Add(f.Wait)
	}
	if f.Rule != nil {
		story.Rule = f.Rule.Name
		if lim := f.Rule.Limit; lim != nil && f.Action == fairshare.Refuse && f.Ban != fairshare.BanInForce {
			story.By, story.Resource = keyWords(lim.By), lim.Resource.String()
			story.Used, story.Allowed, story.Window = f.Tally.Used, lim.Allowed(), lim.Window
		}
	}
	m.registrar.Refused(registrar.Refusal{
		Passage: registrar.Passage{Addr: req.Addr, Bot: req.Bot, UserAgent: req.UserAgent, At: req.Time},
		Story:   story,
	})
	if f.Ban != fairshare.NotBanned && !r.DryRun && f.Rule != fairshare.OperatorBan {
		m.registrar.Settle(context.Background())
	}
}

// close ends what openMemory began.
func (m *memory) close() {
	m.lock.Release()
	if m.store != nil {
		m.store.Close()
	}
}
