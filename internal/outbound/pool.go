// Package outbound sends HTTP/1.1 requests to an upstream without TLS. Each request is
// sent, and its answer is read, in the goroutine of the caller: [http.Transport] needs
// two more goroutines for each connection. Start with [NewPool].
package outbound

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"fairshare/internal/socket"
)

// A Pool holds the idle connections to one upstream. It is safe for concurrent use.
type Pool struct {
	options Options

	mu     sync.Mutex
	idle   []*conn // the one that became idle last is at the end
	timer  *time.Timer
	closed bool // CloseIdle was called, and no request came afterwards

	calls sync.Pool
}

// Options configure a Pool. All fields except Special and MaxIdle are needed.
type Options struct {
	// Dial makes a connection. Its errors are returned as they are.
	Dial func(ctx context.Context) (net.Conn, error)
	// Host is what the Host field of requests without a host is set to.
	Host string
	// Timeout is how long the upstream may take from the end of a request to the head
	// of its answer.
	Timeout time.Duration
	// IdleTime is how long a connection stays open without a request.
	IdleTime time.Duration
	// Special reports whether the caller must see a field of an answer, by its canonical name: then the answer is not
	// left whole. It must always return the same. nil means that no answer is: see Request.Whole.
	Special func(name string) bool
	// MaxIdle bounds the idle connections; 0 means 1024.
	MaxIdle int
}

const (
	defaultIdle = 1024

	// headBytes bounds the head of an answer.
	headBytes = 256 << 10
)

// Supported reports whether a Pool is safe on this system.
const Supported = socket.Supported

// NewPool returns a pool without connections.
func NewPool(o Options) *Pool {
	if o.MaxIdle == 0 {
		o.MaxIdle = defaultIdle
	}
	p := &Pool{options: o}
	p.calls.New = func() any {
		c := &Call{pool: p, header: make(http.Header)}
		c.stop = c.Stop
		return c
	}
	return p
}

// CloseIdle closes the connections without a request, and the others after their present
// requests, unless another request comes before.
func (p *Pool) CloseIdle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, c := range p.idle {
		c.Close()
	}
	p.idle = nil
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
}

// take returns an idle connection; nil if there is none. The upstream may have closed it. now is since start.
func (p *Pool) take(now time.Duration) *conn {
	for {
		p.mu.Lock()
		p.closed = false
		n := len(p.idle)
		if n == 0 {
			p.mu.Unlock()
			return nil
		}
		c := p.idle[n-1]
		p.idle[n-1] = nil
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		if now-c.idleSince < p.options.IdleTime {
			return c
		}
		c.Close()
	}
}

// give makes a connection idle. Its last answer is complete.
func (p *Pool) give(c *conn) {
	c.idleSince = time.Since(start)
	p.mu.Lock()
	if p.closed || len(p.idle) >= p.options.MaxIdle {
		p.mu.Unlock()
		c.Close()
		return
	}
	p.idle = append(p.idle, c)
	if p.timer == nil {
		p.timer = time.AfterFunc(p.options.IdleTime, p.sweep)
	}
	p.mu.Unlock()
}

// sweep closes the connections that have been idle for too long.
func (p *Pool) sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer == nil { // CloseIdle was faster
		return
	}
	now, n := time.Since(start), 0
	for n < len(p.idle) && now-p.idle[n].idleSince >= p.options.IdleTime {
		p.idle[n].Close()
		n++
	}
	rest := copy(p.idle, p.idle[n:])
	clear(p.idle[rest:])
	p.idle = p.idle[:rest]
	if rest == 0 {
		p.timer, p.idle = nil, nil
		return
	}
	p.timer.Reset(p.options.IdleTime - (now - p.idle[0].idleSince))
}

// Call returns a Call for one request.
func (p *Pool) Call() *Call { return p.calls.Get().(*Call) }
