package banexport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	atOnce     = 4 // programs
	eachInTime = 10 * time.Second
	mostInCall = 64 // programs in one call of Apply; the rest comes in the next
)

// Command runs a program for each ban and for its end. What was banned is stored in a file,
// so that bans end also if the process was killed.
type Command struct {
	Ban, Unban []string // with placeholders
	Path       string   // of the stored bans; "" means that they are not stored
	Now        func() time.Time

	read   bool
	last   []Ban                 // for which Ban has run, or has failed: see possible
	failed map[netip.Prefix]bool // in the last call
}

var _ Sink = (*Command)(nil)

func (c *Command) Name() string         { return c.Ban[0] }
func (c *Command) Every() time.Duration { return 0 }

// Apply implements Sink.
func (c *Command) Apply(ctx context.Context, bans []Ban, _ bool) error {
	if !c.read {
		if err := c.load(); err != nil {
			return err
		}
		c.read = true
	}
	added, removed := difference(c.last, bans)
	jobs := make([]job, 0, len(added)+len(removed))
	for _, b := range removed {
		jobs = append(jobs, job{b, c.Unban, false})
	}
	for _, b := range added {
		jobs = append(jobs, job{b, c.Ban, true})
	}
	failed := map[netip.Prefix]bool{}
	for _, j := range jobs {
		if c.failed[j.Prefix] {
			failed[j.Prefix] = true
		}
	}
	c.failed = failed
	slices.SortStableFunc(jobs, func(a, b job) int { // a program that fails does not delay the others
		switch failedA, failedB := failed[a.Prefix], failed[b.Prefix]; {
		case failedA == failedB:
			return 0
		case failedA:
			return 1
		}
		return -1
	})
	rest := len(jobs) - mostInCall // for later calls: they do not delay the end of the process
	jobs = jobs[:min(len(jobs), mostInCall)]
	if len(jobs) == 0 {
		return nil
	}
	// Before they run: a ban of which nothing is stored would not end after a kill.
	held := slices.Clone(c.last)
	for _, j := range jobs {
		if j.ban {
			held = with(held, j.Ban)
		}
	}
	if err := c.save(held); err != nil {
		return err
	}
	var mu sync.Mutex
	var first error
	var all sync.WaitGroup
	turns := make(chan struct{}, atOnce)
	for _, j := range jobs {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			err := c.run(ctx, j)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				if first == nil {
					first = err
				}
				c.failed[j.Prefix] = true
				if j.ban && !errors.As(err, new(startError)) {
					c.last = with(c.last, possible(j.Ban)) // it may have had its effect
				}
				return
			}
			delete(c.failed, j.Prefix)
			if j.ban {
				c.last = with(c.last, j.Ban)
			} else {
				c.last = without(c.last, j.Prefix)
			}
		})
	}
	all.Wait()
	if err := c.save(c.last); first == nil {
		first = err
	}
	if first == nil && rest > 0 {
		return errMore
	}
	return first
}

// A job is one run of a program.
type job struct {
	Ban
	argv []string
	ban  bool
}

func (c *Command) run(ctx context.Context, j job) error {
	ctx, cancel := context.WithTimeout(ctx, eachInTime)
	defer cancel()
	_, err := run(ctx, nil, filled(j.argv, &j.Ban, c.Now())...)
	return err
}

// filled replaces the placeholders of arguments.
func filled(argv []string, b *Ban, now time.Time) []string {
	seconds, until := "0", "0"
	if b.Until.Unix() > 0 { // else it is zero, or possible of zero
		seconds = strconv.FormatInt(max(1, int64((b.Until.Sub(now)+time.Second-1)/time.Second)), 10)
		until = strconv.FormatInt(b.Until.Unix(), 10)
	}
	r := strings.NewReplacer("{prefix}", b.Prefix.String(), "{addr}", b.Prefix.Addr().String(), "{seconds}", seconds,
		"{until}", until, "{rule}", b.Rule)
	out := make([]string, len(argv))
	for i, a := range argv {
		if out[i] = a; i > 0 {
			out[i] = r.Replace(a)
		}
	}
	return out
}

// possible returns a ban that possibly has run. It differs from the ban to apply, so Ban is run
// again, and Unban at its end.
func possible(b Ban) Ban {
	b.Until = b.Until.Add(time.Nanosecond)
	return b
}

// with returns sorted bans with one more, or with another end.
func with(bans []Ban, b Ban) []Ban {
	i, found := slices.BinarySearchFunc(bans, b, comparePrefixes)
	if found {
		bans[i] = b
		return bans
	}
	return slices.Insert(bans, i, b)
}

func without(bans []Ban, p interface{ String() string }) []Ban {
	return slices.DeleteFunc(bans, func(b Ban) bool { return b.Prefix.String() == p.String() })
}

// Clear implements Sink. After an error it goes on as long as bans end.
func (c *Command) Clear(ctx context.Context) error {
	for {
		held := len(c.last)
		if err := c.Apply(ctx, nil, true); err == nil || len(c.last) == held {
			return err
		}
	}
}

// load reads the stored bans. A file that cannot be used is set aside: its error is returned
// once, and the next call goes on without it.
func (c *Command) load() error {
	if c.Path == "" {
		return nil
	}
	data, err := os.ReadFile(c.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("the bans of before cannot be read: %w", err)
	}
	if err == nil {
		err = json.Unmarshal(data, &c.last)
	}
	if err != nil {
		c.last = nil
		aside := c.Path + ".unusable"
		if err := os.Rename(c.Path, aside); err != nil {
			return fmt.Errorf("the bans of before cannot be read: %w", err)
		}
		return fmt.Errorf("the bans of before cannot be read, and those that have ended are not unbanned: %w; the file is "+
			"now %s", err, aside)
	}
	c.last = slices.DeleteFunc(c.last, func(b Ban) bool { return !b.Prefix.IsValid() })
	slices.SortFunc(c.last, comparePrefixes)
	for i := range c.last { // the program may not have run for some
		c.last[i] = possible(c.last[i])
	}
	return nil
}

func (c *Command) save(bans []Ban) error {
	if c.Path == "" {
		return nil
	}
	data, err := json.Marshal(bans)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(c.Path), 0o700); err != nil {
		return err
	}
	return bansFile{path: c.Path, private: true}.replace(data)
}

// Lines gives a line for each ban and its end to a program that stays: "ban PREFIX SECONDS
// RULE" and "unban PREFIX". It begins with "reset": the bans of before have ended.
type Lines struct {
	Argv []string
	Now  func() time.Time

	mu    sync.Mutex
	ended error // of the program that runs; valid if input is nil
	input io.WriteCloser
	cmd   *exec.Cmd
	exit  chan struct{}
	errs  *head
	last  []Ban
}

var _ Sink = (*Lines)(nil)

func (l *Lines) Name() string       { return l.Argv[0] }
func (*Lines) Every() time.Duration { return 0 }

// Apply implements Sink.
func (l *Lines) Apply(ctx context.Context, bans []Ban, _ bool) error {
	if l.input != nil {
		select {
		case <-l.exit:
			err := l.exitError()
			l.input = nil
			return err // the next call starts it again
		default:
		}
	}
	fresh := l.input == nil
	if fresh {
		if err := l.start(); err != nil {
			return err
		}
		l.last = nil
	}
	added, removed := difference(l.last, bans)
	var b strings.Builder
	if fresh {
		b.WriteString("reset\n")
	}
	for i := range removed {
		fmt.Fprintf(&b, "unban %s\n", removed[i].Prefix)
	}
	for i := range added {
		ban := &added[i]
		seconds := filled([]string{"", "{seconds}"}, ban, l.Now())[1]
		fmt.Fprintf(&b, "ban %s %s %s\n", ban.Prefix, seconds, strings.Join(strings.Fields(ban.Rule), " "))
	}
	if b.Len() == 0 {
		return nil
	}
	written := make(chan error, 1)
	go func() {
		_, err := io.WriteString(l.input, b.String())
		written <- err
	}()
	select {
	case err := <-written:
		if err != nil {
			<-l.stop()
			l.input = nil
			return l.exitError()
		}
	case <-ctx.Done():
		<-l.stop()
		l.input = nil
		return fmt.Errorf("%s does not read its input", l.Argv[0])
	}
	l.last = bans
	return nil
}

// start starts the program.
func (l *Lines) start() error {
	cmd := exec.Command(l.Argv[0], l.Argv[1:]...)
	cmd.WaitDelay = killAfter
	l.errs = &head{most: 4 * mostOutput}
	cmd.Stderr = l.errs
	input, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return programError(context.Background(), l.Argv, err, "")
	}
	l.cmd, l.input, l.exit = cmd, input, make(chan struct{})
	exit := l.exit
	go func() {
		err := cmd.Wait()
		l.mu.Lock()
		l.ended = err
		l.mu.Unlock()
		close(exit)
	}()
	return nil
}

// stop kills the program.
func (l *Lines) stop() <-chan struct{} {
	l.cmd.Process.Kill()
	return l.exit
}

func (l *Lines) exitError() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.ended
	if err == nil {
		err = errors.New("it has ended")
	}
	return programError(context.Background(), l.Argv, err, l.errs.String())
}

// Clear implements Sink: the program ends with its input.
func (l *Lines) Clear(ctx context.Context) error {
	if l.input == nil {
		return nil
	}
	err := l.Apply(ctx, nil, true)
	if l.input == nil {
		return err
	}
	l.input.Close()
	select {
	case <-l.exit:
	case <-ctx.Done():
		<-l.stop()
	}
	l.input = nil
	return err
}
