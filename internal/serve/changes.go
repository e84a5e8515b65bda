package serve

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"fairshare/internal/cli"
	"fairshare/internal/console"
	"fairshare/internal/prose"
	"fairshare/internal/setup"
	"fairshare/policyfile"
)

// A reloadCall asks the goroutine of serve to reload.
type reloadCall struct {
	ctx    context.Context
	plan   string
	answer chan reloadAnswer // has room for one
}

type reloadAnswer struct {
	changes *console.Reload
	err     error
}

// callReload is the reload of operators: see [console.Options].
func (s *server) callReload(ctx context.Context, plan string, apply bool) (*console.Reload, error) {
	if !apply {
		return s.looks.changes(ctx)
	}
	call := reloadCall{ctx, plan, make(chan reloadAnswer, 1)}
	select {
	case s.reloads <- call:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case a := <-call.answer:
		return a.changes, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// answerReload does what a call asks for.
func (s *server) answerReload(ctx context.Context, call reloadCall) (*console.Reload, error) {
	if call.ctx.Err() != nil {
		return nil, call.ctx.Err() // nobody waits for it any more
	}
	changes, sum := s.look(ctx)
	switch {
	case len(changes.Faults) > 0:
		return changes, nil
	case changes.Plan != call.plan:
		return nil, console.ErrChanged
	}
	err := s.reload(ctx, "reload", hasSum(sum))
	switch {
	case errors.Is(err, console.ErrChanged):
		return nil, err
	case err != nil: // a file that the policy names has changed in this moment, or cannot be written
		changes.Faults = []string{"the reload failed, and nothing has changed; the log of the server says why\n"}
	}
	changes.Applied = err == nil
	return changes, nil
}

// hasSum accepts one version of the policy file, with all files that it includes: somebody may write them between
// the look and the reload.
func hasSum(sum uint64) func(*policyfile.File) error {
	return func(file *policyfile.File) error {
		if file.Sum() != sum {
			return console.ErrChanged
		}
		return nil
	}
}

// errStopping answers questions that a stopping server does not look at.
var errStopping = errors.New("the server is stopping")

// looks answer what a reload would change. Such a question needs no token at a loopback address, and its answer is
// work. So one version of the policy file is tried at a time, and its result answers all questions that came before
// the trial began. After a trial nothing is tried for four times as long, so that trials use at most a fifth of a
// processor core. It is safe for concurrent use.
type looks struct {
	try     func() *console.Reload
	trying  chan struct{}  // has room for one: the trial in progress
	free    time.Time      // when the next trial may begin; of the trial in progress
	all     sync.WaitGroup // of trials
	stopped chan struct{}  // closed by stop

	mu    sync.Mutex
	next  *look // its trial has not begun; nil: nobody waits for one
	ended bool  // no trial begins any more
}

// A look is a trial and its result, which nobody changes.
type look struct {
	done    chan struct{}   // closed when there is a result
	changes *console.Reload // nil: the server stops
}

// mostPause is the longest time between two trials: an operator does not wait longer.
const mostPause = 2 * time.Second

func newLooks(try func() *console.Reload) *looks {
	return &looks{try: try, trying: make(chan struct{}, 1), stopped: make(chan struct{})}
}

// changes returns the result of a trial that begins after the call.
func (l *looks) changes(ctx context.Context) (*console.Reload, error) {
	l.mu.Lock()
	if l.ended {
		l.mu.Unlock()
		return nil, errStopping
	}
	mine := l.next
	if mine == nil {
		mine = &look{done: make(chan struct{})}
		l.next = mine
		l.all.Go(func() { l.run(mine) })
	}
	l.mu.Unlock()
	select {
	case <-mine.done:
		if mine.changes == nil {
			return nil, errStopping
		}
		return mine.changes, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// run tries the policy file when it is time.
func (l *looks) run(mine *look) {
	defer close(mine.done)
	l.trying <- struct{}{}
	defer func() { <-l.trying }()
	pause := time.NewTimer(time.Until(l.free))
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-l.stopped:
	}
	l.mu.Lock()
	ended := l.ended
	l.next = nil
	l.mu.Unlock()
	if ended {
		return
	}
	began := time.Now()
	mine.changes = l.try()
	took := time.Since(began)
	l.free = time.Now().Add(min(4*took, mostPause))
}

// stop waits for the trial in progress. No other begins. Only one call is allowed.
func (l *looks) stop() {
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	close(l.stopped)
	l.all.Wait()
}

// texts collects what is written, one entry for each write.
type texts []string

func (t *texts) Write(text []byte) (int, error) {
	*t = append(*t, string(text))
	return len(text), nil
}

// look returns what a reload would change, and the sum of the policy file that was read. Any goroutine may call it.
// It fetches nothing from other hosts.
func (s *server) look(ctx context.Context) (c *console.Reload, sum uint64) {
	s.changing.Lock()
	defer s.changing.Unlock()
	c = console.NewReload(s.runtime.Load().File.Name)
	var written texts
	sum, err := s.tryChanges(ctx, c, &written)
	if err != nil {
		cli.PrintError(&written, setup.PrintFaults(&written, err))
		c.Faults = append(c.Faults, written...)
	} else {
		c.Warnings = append(append([]string{}, written...), c.Warnings...)
	}
	return c, sum
}

// tryChanges fills c, and writes warnings, each with one write. An error, and what was written before it, is about
// the policy. The sum is that of the policy file.
func (s *server) tryChanges(ctx context.Context, c *console.Reload, w io.Writer) (sum uint64, err error) {
	file, err := s.options.load(w)
	if err != nil {
		return 0, err
	}
	sum = file.Sum()
	old := s.runtime.Load()
	differ := old.File.Changes(file)
	c.SetRules(&differ)
	c.Restart = append(c.Restart, keepUntilRestart(old.File, file)...)
	upstream, sites, err := s.options.parseUpstreams(file)
	if err != nil {
		return sum, err
	}
	trial, effects, err := s.policy.Try(ctx, file)
	if err != nil {
		return sum, err
	}
	defer s.policy.Discard(trial)
	next := newRuntime(trial, upstream, sites, old.meter)
	if err := s.checkAddresses(next); err != nil {
		return sum, err
	}
	if _, err := newTracing(file); err != nil {
		return sum, err
	}
	if file.TLS != nil {
		if _, err := s.prepareTLS(file); err != nil {
			return sum, err
		}
	}
	if old.mode() != next.mode() {
		c.Settings = append(c.Settings, "mode: "+next.mode())
	}
	c.Settings = append(c.Settings, changes(old, next)...)
	if other := undescribed(differ.Settings, c.Settings, c.Restart); len(other) > 0 {
		c.Settings = append(c.Settings, "other settings that change: "+strings.Join(other, ", "))
	}
	c.FromZero = append(c.FromZero, effects.FromZero...)
	c.Warnings = append(c.Warnings, setup.UnknownOwners(file, trial.Owners)...)
	for _, warning := range s.warnings(next) {
		c.Warnings = append(c.Warnings, "warning: "+warning+"\n")
	}
	shown, err := json.Marshal(c)
	if err != nil {
		return sum, err
	}
	c.Plan = fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(shown, " %x %x", old.File.Sum(), sum)))[:32]
	// Bans come and go at any time, so the plan does not have their numbers.
	c.Bans = effects.Bans
	for _, b := range effects.Suspended {
		c.Suspended = append(c.Suspended, fmt.Sprintf("%s (%s)", b.Rule, prose.Plural(b.N, "ban")))
	}
	return sum, nil
}

// undescribed returns the keys that neither a line nor a setting of a restart names.
func undescribed(keys, lines, restart []string) (other []string) {
	for _, key := range keys {
		described := key == "dry_run" || slices.ContainsFunc(lines, func(line string) bool {
			return strings.HasPrefix(line, key+":")
		}) || slices.ContainsFunc(restart, func(name string) bool { return name == key })
		if !described {
			other = append(other, key)
		}
	}
	return other
}

// keepUntilRestart returns the names of settings that have changed and that a
// running server cannot change. It sets them to their old values.
func keepUntilRestart(old, file *policyfile.File) (names []string) {
	if file.Listen != old.Listen {
		names, file.Listen = append(names, "listen"), old.Listen
	}
	if file.ListenHTTP != old.ListenHTTP {
		names, file.ListenHTTP = append(names, "listen_http"), old.ListenHTTP
	}
	if file.Memory != old.Memory {
		names, file.Memory = append(names, "clients.memory"), old.Memory
	}
	if file.ProxyProtocol != old.ProxyProtocol {
		names, file.ProxyProtocol = append(names, "proxy_protocol"), old.ProxyProtocol
	}
	if file.H2C != old.H2C {
		names, file.H2C = append(names, "h2c"), old.H2C
	}
	if file.Registry != old.Registry {
		names, file.Registry = append(names, "registry"), old.Registry
	}
	if !file.Store.Equal(old.Store) {
		names, file.Store = append(names, "store"), old.Store
	}
	if (file.TLS == nil) != (old.TLS == nil) {
		names, file.TLS = append(names, "tls"), old.TLS
	}
	if file.Bounds.Streams != old.Bounds.Streams || file.Bounds.Header != old.Bounds.Header {
		names = append(names, "bounds.streams and bounds.header")
		file.Bounds.Streams, file.Bounds.Header = old.Bounds.Streams, old.Bounds.Header
	}
	return names
}
