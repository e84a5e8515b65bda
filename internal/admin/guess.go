package admin

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"sync"
	"time"
)

// guesses reports requests with a wrong token. They are not refused for a while: a token is too long to be
// guessed, and somebody else behind the same address could lock operators out. It is safe for concurrent
// use.
type guesses struct {
	mu    sync.Mutex
	began time.Time // of the present minute
	n     int       // in this minute
	next  int       // the number that is logged next
}

// note logs the first wrong token of a minute, the 10th, the 100th and so on.
func (g *guesses) note(log *log.Logger, r *http.Request, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if d := now.Sub(g.began); d >= time.Minute || d < 0 {
		g.began, g.n, g.next = now, 0, 1
	}
	if g.n++; g.n < g.next || log == nil {
		return
	}
	g.next *= 10
	from, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		from = "a Unix socket"
	}
	count := ""
	if g.n > 1 {
		count = fmt.Sprintf(", the last of %d in a minute", g.n)
	}
	log.Printf("warning: a request to the admin listener had a wrong token; it came from %s%s", from, count)
}
