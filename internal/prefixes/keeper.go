package prefixes

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"sync"
	"time"
)

const (
	// DefaultEvery is the default interval between two fetches of a URL.
	DefaultEvery = 24 * time.Hour
	// LeastEvery is the shortest interval between two fetches of a URL.
	LeastEvery = time.Minute

	pollEvery  = 2 * time.Second // between two checks of the files
	firstRetry = time.Minute     // after the first failed fetch; then doubled
	lastRetry  = time.Hour       // limit of the doubling, if Every is not shorter
)

// A Source is the file or URL of one list.
type Source struct {
	Name  string
	File  string
	URL   string        // http or https; a name and password in it are never logged
	Every time.Duration // between two fetches, plus up to a tenth; 0: DefaultEvery; at least LeastEvery
}

// An Update is a new version of a list.
type Update struct {
	Name     string
	Prefixes []netip.Prefix // the receiver may keep it; empty if the list is
	At       time.Time      // time of the last fetch, or of the last change of the file
}

// Options configure a Keeper.
type Options struct {
	Sources []Source

	// Change is called with each version, the first time from Open, and by one goroutine at a time.
	Change func(Update)
	// Check may refuse a version; nil: it refuses none. Versions that cannot be parsed are always
	// refused, and so is an empty version while the one in use is not empty.
	Check func(Update) error

	// Had returns the version of a URL that was in use before. If no copy is as new, it stays until
	// the URL answers. nil: there is none.
	Had func(Source) (u Update, had bool)

	Folder string        // folder for copies of answers, created if missing; "": no copies
	Later  bool          // Open fetches no URL; Run does, and at once if there is no copy
	Delay  time.Duration // from the start of Run to its first fetch, and up to as much again

	Noun      string            // for a source in messages; "": list
	Without   string            // text in messages about a source without a version; "": it is empty until it answers
	Log       func(string)      // gets one line for each problem, and one at its end; nil: no log
	Agent     string            // User-Agent of fetches; "": fairshare
	MaxSize   int               // most unpacked bytes of a list; 0: MaxSize
	Transport http.RoundTripper // nil: one of its own
}

// A Status describes a source.
type Status struct {
	Name     string
	From     string    // the file, or scheme and host of the URL
	Prefixes int       // in use
	At       time.Time // as in Update; zero: there is no version yet
	Problem  string    // the newest problem that continues; "": none
}

// A Keeper keeps lists up to date. It is safe for concurrent use.
type Keeper struct {
	options Options
	client  *http.Client
	folder  string // "": copies cannot be stored

	mu      sync.Mutex // held while a version is adopted, and for Status
	sources []*source
}

// A source is the state of one list. Its fields are used by Run's goroutine for it, by Open, and by
// Reload under Keeper.mu.
type source struct {
	Source
	from     string // for messages
	prefixes int
	at       time.Time
	sum      [sha256.Size]byte // of the version in use
	held     bool              // there is a version in use
	problems []problem         // problems that continue

	file, seen fileStamp // of the version read last; of the last check

	validators           // of the version in use
	due        time.Time // time of the next fetch
	failures   int       // in a row
}

// A problem is logged once, until it ends or its text changes.
type problem struct {
	kind, text string
	reason     string // the same for all sources with one cause; "": no common cause
	silent     bool   // not logged, because others with the same reason were
}

// maxAlike is how many sources are logged with the same reason. So a machine without a network does
// not log a line for each of fifty lists.
const maxAlike = 3

// Open loads all lists: files, and for URLs the stored copies or the versions from Options.Had. A
// URL without either is fetched now (all at once, ten seconds at most), unless Options.Later is
// set. If that fails, its list is empty, which is logged.
//
// The error joins all missing or broken files and all invalid sources. There is no Close; Run keeps
// the lists up to date.
func Open(ctx context.Context, o Options) (*Keeper, error) {
	k := &Keeper{options: o, client: newClient(o.Transport)}
	if k.options.Noun == "" {
		k.options.Noun = "list"
	}
	if k.options.Without == "" {
		k.options.Without = "it is empty until it answers"
	}
	if k.options.MaxSize == 0 {
		k.options.MaxSize = MaxSize
	}
	var errs []error
	names := map[string]bool{}
	for _, given := range o.Sources {
		s := &source{Source: given, from: given.File}
		err := s.check()
		if err == nil && names[s.Name] {
			err = errors.New("there are two with this name")
		}
		if err != nil {
			errs = append(errs, k.named(s, err))
			continue
		}
		names[s.Name] = true
		k.sources = append(k.sources, s)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	k.openFolder()
	now := time.Now()
	var missing []*source
	for _, s := range k.sources {
		switch {
		case s.File != "":
			if err := k.readFile(s, now); err != nil {
				errs = append(errs, k.named(s, fmt.Errorf("file %s: %w", s.File, err)))
			}
		default:
			k.readCopy(s, now)
			if !k.takeOver(s, now) {
				s.due = now
				missing = append(missing, s)
			}
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	k.options.Had = nil // it may have a former Keeper, and that the one before
	if !o.Later {
		ctx, cancel := context.WithTimeoutCause(ctx, answerWithin, errLate)
		defer cancel()
		var all sync.WaitGroup
		for _, s := range missing {
			all.Go(func() { k.fetch(ctx, s) })
		}
		all.Wait()
	}
	return k, nil
}

// named adds the name of the list to an error.
func (k *Keeper) named(s *source, err error) error {
	return &SourceError{Name: s.Name, Noun: k.options.Noun, Err: err}
}

// A SourceError is an error of one source.
type SourceError struct {
	Name string
	Noun string // Options.Noun
	Err  error
}

func (e *SourceError) Error() string { return fmt.Sprintf("%s %s: %v", e.Noun, e.Name, e.Err) }

func (e *SourceError) Unwrap() error { return e.Err }

// check reports an invalid source, and fills in defaults.
func (s *source) check() error {
	switch {
	case s.Name == "":
		return errors.New("it has no name")
	case (s.File == "") == (s.URL == ""):
		return errors.New("it needs either a file or a URL")
	case s.File != "":
		return nil
	}
	u, err := url.Parse(s.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		// without the URL, because it may contain a password
		return errors.New("its URL has to begin with https:// or http://, and a host")
	}
	s.from = u.Scheme + "://" + u.Host
	if s.Every <= 0 {
		s.Every = DefaultEvery
	}
	s.Every = max(s.Every, LeastEvery)
	return nil
}

// Run keeps the lists up to date until ctx ends. It checks files every two seconds, and fetches
// each URL when it is due. It returns when all its goroutines have ended. Only one Run may be
// active.
func (k *Keeper) Run(ctx context.Context) {
	var all sync.WaitGroup
	files := false
	for _, s := range k.sources {
		if s.File != "" {
			files = true
			continue
		}
		all.Go(func() { k.follow(ctx, s) })
	}
	if files {
		all.Go(func() { k.poll(ctx) })
	}
	all.Wait()
}

// follow fetches one URL repeatedly.
func (k *Keeper) follow(ctx context.Context, s *source) {
	first := time.Until(s.due)
	if d := k.options.Delay; d > 0 {
		first = max(first, d+time.Duration(rand.Int64N(int64(d))))
	}
	timer := time.NewTimer(first)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		k.fetch(ctx, s)
		timer.Reset(time.Until(s.due))
	}
}

// fetch fetches a URL once and adopts the answer.
func (k *Keeper) fetch(ctx context.Context, s *source) {
	got, err := k.get(ctx, s)
	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), errLate) {
		return // ctx ended, which is not a problem of the URL
	}
	now := time.Now()
	var prefixes []netip.Prefix
	if err == nil && !got.unchanged {
		if prefixes, err = Parse(got.body); err == nil && len(prefixes) == 0 {
			err = errEmpty
		}
	}
	k.mu.Lock()
	switch {
	case err == nil && got.unchanged:
		s.at = now
	case err == nil:
		err = k.take(s, Update{Name: s.Name, Prefixes: prefixes, At: now}, got.body)
	}
	if err != nil {
		s.due = now.Add(max(s.retry(), min(got.retryAfter, s.Every)))
		k.trouble(s, problem{kind: "fetch", text: fmt.Sprintf("%s: %v; %s", s.from, err, k.stays(s)),
			reason: err.Error()})
		k.mu.Unlock()
		return
	}
	s.failures = 0
	s.due = now.Add(s.pause())
	k.over(s, "fetch", s.from+" answers again")
	k.mu.Unlock()
	if got.unchanged {
		err = k.touchCopy(s, now)
	} else {
		s.validators = got.validators
		err = k.writeCopy(s, got.body, now)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		s.validators = validators{} // fetch the full list until a copy can be stored
		k.logNoCopy(s, err)
		return
	}
	k.logCopyStored(s)
}

// logNoCopy logs once for all sources that copies cannot be stored.
func (k *Keeper) logNoCopy(s *source, err error) {
	text := fmt.Sprintf("copies cannot be stored: %v", err)
	logged := slices.ContainsFunc(k.sources, func(s *source) bool { return s.problem("copy") == text })
	if s.note(problem{kind: "copy", text: text}) && !logged {
		k.logText("the lists from URLs are in use, but " + text +
			"; after a restart without these URLs they would be missing")
	}
}

func (k *Keeper) logCopyStored(s *source) {
	if _, was := s.clear("copy"); was && !slices.ContainsFunc(k.sources,
		func(s *source) bool { return s.problem("copy") != "" }) {
		k.logText("copies of lists from URLs are stored again")
	}
}

// pause returns the wait after a successful fetch. It is random, so that machines that started
// together do not stay together.
func (s *source) pause() time.Duration {
	return s.Every + time.Duration(rand.Int64N(int64(s.Every/10)))
}

// retry returns the wait after a failed fetch.
func (s *source) retry() time.Duration {
	wait := min(firstRetry<<min(s.failures, 10), lastRetry, s.Every)
	s.failures++
	return wait + time.Duration(rand.Int64N(int64(wait/10)))
}

var errEmpty = errors.New("it contains no address")

// take puts a version into use unless it is refused. The caller holds k.mu.
func (k *Keeper) take(s *source, u Update, raw []byte) error {
	sum := sha256.Sum256(raw)
	if s.held && sum == s.sum {
		s.at = u.At
		return nil
	}
	if k.options.Check != nil {
		if err := k.options.Check(u); err != nil {
			return err
		}
	}
	s.held, s.sum, s.prefixes, s.at = true, sum, len(u.Prefixes), u.At
	if k.options.Change != nil {
		k.options.Change(u)
	}
	return nil
}

// takeOver uses the version from Options.Had if it is newer than the source's own. It reports
// whether the source has a version.
func (k *Keeper) takeOver(s *source, now time.Time) bool {
	if k.options.Had == nil {
		return s.held
	}
	if u, had := k.options.Had(s.Source); had && u.At.After(s.at) && k.take(s, u, nil) == nil {
		s.validators, s.due = validators{}, now
	}
	return s.held
}

// stays says which version stays in use despite a problem.
func (k *Keeper) stays(s *source) string {
	if !s.held {
		return k.options.Without
	}
	return fmt.Sprintf("the %s of %s stay in use", count(s.prefixes), s.at.UTC().Format("2006-01-02 15:04 UTC"))
}

func count(n int) string {
	if n == 1 {
		return "1 prefix"
	}
	return fmt.Sprintf("%d prefixes", n)
}

// problem returns the text of a problem that continues; "": there is none.
func (s *source) problem(kind string) string {
	for _, p := range s.problems {
		if p.kind == kind {
			return p.text
		}
	}
	return ""
}

// note records a problem, and reports whether it is new.
func (s *source) note(p problem) bool {
	if s.problem(p.kind) == p.text {
		return false
	}
	s.clear(p.kind)
	s.problems = append(s.problems, p)
	return true
}

// clear removes a problem, and returns it if there was one.
func (s *source) clear(kind string) (p problem, was bool) {
	i := slices.IndexFunc(s.problems, func(p problem) bool { return p.kind == kind })
	if i < 0 {
		return problem{}, false
	}
	p = s.problems[i]
	s.problems = slices.Delete(s.problems, i, i+1)
	return p, true
}

// trouble logs a problem, unless it was already logged. The caller holds k.mu.
func (k *Keeper) trouble(s *source, p problem) {
	alike := 0
	for _, other := range k.sources {
		if p.reason != "" && other != s && slices.ContainsFunc(other.problems,
			func(o problem) bool { return o.kind == p.kind && o.reason == p.reason }) {
			alike++
		}
	}
	p.silent = alike >= maxAlike
	switch news := s.note(p); {
	case !news:
	case !p.silent:
		k.log(s, p.text)
	case alike == maxAlike:
		k.logText(fmt.Sprintf("%s %s, and perhaps others, have the same problem: %s", k.options.Noun, s.Name, p.reason))
	}
}

// over logs the end of a problem, if the problem was logged. The caller holds k.mu.
func (k *Keeper) over(s *source, kind, text string) {
	if p, was := s.clear(kind); was && !p.silent {
		k.log(s, fmt.Sprintf("%s: %s", text, count(s.prefixes)))
	}
}

func (k *Keeper) log(s *source, text string) {
	k.logText(fmt.Sprintf("%s %s: %s", k.options.Noun, s.Name, text))
}

func (k *Keeper) logText(text string) {
	if k.options.Log != nil {
		k.options.Log(text)
	}
}

// Status describes each source, in the order of Options.
func (k *Keeper) Status() []Status {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := make([]Status, len(k.sources))
	for i, s := range k.sources {
		all[i] = Status{Name: s.Name, From: s.from, Prefixes: s.prefixes, At: s.at}
		if n := len(s.problems); n > 0 {
			all[i].Problem = s.problems[n-1].text
		}
	}
	return all
}

func (k *Keeper) openFolder() {
	if k.options.Folder == "" {
		return
	}
	k.folder = k.options.Folder
	if err := os.MkdirAll(k.folder, 0o700); err == nil {
		k.sweep()
	} // otherwise writing the first copy reports it
}
