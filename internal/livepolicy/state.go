package livepolicy

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/internal/cli"
	"fairshare/internal/lockfile"
	"fairshare/internal/prose"
	"fairshare/internal/registrar"
	"fairshare/internal/setup"
	"fairshare/internal/storebans"
	"fairshare/logins"
	"fairshare/memlimit"
	"fairshare/registry"
	"fairshare/sqlregistry"
)

// CountersFile is the snapshot of the counters in the state folder.
const CountersFile = "counters"

// LoginsFile is the snapshot of what is known of logins in the state folder.
const LoginsFile = "logins"

// ceilingKey is the text in a story for the key of a ceiling.
const ceilingKey = "peer, for all clients that it named together"

const (
	saveEvery       = time.Minute
	openTimeout     = time.Minute     // for the registry: a million bans take some seconds
	settingsTimeout = time.Second     // for publishSettings
	lockTimeout     = 3 * time.Second // for a process that is about to end
	overrideDelay   = 5 * time.Second // counters contain operators' overrides that are older
)

// A State is what outlives the process: the registry of clients, bans and
// operators' overrides, and a snapshot of the counters. The zero State keeps
// nothing.
type State struct {
	folder          string // "": nothing is kept
	registrar       *registrar.Registrar
	store           records  // nil: nothing is kept
	referenceKey    []byte   // nil: a random one
	findings        []string // what was found at the start, for people
	log             func(string)
	readOnly        bool            // the folder could not be written at the start
	holder          registry.Holder // written last
	logins          *logins.Watcher // nil: nothing is known of logins
	settingsPending bool            // operators' commands do not know the current settings yet

	lock atomic.Pointer[lockfile.Lock] // nil: another process keeps its counters in the folder

	mu         sync.Mutex // of what follows, and held while a snapshot is written
	saveFailed bool       // the last snapshot failed
	// handed are the snapshots that a successor found, once the folder is handed over; otherwise it is nil.
	handed []os.FileInfo
}

// openState opens the state folder and restores the bans. If the folder cannot
// be used, nothing is kept, unless Options.MustWrite is set.
func (p *Policy) openState(ctx context.Context) (*State, error) {
	o := &p.options
	s := &State{log: o.Log}
	if o.Folder == "" {
		return s, nil
	}
	s.folder = o.Folder
	err := os.MkdirAll(o.Folder, 0o700)
	if err == nil {
		err = s.takeLock(ctx)
	}
	switch {
	case err == nil:
	case s.folderExists() && isDiskError(err):
		s.log(fmt.Sprintf(
			"warning: state folder: %v: its content is read, and nothing new is stored until it is writable",
			err))
		s.readOnly = true
	case o.MustWrite:
		return nil, cli.Hint(fmt.Errorf("state folder: %w", err), "name a folder that can be written: --state DIR")
	default:
		s.log(fmt.Sprintf("warning: a restart will lose all bans and counters: %v; --state DIR names another folder",
			err))
		s.folder = ""
		return s, nil
	}
	s.continueClock(o.Clock)
	if o.NoRegistry {
		s.findings = append(s.findings, "no registry (bans end with the process, operators' commands have no effect)")
		return s, nil
	}
	if err := p.openRegistry(ctx, s); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// continueClock sets the clock to the time of the last snapshot if the system's
// clock was set back since then, so that bans and counters keep their age. A
// clock that was ahead by more than the longest window was wrong.
func (s *State) continueClock(clock *httpguard.Clock) {
	if s.lock.Load() == nil && !s.readOnly {
		return
	}
	saved, err := memlimit.SavedAt(filepath.Join(s.folder, CountersFile))
	if err != nil { // restoreCounters reports it
		return
	}
	if ahead := saved.Sub(clock.Now()); ahead > 0 && ahead <= fairshare.MaxWindow {
		clock.StartAt(saved)
		if ahead >= time.Second {
			s.findings = append(s.findings,
				fmt.Sprintf("the system's clock was set back by %v or more: bans and counters continue",
					ahead.Round(time.Second)))
		}
	}
}

func (s *State) folderExists() bool {
	info, err := os.Stat(s.folder)
	return err == nil && info.IsDir()
}

// isDiskError reports whether an error of writing a file is about the disk, and
// not about permissions or names.
func isDiskError(err error) bool {
	return errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) ||
		errors.Is(err, syscall.EIO)
}

// takeLock makes this process the one whose counters are kept in the folder,
// unless another process is. It waits a moment for one that is about to end.
func (s *State) takeLock(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	for {
		lock, err := lockfile.Take(filepath.Join(s.folder, setup.ServeLock))
		if !errors.Is(err, lockfile.ErrHeld) {
			s.lock.Store(lock)
			return err
		}
		select {
		case <-ctx.Done():
			s.log(fmt.Sprintf(
				"warning: another fairshare process keeps its counters in %s: this one starts with empty "+
					"counters; --state DIR gives it a folder of its own", s.folder))
			return nil
		case <-time.After(lockTimeout / 60):
		}
	}
}

// openRegistry opens the registry, and restores its bans and what operators
// have decided.
func (p *Policy) openRegistry(ctx context.Context, s *State) (err error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	settings, clock := &p.Current().File.Registry, p.options.Clock
	local, err := openStore(ctx, filepath.Join(s.folder, setup.RegistryFile), sqlregistry.Options{
		Clients: settings.Clients, Stories: settings.Stories, Age: settings.Age, Log: s.log}, s.log)
	if err != nil {
		return registryError(err)
	}
	s.store = local
	if remote := setup.Remote(p.Current().File, p.options.RegistryURL); remote.URL != "" {
		g, err := openGroup(ctx, local, remote, p.wallNow, s.log)
		if err != nil {
			return registryError(err)
		}
		g.restored, g.seen, g.names, g.learn = p.restoreFrom, p.knowClient, &p.confirmed, p.learnName
		s.store = g
	} else if own, err := local.writing(ctx); err == nil { // commands use this registry alone
		if err := own.SetRemote(ctx, sqlregistry.Remote{}); err != nil {
			return registryError(err)
		}
	}
	if s.referenceKey, err = s.store.ReferenceKey(ctx); err != nil {
		return registryError(err)
	}
	s.registrar = registrar.New(registrar.Options{
		Store: s.store, BanStore: s.store.banStore(), Log: s.log,
		Prefix: func(addr netip.Addr) netip.Prefix { return p.Current().File.Policy.Client(addr) },
		Now:    p.Now, Wall: clock.Wall, FromWall: clock.FromWall,
		Lift: p.lift, Forget: p.forget,
		Changed: func(ctx context.Context) error { return p.readAttack(ctx, s) },
		Applied: p.exportChanged,
	})
	if err := s.registrar.Start(ctx); err != nil {
		return registryError(err)
	}
	if err := p.readAttack(ctx, s); err != nil {
		return registryError(err)
	}
	banned, err := p.restoreBans(ctx, s)
	if err != nil {
		return registryError(err)
	}
	bannedByOperators, allowed, err := s.countOverrides(ctx, clock.Wall(p.Now()))
	if err != nil {
		return registryError(err)
	}
	if n := banned + bannedByOperators; n > 0 {
		s.findings = append(s.findings, prose.Plural(n, "ban")+" in force")
	}
	if allowed > 0 {
		s.findings = append(s.findings, prose.Plural(allowed, "allow")+" of operators")
	}
	return nil
}

// lift ends the bans of a client that began until at: an operator has lifted
// them.
func (p *Policy) lift(id fairshare.ClientID, at time.Time) {
	p.shareLift(storebans.Lift{Client: id, At: at, Stored: p.options.Clock.Wall(at)})
	p.endBans(id, at)
}

func (p *Policy) endBans(id fairshare.ClientID, at time.Time) {
	if _, err := p.Current().Guard.Lift(context.Background(), id, at, p.Now()); err != nil {
		p.options.Log(err.Error())
	}
}

// forget drops the counters of a client: an operator has had it forgotten.
func (p *Policy) forget(id fairshare.ClientID, at, stored time.Time) {
	p.shareLift(storebans.Lift{Client: id, At: at, Forget: true, Stored: stored})
	if err := p.Current().Guard.Forget(context.Background(), id, at, stored, p.Now()); err != nil {
		p.options.Log(fmt.Sprintf("forget %s: %v", id, err))
	}
}

// restoreBans puts the bans of the registry in force. It returns how many of
// them a rule of the policy enforces.
func (p *Policy) restoreBans(ctx context.Context, s *State) (enforced int, err error) {
	clock, rules := p.options.Clock, p.Current().File.Policy.Rules
	now := p.Now()
	bans := map[string]bool{} // by the name of the rule
	for i := range rules {
		bans[rules[i].Name] = rules[i].Ban != nil
	}
	for ban, err := range s.store.Bans(ctx, clock.Wall(now), true) {
		if err != nil {
			return 0, err
		}
		ban = p.restoreBan(ban, now)
		if ban.Until.After(now) && !ban.DryRun && bans[ban.Rule] {
			enforced++
		}
	}
	p.bans.Observe(func(b fairshare.BanRecord) {
		s.registrar.Banned(b)
		p.banned(b)
	})
	lifted, err := s.store.Lifted(ctx, clock.Wall(now).Add(-registry.ChangesStay))
	if err != nil {
		return 0, err
	}
	for _, l := range lifted {
		if l.Forget {
			p.history.RestoreForgotten(l.Client, l.Stored)
		}
	}
	return enforced, nil
}

// restoreBan puts a recorded ban in force, and returns it in the time of the guard.
func (p *Policy) restoreBan(ban fairshare.BanRecord, now time.Time) fairshare.BanRecord {
	clock := p.options.Clock
	ban.Began, ban.Until = clock.FromWall(ban.Began), clock.FromWall(ban.Until)
	ban.Since = clock.FromWall(ban.Since)
	if ahead := ban.Began.Sub(now); ahead > 0 { // the clock was ahead: the ban keeps its length
		ban.Began, ban.Until, ban.Since = now, ban.Until.Add(-ahead), ban.Since.Add(-ahead)
	}
	p.bans.Restore(ban)
	return ban
}

// restoreFrom puts bans of other servers in force.
func (p *Policy) restoreFrom(bans []fairshare.BanRecord) {
	now := p.Now()
	for _, ban := range bans {
		p.restoreBan(ban, now)
	}
	if len(bans) > 0 {
		p.exportChanged()
	}
}

// countOverrides returns how many clients operators have banned and allowed.
func (s *State) countOverrides(ctx context.Context, now time.Time) (banned, allowed int, err error) {
	overrides, _, err := s.store.Overrides(ctx)
	for i := range overrides {
		switch o := &overrides[i]; {
		case !o.Until.IsZero() && !o.Until.After(now):
		case o.Action == fairshare.Allow:
			allowed++
		default:
			banned++
		}
	}
	return banned, allowed, err
}

// registryError adds the hint of a registry that cannot be used.
func registryError(err error) error {
	var fault interface{ Hint() string }
	if errors.As(err, &fault) && fault.Hint() != "" {
		return cli.Hint(err, fault.Hint())
	}
	return err
}

// restoreCounters reads the snapshot of the counters, without the refusals of
// clients that operators have unbanned since.
func (s *State) restoreCounters(ctx context.Context, limiter *memlimit.Limiter, guard *fairshare.Guard,
	clock *httpguard.Clock, now time.Time) {
	if s.folder == "" || s.lock.Load() == nil && !s.readOnly {
		return
	}
	path := filepath.Join(s.folder, CountersFile)
	loaded, err := limiter.LoadFile(path, now)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return
	case err != nil:
		moved := ""
		if errors.Is(err, memlimit.ErrUnusable) {
			moved = "; the file could not be moved away"
			if to, err := memlimit.SetAside(path); err == nil {
				moved = "; the file is now " + to
			}
		}
		s.log(fmt.Sprintf("warning: counters: %v; all start from zero%s", err, moved))
		return
	}
	finding := fmt.Sprintf("counters of %v ago", max(0, now.Sub(loaded.At)).Round(time.Second))
	if len(loaded.Fresh) > 0 {
		finding += ", but from zero: " + FirstNames(loaded.Fresh)
	}
	s.findings = append(s.findings, finding)
	if s.store == nil {
		return
	}
	lifted, err := s.store.Lifted(ctx, clock.Wall(loaded.At).Add(-overrideDelay))
	for _, l := range lifted {
		err = errors.Join(err, guard.Forgive(ctx, l.Client, now))
	}
	if err != nil {
		s.log(fmt.Sprintf("warning: could not reset refusal counts of unbanned clients: %v; they may be banned again "+
			"sooner", err))
	}
}

// FirstNames lists at most five of the names, and how many more there are.
func FirstNames(names []string) string {
	if n := len(names); n > 5 {
		names = append(names[:5:5], fmt.Sprintf("and %d more", n-5))
	}
	return strings.Join(names, ", ")
}

// saveCounters writes a snapshot of the counters, nil for none, and of logins. The first error in a
// row is logged. After handOver it writes only if no other process has written since.
func (s *State) saveCounters(limiter *memlimit.Limiter, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.folder == "" {
		return
	}
	if s.lock.Load() == nil {
		lock, err := lockfile.Take(filepath.Join(s.folder, setup.ServeLock))
		if err != nil {
			return // another process keeps its counters there
		}
		s.lock.Store(lock)
	}
	if s.handed != nil {
		defer s.release()
		if !slices.EqualFunc(s.handed, s.snapshots(), isSameFile) {
			return
		}
		defer func() { s.handed = s.snapshots() }()
	}
	err := s.saveLogins()
	if limiter != nil {
		err = errors.Join(limiter.SaveFile(filepath.Join(s.folder, CountersFile), now), err)
	}
	switch {
	case err != nil && !s.saveFailed:
		s.log(fmt.Sprintf("warning: the counters could not be written: %v; a restart would lose the latest counts; "+
			"the next try is in a minute", err))
	case err == nil && s.saveFailed:
		s.log("the counters are written again")
	}
	s.saveFailed = err != nil
}

// saveLogins writes a snapshot of what is known of logins.
func (s *State) saveLogins() error {
	if s.logins == nil || s.logins.IsEmpty() {
		return nil
	}
	var content bytes.Buffer
	err := s.logins.Save(&content)
	if err == nil {
		err = replaceFile(filepath.Join(s.folder, LoginsFile), content.Bytes())
	}
	if err != nil {
		return fmt.Errorf("saving the logins: %w", err)
	}
	return nil
}

// restoreLogins reads that snapshot.
func (s *State) restoreLogins(now time.Time) {
	if s.logins == nil || s.folder == "" || s.lock.Load() == nil && !s.readOnly {
		return
	}
	f, err := os.Open(filepath.Join(s.folder, LoginsFile))
	if err == nil {
		defer f.Close()
		err = s.logins.Load(f, now)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log(fmt.Sprintf("warning: logins: %v; they are learned again", err))
	}
}

// run keeps the registry and the snapshot of the counters up to date until ctx
// ends, and then writes both for the last time.
func (s *State) run(ctx context.Context, counters func() (*memlimit.Limiter, time.Time)) {
	var all sync.WaitGroup
	defer all.Wait()
	if s.registrar != nil {
		all.Go(func() { s.store.run(ctx) })
		all.Go(func() {
			if err := s.registrar.Run(ctx); err != nil {
				s.log(fmt.Sprintf("warning: the registry: %v", err))
			}
		})
	}
	every := time.NewTicker(saveEvery)
	defer every.Stop()
	for {
		select {
		case <-every.C:
			s.saveCounters(counters())
		case <-ctx.Done():
			s.saveCounters(counters())
			return
		}
	}
}

// handOver writes the counters and releases the lock, so that a successor can read them. What requests in
// progress cost from now on is written too, until there is one.
func (s *State) handOver(limiter *memlimit.Limiter, now time.Time) {
	s.saveCounters(limiter, now)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handed = []os.FileInfo{}
	if s.lock.Load() != nil { // else those in the folder are not of this process
		s.handed = s.snapshots()
		s.release()
	}
}

func (s *State) release() { s.lock.Swap(nil).Release() }

// snapshots returns the present files of the counters and of logins, nil for one that is missing.
func (s *State) snapshots() (all []os.FileInfo) {
	for _, name := range []string{CountersFile, LoginsFile} {
		info, _ := os.Stat(filepath.Join(s.folder, name))
		all = append(all, info)
	}
	return all
}

func isSameFile(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime())
}

// describe returns the folder and what was found in it.
func (s *State) describe() string {
	return strings.Join(append([]string{cmp.Or(s.folder, "none")}, s.findings...), ", ")
}

// publishSettings writes to the registry what operators' commands have to know
// of the policy. The first error in a row is logged, and settingsPending asks for
// another call.
func (s *State) publishSettings(ctx context.Context, rt *Runtime) {
	if s.registrar == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, settingsTimeout)
	defer cancel()
	var names []string
	for b := range rt.Bots.Table.Bots {
		names = append(names, b.Name)
	}
	for _, agent := range rt.File.Bots.Agents {
		if rt.Bots.Table.Bot(agent.Bot) == nil {
			names = append(names, agent.Bot)
		}
	}
	owners := setup.OwnerFiles(rt.File)
	for _, name := range append([]*string{&owners.Hosting}, pointers(owners.Tables)...) {
		if absolute, err := filepath.Abs(*name); err == nil && *name != "" {
			*name = absolute
		}
	}
	err := s.store.SetSettings(ctx, registry.Settings{
		Policy: rt.File.Name, Contact: rt.File.Contact, TrustedProxies: rt.Clients.Trusted(),
		IPv4Prefix: cmp.Or(rt.File.Policy.IPv4Prefix, 32), IPv6Prefix: cmp.Or(rt.File.Policy.IPv6Prefix, 64),
		Bots:   names,
		DryRun: rt.File.Policy.DryRun,
		Owners: owners.Tables, Hosting: owners.Hosting,
	})
	if err != nil && !s.settingsPending {
		s.log(fmt.Sprintf("warning: commands like fairshare ban do not know this policy's trusted proxies: %v; "+
			"the next try is in a minute", err))
	}
	s.settingsPending = err != nil
}

// holderAgain is how often publishHolder repeats a report while it is so.
const holderAgain = 55 * time.Second

// publishHolder writes who holds most of the upstream to the registry, for fairshare
// clients: once when it changes, and about once a minute while somebody does.
func (s *State) publishHolder(text string, now time.Time) {
	if s.registrar == nil || text == s.holder.Text && (text == "" || now.Sub(s.holder.At) < holderAgain) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), settingsTimeout)
	defer cancel()
	next := registry.Holder{Text: text, At: now}
	if err := s.store.SetHolder(ctx, next); err == nil { // else it is tried again
		s.holder = next
	}
}

func pointers(texts []string) (all []*string) {
	for i := range texts {
		all = append(all, &texts[i])
	}
	return all
}

// override returns what finds operators' decisions about a client; nil without a
// registry.
func (s *State) override() func(netip.Addr, fairshare.Bot, time.Time) fairshare.Override {
	if s.registrar == nil {
		return nil
	}
	return s.registrar.Override
}

// close releases what openState took.
func (s *State) close() {
	s.release()
	if s.store != nil {
		s.store.Close()
	}
}
