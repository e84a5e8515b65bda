// Package watch follows growing access logs and judges their lines with a policy: refusals
// that would have been, and bans, for sites that have nothing in front. Start with [Run].
//
// A log is looked at several times a second. The lines of all logs are merged by time, as
// far as they are written, and judged in small chunks. How far each log was judged is
// stored before a chunk is judged: a line is never judged twice, and the kill of the process
// loses the lines of one chunk at most.
package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"fairshare/httpguard"
	"fairshare/internal/accesslog"
	"fairshare/internal/cli"
	"fairshare/internal/journal"
	"fairshare/internal/livepolicy"
	"fairshare/internal/setup"
	"fairshare/internal/systemd"
	"fairshare/policyfile"
)

// Options say what Run follows and judges.
type Options struct {
	Policy string   // a policy file; "" means the built-in policy
	Logs   []string // paths; "-" is Stdin
	Format string   // of the logs; "" means that it is recognized
	Zone   *time.Location
	DryRun bool
	// Once judges the lines that there are, and ends. A log without a stored position is
	// read from its beginning.
	Once bool

	State      string // the folder for files that outlive the process; "" means the default one
	NoRegistry bool
	// RegistryURL names a PostgreSQL registry in place of the policy file's; "" for none.
	RegistryURL string
	Now         func() time.Time // the system's clock
	Stdin       io.Reader
	Stderr      io.Writer
	Reload      <-chan os.Signal // each signal loads the policy again
}

const (
	lookEvery = 200 * time.Millisecond
	atOnce    = 100 * time.Millisecond // judging pauses after so long, to see to other things
	saveGrace = 15 * time.Second       // to write the registry and the counters
)

// A watcher follows logs.
type watcher struct {
	options   Options
	policy    *livepolicy.Policy
	journal   *journal.Journal
	judge     *judge
	manager   *systemd.Notifier
	positions *positions
	logs      []*log
	pipe      *pipe // nil: standard input is not read

	latest  time.Time    // of all lines that were judged, in the time of the guard
	lag     atomic.Int64 // ns by which lines are behind the present
	late    lateness
	judged  int64 // lines
	chunk   []accesslog.Entry
	measure bool // what the log lacks was reported
	open    atomic.Bool

	changedProxies chan string // a list of trusted proxies that has changed
}

// Run follows logs until ctx ends or, with Once, until their ends.
func Run(ctx context.Context, opts Options) error {
	file, err := opts.load(opts.Stderr)
	if err != nil {
		return err
	}
	w, err := newWatcher(ctx, file, opts)
	if err != nil {
		return setup.PrintFaults(opts.Stderr, err)
	}
	defer w.close()
	return w.run(ctx)
}

// load reads the policy file.
func (o *Options) load(w io.Writer) (*policyfile.File, error) {
	file, err := setup.LoadPolicy(o.Policy, w)
	if err != nil {
		return nil, err
	}
	if o.DryRun {
		file.Policy.DryRun = true
	}
	file.Share = nil // nobody waits: the requests were answered
	return file, nil
}

func newWatcher(ctx context.Context, file *policyfile.File, opts Options) (_ *watcher, err error) {
	w := &watcher{options: opts, changedProxies: make(chan string, 1)}
	w.manager = systemd.NewNotifier(w.logLine)
	folder, err := setup.StateFolder(opts.State)
	if err != nil && setup.NeedsStateFolder(file) {
		return nil, err
	}
	clock := httpguard.NewClockOf(opts.Now)
	// The counters are restored for the time of the next lines.
	if err := w.readPositions(folder, clock); err != nil {
		return nil, err
	}
	w.policy, err = livepolicy.New(ctx, file, livepolicy.Options{
		Folder:     folder,
		MustWrite:  opts.State != "" || os.Getenv("STATE_DIRECTORY") != "",
		NoRegistry: opts.NoRegistry, RegistryURL: opts.RegistryURL,
		Clock: clock,
		Now:   func() time.Time { return clock.Now().Add(-time.Duration(w.lag.Load())) },
		Log:   w.logLine,
		ProxiesChanged: func(list string) {
			select {
			case w.changedProxies <- list:
			default: // a reload is pending already
			}
		},
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	if w.journal, err = livepolicy.OpenJournal(file, opts.Stderr); err != nil {
		return nil, err
	}
	w.policy.UseJournal(w.journal, true)
	w.open.Store(true)
	if err := w.policy.OpenState(ctx); err != nil {
		return nil, err
	}
	if !w.policy.OwnsState() {
		return nil, cli.Hint(fmt.Errorf("another fairshare process uses the state folder %s", folder),
			"--state DIR gives this one a folder of its own; operators' commands take the same flag")
	}
	// Again: until now another process may have judged lines.
	if err := w.readPositions(folder, clock); err != nil {
		return nil, err
	}
	if err := w.openLogs(); err != nil {
		return nil, err
	}
	w.useRuntime(w.policy.Current())
	return w, nil
}

// readPositions reads how far the logs were judged, and continues at the time of the latest
// line.
func (w *watcher) readPositions(folder string, clock *httpguard.Clock) (err error) {
	if w.positions, err = readPositions(folder, w.logLine); err != nil {
		return err
	}
	now, latest := clock.Now(), time.Time{}
	if stored := w.positions.Latest; !stored.IsZero() {
		latest = clock.FromWall(stored)
		if latest.After(now) { // the system's clock was set back
			latest = now
		}
		w.lag.Store(int64(now.Sub(latest)))
	}
	w.latest = latest
	return nil
}

// useRuntime judges with another version of the policy.
func (w *watcher) useRuntime(rt *livepolicy.Runtime) {
	if w.judge != nil {
		if err := w.judge.live.Close(context.Background()); err != nil {
			w.logLine(err.Error())
		}
	}
	w.judge = newJudge(w.policy, rt)
}

// openLogs opens the logs.
func (w *watcher) openLogs() error {
	opts := accesslog.Options{Format: w.options.Format, Zone: w.options.Zone,
		Metric: w.policy.Current().File.UpstreamCPU.Metric}
	now := w.policy.Now()
	for _, path := range w.options.Logs {
		if path == "-" {
			var err error
			if w.pipe, err = openPipe(w.options.Stdin, opts); err != nil {
				return logError(err)
			}
			continue
		}
		path, err := filepath.Abs(path)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(w.logs, func(l *log) bool { return l.path == path }) {
			return cli.WrongUsage(fmt.Errorf("%s is named twice", path))
		}
		l := &log{path: path, opts: opts}
		w.logs = append(w.logs, l)
		found, err := l.open(w.positions.of(path), !w.options.Once, now)
		if err != nil {
			return logError(err)
		}
		if l.found = found; w.options.Once && len(l.files) == 0 {
			return logError(fmt.Errorf("%s: %w", path, fs.ErrNotExist))
		}
	}
	return nil
}

// logError adds a hint to the error of a log that cannot be read.
func logError(err error) error {
	var format *accesslog.FormatError
	switch {
	case errors.As(err, &format):
		return cli.WrongUsage(cli.Hint(err, format.Hint))
	case errors.Is(err, fs.ErrPermission):
		return cli.Hint(err, "logs are often readable for root and the group adm only: run it with sudo, or add its user "+
			"to the group")
	}
	return err
}

// run judges until ctx ends or, with Once or when only standard input is read, until the
// end.
func (w *watcher) run(ctx context.Context) error {
	w.introduce()
	w.policy.Start(ctx)
	defer w.policy.Stop()
	w.manager.Ready(w.status())
	beats, stopBeats := w.manager.Beats()
	defer stopBeats()
	looks, frequent, minute := time.NewTicker(lookEvery), time.NewTicker(5*time.Second), time.NewTicker(time.Minute)
	defer looks.Stop()
	defer frequent.Stop()
	defer minute.Stop()
	again := make(chan struct{}, 1) // there are more lines
	again <- struct{}{}
	var arrived <-chan struct{} // at standard input
	if w.pipe != nil {
		arrived = w.pipe.ready
	}
	for {
		judge := false
		select {
		case <-again:
			judge = true
		case <-looks.C:
			judge = true
		case _, more := <-arrived:
			if judge = true; !more {
				arrived = nil
			}
		case <-beats:
			w.manager.Beat()
		case <-frequent.C:
			w.printLines(w.policy.FrequentReport())
		case <-minute.C:
			w.printLines(w.policy.MinuteReport(ctx))
			w.printLines(w.minuteReport())
		case <-w.options.Reload:
			w.reload(ctx)
		case list := <-w.changedProxies:
			w.printf("list %s has changed, and trusted_proxies uses it: the policy is loaded again", list)
			w.reload(ctx)
		case <-ctx.Done():
			w.stop()
			return nil
		}
		if !judge {
			continue
		}
		more, err := w.advance(ctx)
		if err != nil {
			w.stop()
			return err
		}
		switch {
		case more:
			select {
			case again <- struct{}{}:
			default:
			}
		case w.ended(arrived == nil):
			w.stop()
			return nil
		}
	}
}

// ended reports whether there is nothing more to wait for.
func (w *watcher) ended(inputEnded bool) bool {
	if w.pipe != nil && !(inputEnded && w.pipe.ended) {
		return false
	}
	return w.options.Once || len(w.logs) == 0
}

// stop ends judging.
func (w *watcher) stop() {
	w.manager.Stopping(saveGrace)
	w.store()
	if err := w.judge.live.Close(context.Background()); err != nil {
		w.logLine(err.Error())
	}
	w.policy.HandOver()
	w.printLines(w.minuteReport())
	w.printLines(w.policy.FinalReport())
	w.printf("stopped; %d lines were judged", w.judged)
}

// advance judges lines that were written, for a moment. It reports whether there are more.
func (w *watcher) advance(ctx context.Context) (more bool, err error) {
	began := time.Now()
	w.look()
	for ctx.Err() == nil {
		sources, err := w.fill()
		if err != nil {
			return false, err
		}
		w.chunk = next(sources, w.chunk[:0])
		if len(w.chunk) == 0 {
			if !slices.ContainsFunc(sources, func(s source) bool { _, more := s.pending(); return more }) {
				return false, nil
			}
		} else if err := w.judgeChunk(ctx); err != nil {
			return false, err
		}
		if time.Since(began) > atOnce {
			return true, nil
		}
	}
	return false, nil
}

// look finds logs that were rotated, truncated or created.
func (w *watcher) look() {
	now := w.options.Now()
	for _, l := range w.logs {
		line, err := l.look(now)
		if line != "" {
			w.printf("%s", line)
		}
		if note := errorText(err); note != l.note && (note != "" || l.current() != nil) {
			if l.note = note; note != "" {
				w.printf("warning: %s; it is tried again", note)
			}
		}
		l.sweep(now)
	}
	w.store()
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// fill reads the next lines of all files that have none waiting.
func (w *watcher) fill() ([]source, error) {
	now := w.options.Now()
	var sources []source
	for _, l := range w.logs {
		unread := ""
		for _, t := range l.files {
			if err := t.fill(now, w.options.Once); err != nil {
				unread = err.Error()
				continue
			}
			sources = append(sources, t)
		}
		if unread != "" && unread != l.unread && unread != l.note {
			w.printf("warning: %s; it is tried again", unread)
		}
		l.unread = unread
	}
	if w.pipe != nil {
		if err := w.pipe.fill(now, false); err != nil {
			return nil, fmt.Errorf("standard input: %w", err)
		}
		sources = append(sources, w.pipe)
	}
	return sources, nil
}

// judgeChunk judges the lines of w.chunk.
func (w *watcher) judgeChunk(ctx context.Context) error {
	wall := w.options.Now().Round(0)
	now := w.policy.FromWall(wall)
	lines := w.chunk[:0]
	for i := range w.chunk {
		e := w.chunk[i]
		e.Time = e.Time.Add(now.Sub(wall))
		if ahead := e.Time.Sub(now); ahead > 0 { // no line was written in the future
			w.late.future = max(w.late.future, ahead)
			e.Time = now
		}
		if w.latest.Sub(e.Time) > tooLate {
			w.late.late++
			continue
		}
		if e.Time.After(w.latest) {
			w.latest = e.Time
		}
		lines = append(lines, e)
	}
	lag := max(0, now.Sub(w.latest))
	w.lag.Store(int64(lag))
	w.late.worst = max(w.late.worst, lag)
	w.store()
	if err := w.judge.live.Judge(ctx, lines); err != nil {
		return err
	}
	w.judged += int64(len(lines))
	if !w.measure && w.judged >= measureAfter {
		w.printLines(w.lackReport())
	}
	return nil
}

// store stores how far the logs were judged.
func (w *watcher) store() {
	latest := time.Time{}
	if !w.latest.IsZero() {
		latest = w.policy.Wall(w.latest).UTC()
	}
	w.positions.store(latest, w.logs)
}

// reload loads the policy again. With an error nothing changes.
func (w *watcher) reload(ctx context.Context) {
	w.manager.Reloading()
	defer func() { w.manager.Ready(w.status()) }()
	if err := setup.PrintFaults(w.journal, w.tryReload(ctx)); err != nil {
		cli.PrintError(w.journal, err)
		w.printf("SIGHUP: nothing has changed; the old policy stays in force")
	}
}

func (w *watcher) tryReload(ctx context.Context) error {
	file, err := w.options.load(w.journal)
	if err != nil {
		return err
	}
	old := w.policy.Current().File
	file.Memory, file.Registry = old.Memory, old.Registry // they need a restart
	next, err := w.policy.Prepare(ctx, file)
	if err != nil {
		return err
	}
	if err := livepolicy.ReplaceJournal(w.journal, file); err != nil {
		w.policy.Discard(next)
		return err
	}
	w.policy.Use(ctx, next, func() { w.useRuntime(next) })
	w.printf("SIGHUP: %s was loaded again: %s; counters of limits that stay, and all bans, are kept", file.Name,
		w.describePolicy())
	return nil
}

// close ends what newWatcher began.
func (w *watcher) close() {
	for _, l := range w.logs {
		l.close()
	}
	w.policy.Close()
	if w.journal != nil {
		w.journal.Close()
	}
}

// logLine writes a line to the log. Any goroutine may call it.
func (w *watcher) logLine(line string) {
	if w.open.Load() {
		w.printf("%s", line)
		return
	}
	fmt.Fprintf(w.options.Stderr, prefix+"%s\n", line)
}
