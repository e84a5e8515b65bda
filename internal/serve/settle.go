package serve

import (
	"sync"
	"time"

	"fairshare/httpguard"
	"fairshare/internal/accesslog"
	"fairshare/internal/prose"
	"fairshare/internal/watch"
)

const (
	settleEvery = 50 * time.Millisecond // how often the log is read
	expireEvery = time.Second
	lostEvery   = 10 * time.Minute // how often lost requests are reported
)

// A settler settles requests of forward-auth from the log of the server that has passed them on. A nil
// settler does nothing.
type settler struct {
	path  string
	tail  *watch.Tail
	print func(format string, args ...any)

	waiting httpguard.Settlements

	silent           bool
	expired, unknown int64     // requests without a line, references without a request; since the last report
	reported         time.Time // when these were reported
}

// openSettler opens the log of --settle-from.
func (s *server) openSettler() error {
	if s.options.SettleFrom == "" {
		return nil
	}
	tail, err := watch.OpenTail(s.options.SettleFrom, time.Now())
	if err != nil {
		return err
	}
	s.settler = &settler{path: s.options.SettleFrom, tail: tail, print: s.printf}
	return nil
}

// close closes the log.
func (t *settler) close() {
	if t != nil {
		t.tail.Close()
	}
}

// requests returns the requests that wait; nil if they are settled at once.
func (t *settler) requests() *httpguard.Settlements {
	if t == nil {
		return nil
	}
	return &t.waiting
}

// start reads the log until stop is called. stop settles all requests that wait.
func (t *settler) start() (stop func()) {
	if t == nil {
		return func() {}
	}
	ends := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		reads, expires := time.NewTicker(settleEvery), time.NewTicker(expireEvery)
		defer reads.Stop()
		defer expires.Stop()
		for {
			select {
			case <-reads.C:
				t.read(ends)
			case now := <-expires.C:
				t.expire(now)
			case <-ends:
				t.read(nil)
				t.waiting.Close()
				return
			}
		}
	})
	return func() {
		close(ends)
		running.Wait()
	}
}

// read settles by the lines that were written since the last call.
func (t *settler) read(ends <-chan struct{}) {
	for {
		lines, notes := t.tail.Read(time.Now())
		for _, note := range notes {
			t.print("settle-from: %s", note)
		}
		for i := range lines {
			if e := &lines[i]; e.Reference != "" && !t.waiting.Settle(e.Reference, loggedAnswer(e)) {
				t.unknown++
			}
		}
		select {
		case <-ends:
			return
		default:
		}
		if len(lines) == 0 {
			return
		}
	}
}

// loggedAnswer returns what a line says about the answer.
func loggedAnswer(e *accesslog.Entry) httpguard.LoggedAnswer {
	answer := httpguard.LoggedAnswer{Status: e.Status, Bytes: -1, Took: e.Duration}
	if e.Has&accesslog.HasBytes != 0 {
		answer.Bytes = e.Bytes
	}
	if e.Has&accesslog.HasUpstream != 0 {
		answer.Took = e.Upstream
	}
	return answer
}

// expire settles requests that have waited for too long, and reports what the log lacks.
func (t *settler) expire(now time.Time) {
	expired, silent := t.waiting.Expire()
	t.expired += expired
	switch {
	case silent && !t.silent:
		t.print("warning: settle-from: requests pass, but their references have not appeared in the log for a minute: "+
			"let the server write the log of docs/forward-auth.md, with fairshare_reference, to %s; until then answers "+
			"count as status 200 without a duration", t.path)
		t.expired, t.reported = 0, now
	case t.silent && !silent:
		t.print("settle-from: the log has references again")
	}
	if t.silent = silent; silent || t.expired+t.unknown == 0 || now.Sub(t.reported) < lostEvery {
		return
	}
	if t.expired > 0 {
		t.print("warning: settle-from: %s that passed had no line in the log within 2 minutes; a location with an "+
			"access_log of its own needs the log of docs/forward-auth.md too", prose.Plural(t.expired, "request"))
	}
	if t.unknown > 0 {
		t.print("settle-from: %s ignored: their references are of no request that waits, such as those from before a "+
			"restart", prose.Counted(t.unknown, "line of the log was", "lines of the log were"))
	}
	t.expired, t.unknown, t.reported = 0, 0, now
}
