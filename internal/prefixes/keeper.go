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
	// DefaultEvery is how often a URL is asked when its source does not say.
	DefaultEvery = 24 * time.Hour
	// LeastEvery is how often it is asked at most.
	LeastEvery = time.Minute

	pollEvery  = 2 * time.Second // how often files are looked at
	firstRetry = time.Minute     // after a fetch that failed; doubled
	lastRetry  = time.Hour       // up to this, or Every
)

// A Source is where the prefixes of one list come from: a file or a URL.
type Source struct {
	Name  string
	File  string
	URL   string        // http or https; a name and password in it are never told
	Every time.Duration // between two fetches, and up to a tenth more; 0: DefaultEvery; at least LeastEvery
}

// An Update is a new version of a list.
type Update struct {
	Name     string
	Prefixes []netip.Prefix // the receiver's to keep; empty when the list is
	At       time.Time      // when the URL last said so; when the file was changed
}

// Options are how a Keeper works.
type Options struct {
	Sources []Source

	// Change is called with each version, the first one from Open; by one
	// goroutine at a time.
	Change func(Update)
	// Check may refuse a version; nil: none. Versions that cannot be parsed, and
	// those that are empty while the one in use is not, are refused anyway.
	Check func(Update) error

	// Had is what was in use of a URL before. Where no copy is as new, it stays
	// until the URL answers. nil: nothing.
	Had func(Source) (u Update, had bool)

	Folder string // where answers of URLs are kept, made when missing; "": nowhere
	Later  bool   // Open asks no URL; Run does, at once where there is no copy

	What      string            // what messages call a source; "": list
	Without   string            // what they say of one without a version; "": it is empty until it answers
	Log       func(string)      // one line for each problem, and one when it is over; nil: nobody
	Agent     string            // User-Agent of fetches; "": fairshare
	MaxSize   int               // of a list in bytes, unpacked; 0: MaxSize
	Transport http.RoundTripper // nil: one of its own
}

// A Status is what is known of a source.
type Status struct {
	Name     string
	From     string    // the file, or scheme and host of the URL
	Prefixes int       // in use
	At       time.Time // as in Update; zero: there is no version yet
	Problem  string    // the newest that is not over; "": none
}

// A Keeper keeps lists up to date. It is safe for concurrent use.
type Keeper struct {
	options Options
	client  *http.Client
	folder  string // "": copies cannot be kept

	mu      sync.Mutex // held while a version is taken over, and for Status
	sources []*source
}

// A source is one list at work. Run's goroutine for it, or Open, or Reload
// under Keeper.mu, touch its fields.
type source struct {
	Source
	from     string // for messages
	prefixes int
	at       time.Time
	sum      [sha256.Size]byte // of the version in use
	held     bool              // there is one
	problems []problem         // that are not over

	file, seen fileStamp // of the version that was read last; of the last look

	validators           // of the version in use
	due        time.Time // when the URL is to be asked next
	failures   int       // in a row
}

// A problem is told once, until it is over or its text is another.
type problem struct {
	kind, text string
	reason     string // the same for all sources that suffer from one cause; "": its own
	silent     bool   // others were told of that have the same reason
}

// maxAlike is how many sources are told of with the same reason: a machine
// that reaches nobody shall not say so for each of fifty lists.
const maxAlike = 3

// Open loads all lists: files, and copies of what URLs answered before, or what
// Options.Had knows of these. A URL of which there is neither is asked now (all
// at once, ten seconds at most) unless Options.Later is set; its list is empty
// if that fails, which is logged.
//
// The error joins all files that are missing or broken, and sources that make
// no sense. Close is not needed; Run keeps the lists up to date.
func Open(ctx context.Context, o Options) (*Keeper, error) {
	k := &Keeper{options: o, client: newClient(o.Transport)}
	if k.options.What == "" {
		k.options.What = "list"
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
			err = errors.New("there are two of this name")
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

// named says which list an error is about.
func (k *Keeper) named(s *source, err error) error {
	return &SourceError{Name: s.Name, What: k.options.What, Err: err}
}

// A SourceError is about one source.
type SourceError struct {
	Name string
	What string // Options.What
	Err  error
}

func (e *SourceError) Error() string { return fmt.Sprintf("%s %s: %v", e.What, e.Name, e.Err) }

func (e *SourceError) Unwrap() error { return e.Err }

// check reports what makes no sense, and fills in what is left to us.
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
		return errors.New("its URL has to begin with https:// or http://, and a host") // never the URL: it may hold a password
	}
	s.from = u.Scheme + "://" + u.Host
	if s.Every <= 0 {
		s.Every = DefaultEvery
	}
	s.Every = max(s.Every, LeastEvery)
	return nil
}

// Run keeps the lists up to date until ctx ends: it looks at files every two
// seconds, and asks each URL when its time has come. It returns when all its
// goroutines have ended. It is to run once at a time.
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

// follow asks one URL again and again.
func (k *Keeper) follow(ctx context.Context, s *source) {
	timer := time.NewTimer(time.Until(s.due))
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

// fetch asks a URL once and takes over what it answers.
func (k *Keeper) fetch(ctx context.Context, s *source) {
	got, err := k.get(ctx, s)
	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), errLate) {
		return // we are told to stop: that is no problem of the URL's
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
		k.trouble(s, problem{kind: "fetch", text: fmt.Sprintf("%s: %v; %s", s.from, err, k.stays(s)), reason: err.Error()})
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
		s.validators = validators{} // have it sent in full, until it can be kept
		k.unkept(s, err)
		return
	}
	k.kept(s)
}

// unkept tells that copies cannot be kept, once for all sources.
func (k *Keeper) unkept(s *source, err error) {
	text := fmt.Sprintf("no copy can be kept: %v", err)
	told := slices.ContainsFunc(k.sources, func(s *source) bool { return s.problem("copy") == text })
	if s.note(problem{kind: "copy", text: text}) && !told {
		k.say("what URLs answer is in use, but " + text + "; a start that cannot reach them would not have it")
	}
}

func (k *Keeper) kept(s *source) {
	if _, was := s.clear("copy"); was && !slices.ContainsFunc(k.sources, func(s *source) bool { return s.problem("copy") != "" }) {
		k.say("copies of what URLs answer are kept again")
	}
}

// pause is how long to wait after a fetch that went well: a crowd of machines
// that were started at once shall not stay one.
func (s *source) pause() time.Duration {
	return s.Every + time.Duration(rand.Int64N(int64(s.Every/10)))
}

// retry is how long to wait after one that did not.
func (s *source) retry() time.Duration {
	wait := min(firstRetry<<min(s.failures, 10), lastRetry, s.Every)
	s.failures++
	return wait + time.Duration(rand.Int64N(int64(wait/10)))
}

var errEmpty = errors.New("it holds no address")

// take makes a version the one in use, if nothing speaks against it. With
// k.mu held.
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

// takeOver goes on with what was in use before if that is newer than what the
// source has, and reports whether the source has something.
func (k *Keeper) takeOver(s *source, now time.Time) bool {
	if k.options.Had == nil {
		return s.held
	}
	if u, had := k.options.Had(s.Source); had && u.At.After(s.at) && k.take(s, u, nil) == nil {
		s.validators, s.due = validators{}, now
	}
	return s.held
}

// stays says what goes on in spite of a problem.
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

// problem returns the text of one that is not over; "": there is none.
func (s *source) problem(kind string) string {
	for _, p := range s.problems {
		if p.kind == kind {
			return p.text
		}
	}
	return ""
}

// note takes down a problem, and reports whether that is new.
func (s *source) note(p problem) bool {
	if s.problem(p.kind) == p.text {
		return false
	}
	s.clear(p.kind)
	s.problems = append(s.problems, p)
	return true
}

// clear strikes out a problem, and returns it if there was one.
func (s *source) clear(kind string) (p problem, was bool) {
	i := slices.IndexFunc(s.problems, func(p problem) bool { return p.kind == kind })
	if i < 0 {
		return problem{}, false
	}
	p = s.problems[i]
	s.problems = slices.Delete(s.problems, i, i+1)
	return p, true
}

// trouble tells a problem, unless it has been told. With k.mu held.
func (k *Keeper) trouble(s *source, p problem) {
	alike := 0
	for _, other := range k.sources {
		if p.reason != "" && other != s && slices.ContainsFunc(other.problems, func(o problem) bool { return o.kind == p.kind && o.reason == p.reason }) {
			alike++
		}
	}
	p.silent = alike >= maxAlike
	switch news := s.note(p); {
	case !news:
	case !p.silent:
		k.log(s, p.text)
	case alike == maxAlike:
		k.say(fmt.Sprintf("%s %s, and perhaps more, for the same reason: %s", k.options.What, s.Name, p.reason))
	}
}

// over tells that a problem has ended, if it was told. With k.mu held.
func (k *Keeper) over(s *source, kind, text string) {
	if p, was := s.clear(kind); was && !p.silent {
		k.log(s, fmt.Sprintf("%s: %s", text, count(s.prefixes)))
	}
}

func (k *Keeper) log(s *source, text string) {
	k.say(fmt.Sprintf("%s %s: %s", k.options.What, s.Name, text))
}

func (k *Keeper) say(text string) {
	if k.options.Log != nil {
		k.options.Log(text)
	}
}

// Status tells how each source is, in the order given.
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
	} // else: the first copy says so
}
