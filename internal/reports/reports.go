// Package reports collects what a guard reports about requests, and hands it to the parts of a server that
// count and log: in batches, and with equal reports as one. So a flood costs each of them little, and
// cores rarely wait for the same lock. Start with [New].
package reports

import (
	"net/http"
	"net/netip"
	"strings"
	"time"

	"fairshare"
	"fairshare/httpguard"
)

// A Sender is what the requests of a group have in common.
type Sender struct {
	Addr      netip.Addr
	Via       netip.Addr   // as in a fairshare.Request
	Client    netip.Prefix // of Addr: what limits count as one client; invalid if Addr is
	Proxy     bool         // Addr may have many clients behind it
	Bot       fairshare.Bot
	Owner     fairshare.Owner
	Fleet     string // "" for none
	Method    string
	Host      string
	UserAgent string
}

// Refusals are at least one refusal or block of a client by a rule. All have the same Sender.
type Refusals struct {
	Sender
	Rule    *fairshare.Rule  // nil: none
	Limit   *fairshare.Limit // nil: none
	Action  fairshare.Action
	Ban     fairshare.BanState
	Ceiling bool
	DryRun  bool // the requests passed
	Room    bool // the client got the waiting room
	Status  int
	ID      string // the reference
	Person  bool   // a request looks like one of a person's browser; false for a Fleet

	N           int64
	First, Last time.Time     // of arrival; at most a second apart
	ClockAhead  time.Duration // of the system's clock
	Paths       []*Refused    // in order, at least one; the first one has the path and the query of the first request

	// Of the first request that was reported:
	Time       time.Time
	RetryAfter int64
	Tally      fairshare.Tally
	Cookies    int
}

// mostApart bounds the time between the requests of a group: fairshare watch may read hours of a log at once.
const mostApart = time.Second

// isNear reports whether a request can be in the group.
func (g *Refusals) isNear(at time.Time) bool {
	return at.Sub(g.First) <= mostApart && g.Last.Sub(at) <= mostApart
}

// Refused are refusals, one after the other, with the same path.
type Refused struct {
	Path string // without credentials
	N    int64

	// Of the first:
	Query  string
	Robots string // the line of robots.txt that decided; "" for none

	// Of the latest:
	Time  time.Time
	Wait  time.Duration
	Tally fairshare.Tally
}

// RuleName returns the name of the rule, "" for none.
func (r *Refusals) RuleName() string {
	if r.Rule == nil {
		return ""
	}
	return r.Rule.Name
}

// Latest returns the latest refusals.
func (r *Refusals) Latest() *Refused { return r.Paths[len(r.Paths)-1] }

// Passages are at least one request that was let through and has ended. All have the same Sender.
type Passages struct {
	Sender
	First, Last time.Time // of arrival
	Reported    time.Time // when recorders got them
	Requests    []*Passed // in order, at least one
}

// Passed is one request that was let through and has ended.
type Passed struct {
	Path   string        // without the query; "" for CONNECT, since some clients send a password in it
	Took   time.Duration // of the upstream
	CPU    time.Duration
	Status int // 0: there was no answer
	Bytes  int64
}

// LoggablePath returns the path of a request without credentials: the target of
// CONNECT is a host and a port, and some clients send a password before it.
func LoggablePath(req *fairshare.Request) string {
	if req.Method == http.MethodConnect {
		return req.Path[strings.LastIndexByte(req.Path, '@')+1:]
	}
	return req.Path
}

// OfReport returns the refusal that a report describes, with Client, Person and ClockAhead missing.
func OfReport(r *httpguard.Report) *Refusals {
	g := new(Refusals)
	g.begin(r)
	g.Paths = []*Refused{refusedOf(r)}
	return g
}

// OfCompletion returns the request that a completion describes, with Client missing.
func OfCompletion(c *httpguard.Completion) *Passages {
	p := passedOf(c)
	p.Path = passedPath(c)
	return &Passages{Sender: senderOf(c), First: c.Time, Last: c.Time, Requests: []*Passed{&p}}
}

func (g *Refusals) begin(r *httpguard.Report) {
	req, f := r.Request, &r.Finding
	*g = Refusals{Sender: Sender{Addr: req.Addr, Via: req.Via, Proxy: req.Proxy, Bot: req.Bot, Owner: req.Owner,
		Fleet: req.Fleet, Method: req.Method, Host: req.Host, UserAgent: req.UserAgent},
		Rule: f.Rule, Limit: f.Limit, Action: f.Action, Ban: f.Ban, Ceiling: f.Ceiling, DryRun: r.DryRun,
		Room: r.WaitingRoom, Status: r.Status, ID: r.ID,
		N: 1, First: req.Time, Last: req.Time, Paths: g.Paths[:0],
		Time: req.Time, RetryAfter: r.RetryAfter, Tally: f.Tally, Cookies: fairshare.Cookies(req.Header)}
}

// add counts a further refusal.
func (g *Refusals) add(at time.Time) {
	g.N++
	if at.Before(g.First) {
		g.First = at
	} else if at.After(g.Last) {
		g.Last = at
	}
}

func refusedOf(r *httpguard.Report) *Refused {
	p := &Refused{Path: LoggablePath(r.Request), Query: r.Request.Query,
		Robots: r.Request.Robots.Reason(r.Finding.Rule)}
	p.add(r)
	return p
}

// add counts a further refusal.
func (p *Refused) add(r *httpguard.Report) {
	p.N++
	p.Time, p.Wait, p.Tally = r.Request.Time, r.Finding.Wait, r.Finding.Tally
}

func senderOf(c *httpguard.Completion) Sender {
	return Sender{Addr: c.Addr, Via: c.Via, Proxy: c.Proxy, Bot: c.Bot, Owner: c.Owner, Fleet: c.Fleet,
		Method: c.Method, Host: c.Host, UserAgent: c.UserAgent}
}

func passedOf(c *httpguard.Completion) Passed {
	return Passed{Took: c.Took, CPU: c.CPU, Status: c.Status, Bytes: c.Bytes}
}

func passedPath(c *httpguard.Completion) string {
	if c.Method == http.MethodConnect {
		return ""
	}
	return c.Path
}
