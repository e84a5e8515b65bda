package census

import (
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"fairshare"
	"fairshare/internal/reports"
)

// Bounds of the report about link checkers.
const (
	mostCheckers      = 32 // clients in an hour
	checkerAgainAfter = time.Hour
)

// checkers are clients that look like link checkers: their HEAD requests
// started a ban by a limit of errors. Its size is fixed: when it is full,
// further clients are not reported. It is safe for concurrent use.
type checkers struct {
	mu      sync.Mutex
	entries [mostCheckers]checker
}

type checker struct {
	client   netip.Prefix // invalid: the entry is free
	reported time.Time    // zero: not yet
}

// refused records a refusal. It ignores provisional clients, since an allow of their
// address has no effect.
func (c *checkers) refused(g *reports.Refusals, s *state) {
	if g.Ban != fairshare.BanStarted || g.Method != http.MethodHead || g.Via.IsValid() {
		return
	}
	if g.Limit == nil || g.Limit.Resource != fairshare.Errors {
		return
	}
	client := s.client(g.Addr)
	if !client.IsValid() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var free *checker
	for i := range c.entries {
		switch e := &c.entries[i]; {
		case e.client == client:
			return
		case free == nil && !e.client.IsValid():
			free = e
		}
	}
	if free != nil {
		free.client = client
	}
}

// lines returns one line for each client to report now, at most once an hour for each.
func (c *checkers) lines(now time.Time) (lines []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.entries {
		switch e := &c.entries[i]; {
		case !e.client.IsValid():
		case e.reported.IsZero():
			e.reported = now
			lines = append(lines,
				fmt.Sprintf("%[1]s looks like a link checker (HEAD requests that met errors) and is banned; "+
					"if it is yours: fairshare allow %[1]s --reason \"link checker\"", fairshare.PrefixID(e.client)))
		case now.Sub(e.reported) >= checkerAgainAfter:
			*e = checker{}
		}
	}
	return lines
}
